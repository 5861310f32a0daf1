#pragma once
// Reads the sections of a 64-bit little-endian ELF file in memory, for code objects. Every offset is checked, because
// the image may be damaged or hostile. Source: System V ABI, chapter 4 (object files).

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>
#include <span>
#include <string_view>
#include <type_traits>
#include <vector>

namespace forge::codegen {

/// The `T` at `offset`; nothing if it does not lie within the bytes.
template <typename T>
[[nodiscard]] std::optional<T> read_at(std::span<const std::byte> bytes, std::uint64_t offset) {
  static_assert(std::is_trivially_copyable_v<T>);
  if (offset > bytes.size() || bytes.size() - offset < sizeof(T)) return std::nullopt;
  T value;
  std::memcpy(&value, bytes.data() + offset, sizeof(T));
  return value;
}

struct ElfSection {
  std::string_view name;
  std::uint32_t type = 0;
  std::uint32_t info = 0;
  std::uint64_t size = 0;            ///< size in memory
  std::span<const std::byte> bytes;  ///< contents in the file; empty for NOBITS
};

struct ElfImage {
  std::uint16_t machine = 0;
  std::vector<ElfSection> sections;  ///< by index; views into the image

  /// Nothing if `image` is not a valid file of this kind. The result refers to `image`.
  [[nodiscard]] static std::optional<ElfImage> parse(std::span<const std::byte> image);
  /// The first section of that name, or null.
  [[nodiscard]] const ElfSection* find(std::string_view name) const;
};

}  // namespace forge::codegen

#pragma once
// MessagePack as far as the metadata of AMD code objects needs it: maps, arrays, strings, integers; other items can be
// skipped. Works on bytes that may be damaged or hostile: no recursion, no allocation.
// Source: the MessagePack specification (github.com/msgpack/msgpack/blob/master/spec.md).

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>

namespace forge::codegen {

struct MsgPackItem {
  enum class Kind : std::uint8_t { kInteger, kString, kArray, kMap, kOther };
  Kind kind = Kind::kOther;
  std::int64_t integer = 0;  ///< unsigned ones beyond int64 are cut to its maximum
  std::string_view string;
  std::uint32_t count = 0;  ///< of an array's items or a map's pairs, which follow
};

/// Reads items one after another. After a failure every call fails.
class MsgPackReader {
 public:
  explicit MsgPackReader(std::span<const std::byte> bytes) : rest_(bytes) {}
  /// The next item; of an array or a map only its head. Nothing at the end and for damaged bytes.
  std::optional<MsgPackItem> next();
  /// Passes over the next item with all that is in it.
  bool skip();
  /// Reads the head of a map (an array); nothing when the next item is no such thing.
  std::optional<std::uint32_t> map();
  std::optional<std::uint32_t> array();

 private:
  /// Big-endian, `bytes` of 1 to 8.
  std::optional<std::uint64_t> take_number(std::size_t bytes);
  bool take(std::uint64_t bytes);
  std::optional<MsgPackItem> string_of(std::optional<std::uint64_t> bytes);

  std::span<const std::byte> rest_;
};

}  // namespace forge::codegen

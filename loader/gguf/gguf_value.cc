#include "loader/gguf/gguf_value.h"

#include <fmt/core.h>

#include <array>
#include <bit>
#include <utility>

#include "support/error.h"

namespace forge::loader {
namespace {

static_assert(std::endian::native == std::endian::little,
              "GGUF values are read in place, so the host is little-endian");

/// Name and size of each GgufType, by its number. Size 0: variable length.
struct TypeRow {
  std::string_view name;
  std::uint8_t bytes;
};

constexpr std::array<TypeRow, 13> kTypes{{{"u8", 1},
                                          {"i8", 1},
                                          {"u16", 2},
                                          {"i16", 2},
                                          {"u32", 4},
                                          {"i32", 4},
                                          {"f32", 4},
                                          {"bool", 1},
                                          {"string", 0},
                                          {"array", 0},
                                          {"u64", 8},
                                          {"i64", 8},
                                          {"f64", 8}}};

/// Reads a number that may be unaligned, as values in a GGUF file are.
template <class T>
T load(std::span<const std::byte> bytes) {
  T value;
  std::memcpy(&value, bytes.data(), sizeof value);
  return value;
}

}  // namespace

std::string_view gguf_type_name(GgufType type) {
  return kTypes.at(static_cast<std::size_t>(type)).name;
}
std::size_t gguf_type_bytes(GgufType type) {
  return kTypes.at(static_cast<std::size_t>(type)).bytes;
}

std::vector<std::string_view> GgufStrings::index() const {
  std::vector<std::string_view> views;
  views.reserve(count_);  // at most one string for 8 bytes of the file
  for (const std::string_view text : *this) views.push_back(text);
  return views;
}

std::optional<std::int64_t> GgufValue::to_i64() const {
  switch (type) {
    case GgufType::kU8:
    case GgufType::kBool:
      return load<std::uint8_t>(bytes);
    case GgufType::kI8:
      return load<std::int8_t>(bytes);
    case GgufType::kU16:
      return load<std::uint16_t>(bytes);
    case GgufType::kI16:
      return load<std::int16_t>(bytes);
    case GgufType::kU32:
      return load<std::uint32_t>(bytes);
    case GgufType::kI32:
      return load<std::int32_t>(bytes);
    case GgufType::kI64:
      return load<std::int64_t>(bytes);
    case GgufType::kU64: {
      const auto wide = load<std::uint64_t>(bytes);
      if (!std::in_range<std::int64_t>(wide)) return std::nullopt;
      return static_cast<std::int64_t>(wide);
    }
    default:
      return std::nullopt;
  }
}

std::optional<std::uint64_t> GgufValue::to_u64() const {
  if (type == GgufType::kU64) return load<std::uint64_t>(bytes);
  const auto wide = to_i64();
  if (!wide || *wide < 0) return std::nullopt;
  return static_cast<std::uint64_t>(*wide);
}

std::optional<double> GgufValue::to_f64() const {
  if (type == GgufType::kF32) return load<float>(bytes);
  if (type == GgufType::kF64) return load<double>(bytes);
  if (type == GgufType::kBool) return std::nullopt;
  const auto wide = to_i64();
  if (!wide) return std::nullopt;
  return static_cast<double>(*wide);
}

std::optional<bool> GgufValue::to_bool() const {
  if (type != GgufType::kBool) return std::nullopt;
  return load<std::uint8_t>(bytes) != 0;
}

std::optional<std::string_view> GgufValue::to_string() const {
  if (type != GgufType::kString) return std::nullopt;
  return std::string_view(reinterpret_cast<const char*>(bytes.data()), bytes.size());
}

std::optional<GgufStrings> GgufValue::to_strings() const {
  // Converters write different element types for an empty array, so any is accepted.
  if (type == GgufType::kArray && count == 0) return GgufStrings();
  if (type != GgufType::kArray || element != GgufType::kString) return std::nullopt;
  return GgufStrings(bytes.data(), count);
}

GgufValue GgufValue::element_at(std::uint64_t i) const {
  const std::size_t width = gguf_type_bytes(element);
  return {element, element, 0, bytes.subspan(i * width, width)};
}

std::vector<GgufValue> GgufValue::elements() const {
  std::vector<GgufValue> out;
  if (type != GgufType::kArray) return out;
  if (const std::size_t width = gguf_type_bytes(element); width != 0) {
    for (std::uint64_t i = 0; i < count; ++i) out.push_back(element_at(i));
    return out;
  }
  // read_value() in gguf.cc has checked all lengths. `left` is the rest of the bytes; an array is walked to find its
  // end.
  const auto walk = [](auto& self, GgufType kind, std::span<const std::byte>& left) -> GgufValue {
    GgufValue value{kind, kind, 0, {}};
    if (kind == GgufType::kArray) {
      value.element = static_cast<GgufType>(load<std::uint32_t>(left));
      value.count = load<std::uint64_t>(left.subspan(4));
      left = left.subspan(12);
      const auto first = left;
      if (const std::size_t width = gguf_type_bytes(value.element); width != 0) {
        left = left.subspan(value.count * width);
      } else {
        for (std::uint64_t i = 0; i < value.count; ++i) self(self, value.element, left);
      }
      value.bytes = first.first(first.size() - left.size());
      return value;
    }
    const auto length = load<std::uint64_t>(left);
    value.bytes = left.subspan(8, length);
    left = left.subspan(8 + length);
    return value;
  };
  auto left = bytes;
  for (std::uint64_t i = 0; i < count; ++i) out.push_back(walk(walk, element, left));
  return out;
}

std::string GgufValue::describe() const {
  const auto name = gguf_type_name(type);
  if (type == GgufType::kString) return fmt::format("string '{}'", printable(*to_string()));
  if (type == GgufType::kArray) return fmt::format("array of {} {}s", count, gguf_type_name(element));
  if (type == GgufType::kBool) return *to_bool() ? "bool true" : "bool false";
  if (type == GgufType::kF32 || type == GgufType::kF64) return fmt::format("{} {}", name, *to_f64());
  if (const auto value = to_i64()) return fmt::format("{} {}", name, *value);
  return fmt::format("{} {}", name, *to_u64());
}

}  // namespace forge::loader

#include "text/tokenizer/charsmap.h"

#include <fmt/core.h>

#include <cstring>

#include "support/error.h"

namespace forge::text {
namespace {

constexpr std::string_view kKey = "tokenizer.ggml.precompiled_charsmap";
constexpr std::uint32_t kValueBit = 1U << 31;
/// Bounds how much a text can grow. The longest replacement in NFKC has 33 bytes (U+FDFA).
constexpr std::size_t kValueBytesMax = 256;

/// The fields of a unit; charsmap.h shows the layout.
constexpr bool has_value(std::uint32_t unit) {
  return (unit & 0x100) != 0;
}
constexpr std::uint32_t offset_of(std::uint32_t unit) {
  return (unit >> 10) << ((unit & 0x200) != 0 ? 8 : 0);
}
/// The byte that leads to a node. A value has bit 31 set, so its label equals no byte.
constexpr std::uint32_t label_of(std::uint32_t unit) {
  return unit & (kValueBit | 0xFF);
}

[[noreturn]] void broken(std::string why) {
  throw Error(ErrorCode::kTokenizer, fmt::format("'{}' is damaged", kKey), std::move(why), "convert the model again");
}

}  // namespace

Charsmap::Charsmap(const loader::Gguf& gguf) {
  const loader::GgufValue* array = gguf.find_value(kKey);
  if (array == nullptr || (array->is_array() && array->count == 0)) return;
  if (!array->is_array() || (array->element != loader::GgufType::kU8 && array->element != loader::GgufType::kI8))
    throw Error(ErrorCode::kTokenizer, fmt::format("'{}' is {}", kKey, array->describe()),
                "an array of bytes is expected", "convert the model again");
  const auto bytes = array->bytes.first(array->count);
  std::uint32_t trie_bytes = 0;
  if (bytes.size() < sizeof trie_bytes) broken(fmt::format("it has {} bytes", bytes.size()));
  std::memcpy(&trie_bytes, bytes.data(), sizeof trie_bytes);
  if (trie_bytes % 4 != 0 || trie_bytes == 0 || trie_bytes > bytes.size() - sizeof trie_bytes)
    broken(fmt::format("it has {} bytes but declares {} for its trie", bytes.size(), trie_bytes));
  units_ = bytes.subspan(sizeof trie_bytes, trie_bytes);
  unit_count_ = trie_bytes / 4;
  const auto rest = bytes.subspan(sizeof trie_bytes + trie_bytes);
  values_ = {reinterpret_cast<const char*>(rest.data()), rest.size()};
  if (!values_.empty() && values_.back() != '\0') broken("its last value has no terminating NUL");
  // Check every value that a node refers to: inside the trie, inside the values, and not too long.
  for (std::uint32_t i = 0; i < unit_count_; ++i) {
    const std::uint32_t node = unit(i);
    if ((node & kValueBit) != 0 || !has_value(node)) continue;
    const std::uint32_t at = i ^ offset_of(node);
    if (at >= unit_count_ || (unit(at) & ~kValueBit) >= values_.size())
      broken(fmt::format("the value of unit {} of {} is out of bounds", i, unit_count_));
    if (values_.substr(unit(at) & ~kValueBit, kValueBytesMax + 1).find('\0') == std::string_view::npos)
      broken(fmt::format("the value of unit {} has more than {} bytes", i, kValueBytesMax));
  }
  // Fill keeps_ascii_ by trying every pair of ASCII characters in the trie.
  const auto child = [&](std::uint32_t from, std::uint32_t byte) {
    const std::uint32_t at = from ^ byte;
    return at < unit_count_ && label_of(unit(at)) == byte ? at : 0;
  };
  const std::uint32_t root = offset_of(unit(0));
  for (std::uint32_t first = 0; first < 128; ++first)
    if (const std::uint32_t node = child(root, first); first != 0 && node != 0) {
      bool leaves = !has_value(unit(node));
      for (std::uint32_t next = 1; next < 128; ++next)
        leaves = leaves && child(node ^ offset_of(unit(node)), next) == 0;
      keeps_ascii_.at(first) = leaves;
    }
}

std::uint32_t Charsmap::unit(std::uint32_t i) const {
  std::uint32_t value = 0;
  std::memcpy(&value, units_.data() + std::size_t{i} * sizeof value, sizeof value);
  return value;
}

std::string_view Charsmap::value(std::uint32_t offset) const {
  return values_.substr(offset, values_.find('\0', offset) - offset);
}

Charsmap::Match Charsmap::find(std::string_view text) const {
  Match longest;
  if (unit_count_ == 0) return longest;
  std::uint32_t at = offset_of(unit(0));
  for (std::size_t i = 0; i < text.size() && text[i] != '\0'; ++i) {
    const auto byte = static_cast<std::uint8_t>(text[i]);
    at ^= byte;
    if (at >= unit_count_ || label_of(unit(at)) != byte) break;
    const std::uint32_t node = unit(at);
    at ^= offset_of(node);
    if (has_value(node)) longest = {i + 1, value(unit(at) & ~kValueBit)};
  }
  return longest;
}

}  // namespace forge::text

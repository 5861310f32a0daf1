#include "codegen/gpu/compile/msgpack.h"

#include <algorithm>
#include <limits>

namespace forge::codegen {
namespace {

using Kind = MsgPackItem::Kind;

MsgPackItem container(Kind kind, std::uint64_t count) {
  return {.kind = kind, .count = static_cast<std::uint32_t>(count)};
}

std::optional<MsgPackItem> unsigned_of(std::optional<std::uint64_t> number) {
  if (!number) return std::nullopt;
  constexpr std::uint64_t kMax = std::numeric_limits<std::int64_t>::max();
  return MsgPackItem{.kind = Kind::kInteger, .integer = static_cast<std::int64_t>(std::min(*number, kMax))};
}

/// `number` has `bytes` bytes; its sign is their highest bit.
std::optional<MsgPackItem> signed_of(std::optional<std::uint64_t> number, std::size_t bytes) {
  if (!number) return std::nullopt;
  const unsigned unused = 64 - 8 * static_cast<unsigned>(bytes);
  return MsgPackItem{.kind = Kind::kInteger, .integer = static_cast<std::int64_t>(*number << unused) >> unused};
}

}  // namespace

bool MsgPackReader::take(std::uint64_t bytes) {
  if (bytes > rest_.size()) {
    rest_ = {};
    return false;
  }
  rest_ = rest_.subspan(bytes);
  return true;
}

std::optional<std::uint64_t> MsgPackReader::take_number(std::size_t bytes) {
  const auto from = rest_;
  if (!take(bytes)) return std::nullopt;
  std::uint64_t number = 0;
  for (std::size_t i = 0; i < bytes; ++i) number = number << 8 | std::to_integer<std::uint64_t>(from[i]);
  return number;
}

std::optional<MsgPackItem> MsgPackReader::string_of(std::optional<std::uint64_t> bytes) {
  const auto from = rest_;
  if (!bytes || !take(*bytes)) return std::nullopt;
  return MsgPackItem{.kind = Kind::kString, .string = {reinterpret_cast<const char*>(from.data()), *bytes}};
}

std::optional<MsgPackItem> MsgPackReader::next() {
  const auto head = take_number(1);
  if (!head) return std::nullopt;
  const std::uint64_t code = *head;
  if (code <= 0x7f) return MsgPackItem{.kind = Kind::kInteger, .integer = static_cast<std::int64_t>(code)};
  if (code >= 0xe0) return MsgPackItem{.kind = Kind::kInteger, .integer = static_cast<std::int64_t>(code) - 0x100};
  if (code <= 0x8f) return container(Kind::kMap, code & 0xf);
  if (code <= 0x9f) return container(Kind::kArray, code & 0xf);
  if (code <= 0xbf) return string_of(code & 0x1f);

  const auto other = [](bool whole) { return whole ? std::optional(MsgPackItem{}) : std::nullopt; };
  const auto blob = [&](std::optional<std::uint64_t> bytes, std::uint64_t more) {
    return other(bytes && take(*bytes + more));
  };
  switch (code) {
    case 0xc0:  // nil, false, true
    case 0xc2:
    case 0xc3:
      return MsgPackItem{};
    case 0xc4:  // binary
    case 0xc5:
    case 0xc6:
      return blob(take_number(std::size_t{1} << (code - 0xc4)), 0);
    case 0xc7:  // extension: one more byte, its type
    case 0xc8:
    case 0xc9:
      return blob(take_number(std::size_t{1} << (code - 0xc7)), 1);
    case 0xca:  // float
    case 0xcb:
      return other(take(code == 0xca ? 4 : 8));
    case 0xcc:  // unsigned
    case 0xcd:
    case 0xce:
    case 0xcf:
      return unsigned_of(take_number(std::size_t{1} << (code - 0xcc)));
    case 0xd0:  // signed
    case 0xd1:
    case 0xd2:
    case 0xd3: {
      const std::size_t bytes = std::size_t{1} << (code - 0xd0);
      return signed_of(take_number(bytes), bytes);
    }
    case 0xd4:  // extensions of fixed size: 1 to 16 bytes after the type
    case 0xd5:
    case 0xd6:
    case 0xd7:
    case 0xd8:
      return other(take((std::uint64_t{1} << (code - 0xd4)) + 1));
    case 0xd9:
    case 0xda:
    case 0xdb:
      return string_of(take_number(std::size_t{1} << (code - 0xd9)));
    case 0xdc:
    case 0xdd:
    case 0xde:
    case 0xdf: {
      const auto count = take_number(code % 2 == 0 ? 2 : 4);
      if (!count) return std::nullopt;
      return container(code <= 0xdd ? Kind::kArray : Kind::kMap, *count);
    }
    default:
      rest_ = {};
      return std::nullopt;
  }
}

bool MsgPackReader::skip() {
  // Each item takes a byte at least, so a count that the bytes cannot hold ends the loop early.
  for (std::uint64_t pending = 1; pending > 0; --pending) {
    const auto item = next();
    if (!item) return false;
    if (item->kind == Kind::kArray) pending += item->count;
    if (item->kind == Kind::kMap) pending += std::uint64_t{2} * item->count;
  }
  return true;
}

std::optional<std::uint32_t> MsgPackReader::map() {
  const auto item = next();
  if (!item || item->kind != Kind::kMap) return std::nullopt;
  return item->count;
}

std::optional<std::uint32_t> MsgPackReader::array() {
  const auto item = next();
  if (!item || item->kind != Kind::kArray) return std::nullopt;
  return item->count;
}

}  // namespace forge::codegen

#include "text/tokenizer/unicode.h"

#include <utf8proc.h>

#include <algorithm>
#include <cstring>

namespace forge::text {
namespace {

constexpr std::uint32_t kCodeMax = 0x10FFFF;

bool is_continuation(char c) {
  return (static_cast<unsigned char>(c) & 0xC0) == 0x80;
}

/// The bytes of the sequence at `at` if all of them are there, else 0. Does not check for overlong forms.
std::size_t whole_sequence(std::string_view text, std::size_t at) {
  const auto lead = static_cast<unsigned char>(text[at]);
  if (lead < 0x80) return 1;
  if (lead < 0xC0 || lead >= 0xF8) return 0;
  const std::size_t bytes = sequence_bytes(text[at]);
  if (bytes > text.size() - at) return 0;
  for (std::size_t i = 1; i < bytes; ++i)
    if (!is_continuation(text[at + i])) return 0;
  return bytes;
}

std::size_t shortest_bytes(std::uint32_t code) {
  return code < 0x80 ? 1 : code < 0x800 ? 2 : code < 0x10000 ? 3 : 4;
}

/// The position of the first ill-formed sequence, text.size() if there is none. ASCII is checked eight bytes at a time.
std::size_t first_ill_formed(std::string_view text) {
  std::size_t at = 0;
  while (at < text.size()) {
    std::uint64_t chunk = 0;
    if (text.size() - at >= sizeof chunk) {
      std::memcpy(&chunk, text.data() + at, sizeof chunk);
      if ((chunk & 0x8080808080808080U) == 0) {
        at += sizeof chunk;
        continue;
      }
    }
    const std::size_t bytes = whole_sequence(text, at);
    if (bytes == 0) return at;
    const Char c = decode(text, at);
    if (c.code > kCodeMax || bytes != shortest_bytes(c.code)) return at;
    at += bytes;
  }
  return at;
}

}  // namespace

bool is_white_space(std::uint32_t c) {
  return (c >= 0x09 && c <= 0x0D) || c == 0x20 || c == 0x85 || c == 0xA0 || c == 0x1680 ||
         (c >= 0x2000 && c <= 0x200A) || c == 0x2028 || c == 0x2029 || c == 0x202F || c == 0x205F || c == 0x3000;
}

std::uint8_t char_class_slow(std::uint32_t code) {
  const std::uint8_t space = is_white_space(code) ? kSpace : 0;
  if (code > kCodeMax) return space;
  const auto category = utf8proc_category(static_cast<utf8proc_int32_t>(code));
  const auto within = [&](utf8proc_category_t first, utf8proc_category_t last) {
    return category >= first && category <= last;
  };
  if (category == UTF8PROC_CATEGORY_LU || category == UTF8PROC_CATEGORY_LT) return space | kLetter | kUpper;
  if (category == UTF8PROC_CATEGORY_LL) return space | kLetter | kLower;
  if (within(UTF8PROC_CATEGORY_LU, UTF8PROC_CATEGORY_LO)) return space | kLetter;
  if (within(UTF8PROC_CATEGORY_MN, UTF8PROC_CATEGORY_ME)) return space | kMark;
  if (within(UTF8PROC_CATEGORY_ND, UTF8PROC_CATEGORY_NO)) return space | kNumber;
  if (within(UTF8PROC_CATEGORY_PC, UTF8PROC_CATEGORY_PO)) return space | kPunct;
  if (within(UTF8PROC_CATEGORY_SM, UTF8PROC_CATEGORY_SO)) return space | kSymbol;
  return space;
}

const std::array<std::uint8_t, 128>& ascii_classes() noexcept {
  static const auto table = [] {
    std::array<std::uint8_t, 128> classes{};
    for (std::uint32_t c = 0; c < 128; ++c) classes[c] = char_class_slow(c);
    return classes;
  }();
  return table;
}

void append_utf8(std::string& out, std::uint32_t code) {
  const auto put = [&](std::uint32_t byte) { out += static_cast<char>(byte); };
  if (code < 0x80) {
    put(code);
  } else if (code < 0x800) {
    put(0xC0 | code >> 6);
    put(0x80 | (code & 0x3F));
  } else if (code < 0x10000) {
    put(0xE0 | code >> 12);
    put(0x80 | (code >> 6 & 0x3F));
    put(0x80 | (code & 0x3F));
  } else {
    put(0xF0 | code >> 18);
    put(0x80 | (code >> 12 & 0x3F));
    put(0x80 | (code >> 6 & 0x3F));
    put(0x80 | (code & 0x3F));
  }
}

std::string lower_case(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  for (std::size_t at = 0; at < text.size();) {
    const Char c = decode(text, at);
    append_utf8(out, static_cast<std::uint32_t>(utf8proc_tolower(static_cast<utf8proc_int32_t>(c.code))));
    at += c.bytes;
  }
  return out;
}

std::size_t well_formed_bytes(std::string_view text, std::size_t& ill_formed) {
  const auto byte = [&](std::size_t i) { return static_cast<unsigned char>(text[i]); };
  ill_formed = 1;
  const unsigned lead = byte(0);
  if (lead < 0x80) return 1;
  if (lead < 0xC2 || lead > 0xF4) return 0;
  const std::size_t bytes = sequence_bytes(text[0]);
  // The range of the second byte excludes overlong forms, surrogates and code points above U+10FFFF (Unicode 15, table
  // 3-7).
  const unsigned low = lead == 0xE0 ? 0xA0 : lead == 0xF0 ? 0x90 : 0x80;
  const unsigned high = lead == 0xED ? 0x9F : lead == 0xF4 ? 0x8F : 0xBF;
  for (std::size_t i = 1; i < bytes; ++i) {
    if (i >= text.size() || byte(i) < (i == 1 ? low : 0x80) || byte(i) > (i == 1 ? high : 0xBF)) return 0;
    ++ill_formed;
  }
  return bytes;
}

std::string_view repair_utf8(std::string_view text, std::string& storage) {
  std::size_t at = first_ill_formed(text);
  if (at == text.size()) return text;
  storage.assign(text.substr(0, at));
  while (at < text.size()) {
    const std::size_t bytes = whole_sequence(text, at);
    const std::uint32_t code = bytes == 0 ? kReplacementCode : decode(text, at).code;
    append_utf8(storage, code > kCodeMax ? kReplacementCode : code);
    at += std::max<std::size_t>(bytes, 1);
  }
  return storage;
}

std::size_t complete_utf8_prefix(std::string_view text) {
  // An incomplete sequence has at most three bytes, so it starts in the last three.
  for (std::size_t back = 1; back <= std::min<std::size_t>(3, text.size()); ++back) {
    const std::size_t at = text.size() - back;
    const auto lead = static_cast<unsigned char>(text[at]);
    if (is_continuation(text[at])) continue;
    if (lead < 0xC2 || lead > 0xF4 || sequence_bytes(text[at]) <= back) return text.size();
    if (back >= 2) {
      // With a second byte that no character has (overlong, surrogate, above U+10FFFF) it can never be completed.
      const auto second = static_cast<unsigned char>(text[at + 1]);
      if ((lead == 0xE0 && second < 0xA0) || (lead == 0xED && second > 0x9F) || (lead == 0xF0 && second < 0x90) ||
          (lead == 0xF4 && second > 0x8F))
        return text.size();
    }
    return at;
  }
  return text.size();
}

}  // namespace forge::text

#include "text/jinja/unicode.h"

#include <algorithm>
#include <span>

#include "text/jinja/pytext.h"

namespace forge::text::jinja {
namespace {

// The formats of the generated tables; all are sorted by code point. A CaseRange maps every stride-th code point from
// first to last by adding delta; a CaseMany maps one code point to up to three, padded with 0.
struct Range {
  char32_t first, last;
};
struct CaseRange {
  char32_t first, last;
  std::uint32_t stride;
  std::int32_t delta;
};
struct CaseMany {
  char32_t code;
  char32_t to[3];
};

#include "text/chat_unicode_tables.inc"

// Binary search for the range whose end is at or above `code`.
bool contains(std::span<const Range> table, char32_t code) {
  const auto it = std::ranges::lower_bound(table, code, {}, &Range::last);
  return it != table.end() && it->first <= code;
}

// Appends what `code` maps to.
void map_case(char32_t code, std::span<const CaseRange> table, std::span<const CaseMany> many, std::string& out) {
  const auto row = std::ranges::lower_bound(table, code, {}, &CaseRange::last);
  if (row != table.end() && row->first <= code && (code - row->first) % row->stride == 0) {
    append_utf8(out, static_cast<char32_t>(static_cast<std::int32_t>(code) + row->delta));
    return;
  }
  const auto several = std::ranges::lower_bound(many, code, {}, &CaseMany::code);
  if (several == many.end() || several->code != code) return append_utf8(out, code);
  for (const char32_t to : several->to)
    if (to != 0) append_utf8(out, to);
}

/// Unicode's Case_Ignorable, reduced to the common characters: punctuation within words and combining marks.
bool case_ignorable(char32_t code) {
  return code == '\'' || code == '.' || code == ':' || code == '^' || code == '`' || code == 0xad || code == 0xb7 ||
         code == 0x2019 || (code >= 0x300 && code <= 0x36f);
}

bool cased(char32_t code) {
  return is_class(code, CharClass::kUpper) || is_class(code, CharClass::kLower) || is_class(code, CharClass::kTitle);
}

/// The Final_Sigma condition of the Unicode Standard, section 3.13: a cased letter precedes the sigma and none follows,
/// ignoring case-ignorable characters. Such a sigma becomes ς in lower case.
bool final_sigma(const std::u32string& text, std::size_t at) {
  std::size_t before = at;
  while (before > 0 && case_ignorable(text[before - 1])) --before;
  if (before == 0 || !cased(text[before - 1])) return false;
  std::size_t after = at + 1;
  while (after < text.size() && case_ignorable(text[after])) ++after;
  return after == text.size() || !cased(text[after]);
}

// The lower case of one character; only sigma depends on its neighbours.
void lower_at(const std::u32string& text, std::size_t at, std::string& out) {
  if (text[at] == 0x3a3) return append_utf8(out, final_sigma(text, at) ? 0x3c2 : 0x3c3);
  map_case(text[at], kToLower, kToLowerMany, out);
}

bool all_ascii(std::string_view text) {
  return std::ranges::all_of(text, [](char letter) { return static_cast<unsigned char>(letter) < 0x80; });
}

}  // namespace

bool is_class(char32_t code, CharClass wanted) {
  switch (wanted) {
    case CharClass::kSpace:
      return contains(kSpace, code);
    case CharClass::kAlpha:
      return contains(kAlpha, code);
    case CharClass::kDigit:
      return contains(kDigit, code);
    case CharClass::kDecimal:
      return contains(kDecimal, code);
    case CharClass::kNumeric:
      return contains(kNumeric, code);
    case CharClass::kPrintable:
      return contains(kPrintable, code);
    case CharClass::kUpper:
      return contains(kUpper, code);
    case CharClass::kLower:
      return contains(kLower, code);
    case CharClass::kTitle:
      return contains(kTitle, code);
    case CharClass::kIdentStart:
      return contains(kIdentStart, code);
    case CharClass::kIdentPart:
      return contains(kIdentPart, code);
  }
  return false;
}

// ASCII text, the common case, needs no tables.
std::string to_upper(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  if (all_ascii(text)) {
    for (const char c : text) out += (c >= 'a' && c <= 'z') ? static_cast<char>(c - 32) : c;
    return out;
  }
  for (const char32_t code : decode(text)) map_case(code, kToUpper, kToUpperMany, out);
  return out;
}

std::string to_lower(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  if (all_ascii(text)) {
    for (const char c : text) out += (c >= 'A' && c <= 'Z') ? static_cast<char>(c + 32) : c;
    return out;
  }
  const std::u32string codes = decode(text);
  for (std::size_t i = 0; i < codes.size(); ++i) lower_at(codes, i, out);
  return out;
}

// A letter after a cased character is lowered, any other gets its title case.
std::string to_title(std::string_view text) {
  std::string out;
  const std::u32string codes = decode(text);
  bool inside = false;
  for (std::size_t i = 0; i < codes.size(); ++i) {
    if (inside)
      lower_at(codes, i, out);
    else
      map_case(codes[i], kToTitle, kToTitleMany, out);
    inside = cased(codes[i]);
  }
  return out;
}

std::string capitalize(std::string_view text) {
  std::string out;
  const std::u32string codes = decode(text);
  if (!codes.empty()) map_case(codes[0], kToTitle, kToTitleMany, out);
  for (std::size_t i = 1; i < codes.size(); ++i) lower_at(codes, i, out);
  return out;
}

std::string swap_case(std::string_view text) {
  std::string out;
  const std::u32string codes = decode(text);
  for (std::size_t i = 0; i < codes.size(); ++i) {
    if (is_class(codes[i], CharClass::kUpper))
      lower_at(codes, i, out);
    else if (is_class(codes[i], CharClass::kLower))
      map_case(codes[i], kToUpper, kToUpperMany, out);
    else
      append_utf8(out, codes[i]);
  }
  return out;
}

std::string case_fold(std::string_view text) {
  std::string out;
  for (const char32_t code : decode(text)) map_case(code, kFold, kFoldMany, out);
  return out;
}

}  // namespace forge::text::jinja

#include "text/constraint/regex_class.h"

#include <fmt/core.h>

#include <array>
#include <iterator>
#include <span>

#include "support/error.h"
#include "support/utf8.h"
#include "text/tokenizer/unicode.h"

namespace forge::text::constraint {
namespace {

constexpr CodeRange kDigits[]{{'0', '9'}}, kWord[]{{'0', '9'}, {'A', 'Z'}, {'_', '_'}, {'a', 'z'}};
/// WhiteSpace and LineTerminator of ECMA-262 that are white space to Python too, and what only one of them has.
constexpr CodeRange kSpaces[]{{'\t', '\r'},     {' ', ' '},       {0xA0, 0xA0},     {0x1680, 0x1680}, {0x2000, 0x200A},
                              {0x2028, 0x2029}, {0x202F, 0x202F}, {0x205F, 0x205F}, {0x3000, 0x3000}},
    kSpacesOfOne[]{{0x1C, 0x1F}, {0x85, 0x85}, {0xFEFF, 0xFEFF}};

CodeRanges ranges_of(std::span<const CodeRange> ranges) {
  return {ranges.begin(), ranges.end()};
}

bool is_letter(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
}
bool is_surrogate(std::uint32_t code) {
  return code >= 0xD800 && code <= 0xDFFF;
}

}  // namespace

CodeRanges RegexReader::dot() const {
  if (either_) return complement({{'\n', '\n'}});
  return complement({{'\n', '\n'}, {'\r', '\r'}, {0x2028, 0x2029}});
}

CodeRanges RegexReader::spaces(bool negated) const {
  auto ranges = ranges_of(kSpaces);
  if (either_ != negated) ranges.insert(ranges.end(), std::begin(kSpacesOfOne), std::end(kSpacesOfOne));
  return negated ? complement(std::move(ranges)) : normalized(std::move(ranges));
}

void RegexReader::fail(const std::string& what) const {
  throw Error(ErrorCode::kUsage, fmt::format("regular expression, byte {}", at_), what);
}

std::uint32_t RegexReader::take_code() {
  if (utf8_length(pattern_.substr(at_)) == 0) fail("not valid UTF-8");
  const auto one = decode(pattern_, at_);
  at_ += one.bytes;
  return one.code;
}

std::uint32_t RegexReader::number() {
  std::uint64_t value = 0;
  while (is_digit(peek())) {
    value = value * 10 + static_cast<unsigned>(pattern_[at_++] - '0');
    if (value > 1'000'000'000) fail("the count of a quantifier is too large");
  }
  return static_cast<std::uint32_t>(value);
}

std::uint32_t RegexReader::hex(std::size_t digits) {
  std::uint32_t value = 0;
  for (std::size_t i = 0; i < digits; ++i) {
    const int digit = hex_value(peek());
    if (digit < 0) fail(fmt::format("{} hexadecimal digits are missing", digits));
    value = value << 4 | static_cast<unsigned>(digit);
    ++at_;
  }
  return value;
}

/// After "\u": four digits, a pair of surrogates, or digits in braces.
std::uint32_t RegexReader::unicode_escape() {
  std::uint32_t code = 0;
  if (take("{")) {
    if (peek() == '}') fail("hexadecimal digits are missing");
    while (!take("}")) {
      code = code << 4 | hex(1);
      if (code > kCodeMax) fail("a code point above 10FFFF");
    }
  } else {
    code = hex(4);
    if (code >= 0xD800 && code < 0xDC00 && take("\\u")) {
      const auto low = hex(4);
      if (low < 0xDC00 || low > 0xDFFF) fail("half of a surrogate pair");
      return 0x10000 + ((code - 0xD800) << 10 | (low - 0xDC00));
    }
  }
  if (is_surrogate(code)) fail("half of a surrogate pair");
  return code;
}

CodeRanges RegexReader::property(bool negated) {
  if (!take("{")) fail("\\p needs the name of a property in braces");
  std::string name;
  while (!take("}")) {
    if (done()) fail("\\p{ is not closed");
    name += pattern_[at_++];
  }
  std::string_view value = name;
  for (const std::string_view key : {"General_Category=", "gc="})
    if (value.starts_with(key)) value.remove_prefix(key.size());
  auto ranges = general_category(value);
  if (!ranges) fail(fmt::format("\\p{{{}}} is not supported, only general categories are", printable(name)));
  return negated ? complement(*std::move(ranges)) : *std::move(ranges);
}

RegexReader::Escape RegexReader::any_escape(bool in_class) {
  if (done()) fail("a backslash at the end");
  const auto single = [](std::uint32_t code) { return Escape{{{code, code}}}; };
  const char c = peek();
  if (static_cast<unsigned char>(c) >= 0x80) return single(take_code());
  ++at_;
  switch (c) {
    case 'd':
      return {ranges_of(kDigits), true};
    case 'D':
      return {complement(ranges_of(kDigits)), true};
    case 'w':
      return {ranges_of(kWord), true};
    case 'W':
      return {complement(ranges_of(kWord)), true};
    case 's':
    case 'S':
      return {spaces(c == 'S'), true};
    case 'p':
    case 'P':
      return {property(c == 'P'), true};
    case 't':
      return single('\t');
    case 'n':
      return single('\n');
    case 'v':
      return single('\v');
    case 'f':
      return single('\f');
    case 'r':
      return single('\r');
    case 'x':
      return single(hex(2));
    case 'u':
      return single(unicode_escape());
    case 'c':
      if (!is_letter(peek())) fail("\\c needs a letter");
      return single(static_cast<unsigned char>(pattern_[at_++]) & 31U);
    case '0':
      if (is_digit(peek())) fail("octal escapes are not supported");
      return single(0);
    case 'b':
      if (in_class) return single('\b');
      fail("the word boundary \\b is not supported");
    case 'B':
      if (!in_class) fail("the word boundary \\B is not supported");
      break;
    case 'k':
      fail("the back-reference \\k is not supported");
    default:
      if (is_digit(c)) fail(fmt::format("the back-reference \\{} is not supported", c));
      if (!is_letter(c)) return single(static_cast<unsigned char>(c));
  }
  fail(fmt::format("unknown escape \\{}", c));
}

CodeRanges RegexReader::escape() {
  return any_escape(false).ranges;
}

RegexReader::Escape RegexReader::class_atom() {
  if (done()) fail("a class [ is not closed");
  if (take("\\")) return any_escape(true);
  const auto code = take_code();
  return {{{code, code}}};
}

CodeRanges RegexReader::bracketed() {
  const bool negated = take("^");
  if (negated) negate();
  CodeRanges all;
  while (!take("]")) {
    const auto first = class_atom();
    // A '-' before the closing bracket, or next to a class such as \w, stands for itself.
    if (peek() == '-' && peek(1) != ']' && at_ + 1 < pattern_.size() && !first.is_class) {
      ++at_;
      const auto last = class_atom();
      if (!last.is_class) {
        if (last.ranges[0].first < first.ranges[0].first) fail("a range of characters is out of order");
        all.push_back({first.ranges[0].first, last.ranges[0].first});
        continue;
      }
      all.push_back({'-', '-'});
      all.insert(all.end(), last.ranges.begin(), last.ranges.end());
    }
    all.insert(all.end(), first.ranges.begin(), first.ranges.end());
  }
  if (!negated) return normalized(std::move(all));
  negate();
  return complement(std::move(all));
}

}  // namespace forge::text::constraint

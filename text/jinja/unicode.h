#pragma once
// Character classes and case mappings as Python's str methods have them, from tables that gen_unicode.py generates from
// Python's own. Unlike text/tokenizer/unicode.h, which follows Unicode's general categories, this follows Python.

#include <cstdint>
#include <string>
#include <string_view>

namespace forge::text::jinja {

/// Each class is the str method of a similar name: str.isspace, isalpha, isdigit, isdecimal, isnumeric, isprintable,
/// isupper, islower; title-case letters; the first and the further characters of an identifier.
enum class CharClass : std::uint8_t {
  kSpace,
  kAlpha,
  kDigit,
  kDecimal,
  kNumeric,
  kPrintable,
  kUpper,
  kLower,
  kTitle,
  kIdentStart,
  kIdentPart,
};

[[nodiscard]] bool is_class(char32_t code, CharClass wanted);
[[nodiscard]] inline bool is_space(char32_t code) {
  return is_class(code, CharClass::kSpace);
}

// str.upper, lower, title, capitalize, swapcase and casefold: valid UTF-8 in, valid UTF-8 out. One code point may
// become up to three.
[[nodiscard]] std::string to_upper(std::string_view text);
[[nodiscard]] std::string to_lower(std::string_view text);  ///< a final Σ becomes ς
[[nodiscard]] std::string to_title(std::string_view text);
[[nodiscard]] std::string capitalize(std::string_view text);
[[nodiscard]] std::string swap_case(std::string_view text);
[[nodiscard]] std::string case_fold(std::string_view text);

}  // namespace forge::text::jinja

#pragma once
// Unicode character classes and case mappings as Python's str methods have them.

#include <cstdint>
#include <string>
#include <string_view>

namespace forge::text::jinja {

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

// Valid UTF-8 in, valid UTF-8 out.
[[nodiscard]] std::string to_upper(std::string_view text);
[[nodiscard]] std::string to_lower(std::string_view text);  ///< with the final sigma
[[nodiscard]] std::string to_title(std::string_view text);
[[nodiscard]] std::string capitalize(std::string_view text);
[[nodiscard]] std::string swap_case(std::string_view text);
[[nodiscard]] std::string case_fold(std::string_view text);

}  // namespace forge::text::jinja

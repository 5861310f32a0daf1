#pragma once
// Characters, escapes and classes of regular expressions; used by the parser of regex_syntax.h.

#include <cstddef>
#include <string>
#include <string_view>

#include "text/constraint/code_ranges.h"

namespace forge::text::constraint {

[[nodiscard]] constexpr bool is_digit(char c) {
  return c >= '0' && c <= '9';
}

/// A place in the text of an expression. either: what \s and '.' stand for by one of the dialects, else by both.
class RegexReader {
 public:
  RegexReader(std::string_view pattern, bool either) : pattern_(pattern), either_(either) {}

  /// Behind a negation a text matches by both dialects if it does not match by either; a second call ends that.
  void negate() { either_ = !either_; }

  [[nodiscard]] bool done() const { return at_ >= pattern_.size(); }
  /// The next byte, 0 at the end.
  [[nodiscard]] char peek(std::size_t ahead = 0) const {
    return at_ + ahead < pattern_.size() ? pattern_[at_ + ahead] : '\0';
  }
  bool take(std::string_view text) {
    if (!pattern_.substr(at_).starts_with(text)) return false;
    at_ += text.size();
    return true;
  }
  std::uint32_t take_code();  ///< the next character; refuses what is not UTF-8
  /// Throws the error of bad syntax: "regular expression, byte N: WHAT".
  [[noreturn]] void fail(const std::string& what) const;

  /// What an escape outside a class stands for, its backslash taken already.
  CodeRanges escape();
  /// A class in brackets, its '[' taken already.
  CodeRanges bracketed();
  /// '.', every character but line terminators.
  [[nodiscard]] CodeRanges dot() const;
  /// A decimal number of a quantifier; refuses more than a thousand million. Precondition: a digit is next.
  std::uint32_t number();

 private:
  struct Escape {
    CodeRanges ranges;
    bool is_class = false;
  };
  Escape any_escape(bool in_class);
  Escape class_atom();
  CodeRanges property(bool negated);
  [[nodiscard]] CodeRanges spaces(bool negated) const;
  std::uint32_t hex(std::size_t digits);
  std::uint32_t unicode_escape();

  std::string_view pattern_;
  std::size_t at_ = 0;
  bool either_;
};

}  // namespace forge::text::constraint

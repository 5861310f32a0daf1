#pragma once
// How JSON texts are spelled: strings, keys, numbers, and the white space that an answer may have.

#include <array>
#include <cstdint>
#include <string_view>
#include <unordered_map>

#include "text/constraint/regular.h"

namespace forge::text::constraint {

/// Languages of one pool. "Decoded" ones are of a string's characters, the others of JSON text.
class JsonLanguage {
 public:
  explicit JsonLanguage(RegularPool& pool);

  [[nodiscard]] RegularPool& pool() { return pool_; }
  [[nodiscard]] Expr text() const { return text_; }  ///< decoded: any
  /// Decoded: texts of so many characters.
  [[nodiscard]] Expr text(std::uint32_t min, std::uint32_t max);

  /// The strings with a decoded language. Where only the length matters any escape may be used, else the shortest.
  [[nodiscard]] Expr quoted(Expr decoded);
  /// The same with the shortest escapes only, so that each text has one spelling.
  [[nodiscard]] Expr quoted_once(Expr decoded);
  [[nodiscard]] Expr quoted(std::string_view text) { return quoted_once(pool_.literal(text)); }

  /// Numbers without exponents and with neither needless zeros nor "-0": each value has one spelling.
  [[nodiscard]] Expr number() const { return number_; }
  [[nodiscard]] Expr integer() const { return integer_; }
  /// All spellings of a language of such numbers that an answer may have.
  [[nodiscard]] Expr spelled_numbers(Expr numbers);

  /// White space that may stand between elements: nothing, a space, or a line break with indentation.
  [[nodiscard]] Expr space() const { return space_; }
  [[nodiscard]] Expr colon() const { return colon_; }
  [[nodiscard]] Expr comma() const { return comma_; }

 private:
  RegularPool& pool_;
  std::array<Expr, 256> escapes_{};  // kEpsilon: the byte itself
  std::unordered_map<Expr, Expr> known_;
  std::unordered_map<Expr, Expr> any_escape_;  // decoded -> its strings with any escape
  Expr character_, escaped_, text_, number_, integer_, with_fraction_, space_, colon_, comma_;
};

}  // namespace forge::text::constraint

#pragma once
// Languages of numbers that a schema's bounds allow, in JsonLanguage's spelling of numbers.

#include <nlohmann/json.hpp>
#include <optional>
#include <string>

#include "text/constraint/schema/json_language.h"

namespace forge::text::constraint {

/// A decimal number.
struct Decimal {
  bool negative = false;
  std::string whole = "0";  ///< without leading zeros
  std::string fraction;     ///< without trailing zeros
  [[nodiscard]] bool is_zero() const { return whole == "0" && fraction.empty(); }
  [[nodiscard]] std::string text() const;
};
/// Exactly a JSON number's value. Nothing if it has more than some hundred digits.
[[nodiscard]] std::optional<Decimal> decimal_of(const nlohmann::ordered_json& number);

/// The numbers x >= bound, or x > bound if `strict`; of integers only if `whole`.
[[nodiscard]] Expr numbers_from(JsonLanguage& json, const Decimal& bound, bool strict, bool whole);
/// The numbers x <= bound, or x < bound.
[[nodiscard]] Expr numbers_to(JsonLanguage& json, const Decimal& bound, bool strict, bool whole);
/// The multiples of a number above 0. Nothing if that takes too many states.
[[nodiscard]] std::optional<Expr> multiples_of(JsonLanguage& json, const Decimal& step);

}  // namespace forge::text::constraint

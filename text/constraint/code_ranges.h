#pragma once
// Sets of Unicode code points and the UTF-8 byte sequences that spell them.

#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "text/constraint/regular.h"

namespace forge::text::constraint {

inline constexpr std::uint32_t kCodeMax = 0x10FFFF;

struct CodeRange {
  std::uint32_t first = 0, last = 0;  ///< both included
};
/// In any order, possibly overlapping, unless a function says otherwise.
using CodeRanges = std::vector<CodeRange>;

/// Ascending, disjoint, and joined where they touch.
[[nodiscard]] CodeRanges normalized(CodeRanges ranges);
/// All other code points, normalized.
[[nodiscard]] CodeRanges complement(CodeRanges ranges);

/// The UTF-8 sequences of the code points (RFC 3629: the shortest form, no surrogates).
[[nodiscard]] Expr utf8_of(RegularPool& pool, const CodeRanges& ranges);
/// Any one code point.
[[nodiscard]] inline Expr any_character(RegularPool& pool) {
  return utf8_of(pool, {{0, kCodeMax}});
}

/// The code points with a general category of Unicode 15 (source: UAX 44, utf8proc's tables), by the short or the long
/// name: "L", "Lu", "Letter", "Uppercase_Letter"; also "Any" and "ASCII". Nothing if there is no such category.
[[nodiscard]] std::optional<CodeRanges> general_category(std::string_view name);

/// The value of a hexadecimal digit; -1 if it is none.
[[nodiscard]] int hex_value(char c);

}  // namespace forge::text::constraint

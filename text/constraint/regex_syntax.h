#pragma once
// Regular expressions as ECMA-262 writes them (with its u flag), as languages of a RegularPool.
//
// Taken: classes, \d \w \s and their complements (\d and \w are ASCII), \p{L} and the other general categories, \t \n
// \v \f \r \0 \cX \xHH \uHHHH \u{...}, groups of every kind, greedy and lazy quantifiers (the same language), ^ and $
// anywhere. Besides, as ECMA-262 has it without the u flag, any ASCII character that is no letter or digit may be
// escaped, and ']', '}' and a '-' next to a class stand for themselves.
// ECMA-262 and Python's re, by which many clients validate, differ in \s (U+FEFF here, U+001C to 1F and U+0085 there)
// and in '.' (\r, U+2028 and U+2029 there). Where they differ a text should satisfy both, see RegexDialects.
// Look-ahead is taken where it says something of the whole text: behind a ^ that begins the expression.
// Refused by name: other look-ahead, look-behind, back-references, \b and \B, inline flags, scripts and other
// properties.

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "text/constraint/regular.h"

namespace forge::text::constraint {

/// Limits of an expression: its UTF-8 bytes and its groups inside groups.
inline constexpr std::size_t kRegexBytesMax = std::size_t{128} << 10;
inline constexpr unsigned kRegexDepthMax = 200;

enum class RegexMatch : std::uint8_t {
  kWhole,   ///< the whole text is a match, as between ^(?: and )$
  kSearch,  ///< a match is somewhere in the text, which is UTF-8: `pattern` of JSON Schema
};

/// By which rules a text matches.
enum class RegexDialects : std::uint8_t {
  kBoth,    ///< by those of ECMA-262 and of Python's re
  kEither,  ///< by one of them or both
};

/// The language of the texts that match. Errors: kUsage, in one line and with the byte where it is, for bad syntax and
/// what is refused; kMemory (see RegularPool).
[[nodiscard]] Expr parse_regex(RegularPool& pool, std::string_view pattern, RegexMatch match = RegexMatch::kWhole,
                               RegexDialects dialects = RegexDialects::kBoth);

}  // namespace forge::text::constraint

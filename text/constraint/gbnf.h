#pragma once
// GBNF, llama.cpp's grammar syntax (source: llama.cpp, grammars/README.md), as a language of a RegularPool.
//
// Taken: rules `name ::= ...`, alternatives, groups, "literals", [classes], '.', ? * + {m} {m,} {m,n}, comments, and
// the escapes \n \r \t \\ \" \[ \] \xHH \uHHHH \UHHHHHHHH. Rules may be recursive, but not from the left. An
// alternative may stand on a line of its own. Refused: left recursion, rules without a definition or with two, tokens
// by <name>.

#include <cstddef>
#include <string_view>

#include "text/constraint/compile.h"

namespace forge::text::constraint {

inline constexpr std::size_t kGrammarBytesMax = std::size_t{256} << 10;

/// The texts of the rule `root`. Errors: kUsage with the line, for bad syntax and what is refused; kMemory.
[[nodiscard]] Language parse_gbnf(RegularPool& pool, std::string_view grammar);

}  // namespace forge::text::constraint

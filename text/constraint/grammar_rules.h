#pragma once
// Rules of a context-free grammar and the language that they stand for.

#include <cstdint>
#include <string>
#include <vector>

#include "text/constraint/regular.h"

namespace forge::text::constraint {

/// A part of a rule.
struct GrammarNode {
  enum class Kind : std::uint8_t { kLanguage, kRule, kConcat, kOr, kRepeat };
  Kind kind = Kind::kLanguage;
  Expr language = RegularPool::kEpsilon;  ///< kLanguage
  std::uint32_t rule = 0;                 ///< kRule: its number
  std::uint32_t min = 0, max = 0;         ///< kRepeat
  std::vector<GrammarNode> parts;         ///< kConcat, kOr; kRepeat: one
};

struct GrammarRule {
  std::string name;
  GrammarNode root;
};

/// The language of a rule. Small rules that are not recursive are put in place, others are calls. Errors: kUsage for
/// left recursion; kMemory.
[[nodiscard]] Expr language_of(RegularPool& pool, const std::vector<GrammarRule>& rules, std::uint32_t start);

}  // namespace forge::text::constraint

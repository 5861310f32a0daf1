#pragma once
// The syntax tree between the parser of regular expressions and the languages that it stands for.

#include <cstdint>
#include <vector>

#include "text/constraint/regular.h"

namespace forge::text::constraint {

/// A part of an expression. Whatever holds no anchor is a kLanguage already.
struct RegexNode {
  enum class Kind : std::uint8_t { kLanguage, kStart, kEnd, kConcat, kOr, kRepeat };
  Kind kind = Kind::kLanguage;
  Expr language = RegularPool::kEpsilon;  ///< kLanguage
  std::uint32_t min = 0, max = 0;         ///< kRepeat
  std::vector<RegexNode> parts;           ///< kConcat, kOr; kRepeat: one

  [[nodiscard]] bool anchored() const { return kind != Kind::kLanguage; }
};

/// The words that `root` matches in a text of which they are all. Resolves ^ and $ exactly, wherever they stand.
/// Errors: kMemory (see RegularPool).
[[nodiscard]] Expr language_of(RegularPool& pool, const RegexNode& root);

}  // namespace forge::text::constraint

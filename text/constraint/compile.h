#pragma once
// Constraints from their sources: regular expressions so far.

#include <cstdint>
#include <memory>
#include <string>

#include "text/constraint/token_trie.h"

namespace forge::text::constraint {

enum class ConstraintSyntax : std::uint8_t { kRegex, kGbnf, kJsonSchema };

struct ConstraintSource {
  ConstraintSyntax syntax = ConstraintSyntax::kRegex;
  std::string text;
};

/// What a source compiles to, for one vocabulary. Shared by all sequences with the same source; thread-safe.
class CompiledConstraint;

/// Errors: kUsage, in one line that names the place; kMemory.
[[nodiscard]] std::shared_ptr<CompiledConstraint> compile(const ConstraintSource& source,
                                                          std::shared_ptr<const TokenTrie> trie);

}  // namespace forge::text::constraint

#pragma once
// Constraints from their sources: regular expressions so far.

#include <cstdint>
#include <memory>
#include <string>
#include <utility>

#include "text/constraint/token_trie.h"

namespace forge::text::constraint {

enum class ConstraintSyntax : std::uint8_t { kRegex, kGbnf, kJsonSchema };

struct ConstraintSource {
  ConstraintSyntax syntax = ConstraintSyntax::kRegex;
  std::string text;
};

/// What a source compiles to, for one vocabulary. Shared by all sequences with the same source; thread-safe.
class CompiledConstraint {
 public:
  CompiledConstraint(std::string pattern, std::shared_ptr<const TokenTrie> trie)
      : pattern_(std::move(pattern)), trie_(std::move(trie)) {}
  [[nodiscard]] const std::string& pattern() const { return pattern_; }
  [[nodiscard]] const std::shared_ptr<const TokenTrie>& trie() const { return trie_; }
  [[nodiscard]] std::size_t memory_bytes() const { return sizeof *this + pattern_.capacity(); }

 private:
  std::string pattern_;
  std::shared_ptr<const TokenTrie> trie_;
};

/// Errors: kUsage, in one line that names the place; kMemory.
[[nodiscard]] std::shared_ptr<CompiledConstraint> compile(const ConstraintSource& source,
                                                          std::shared_ptr<const TokenTrie> trie);

}  // namespace forge::text::constraint

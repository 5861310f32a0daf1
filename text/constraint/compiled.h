#pragma once
// The definition of CompiledConstraint, for the files that make and run constraints.

#include <memory>
#include <string>

#include "text/constraint/compile.h"
#include "text/constraint/regular.h"

namespace forge::text::constraint {

class CompiledConstraint {
 public:
  CompiledConstraint(std::string pattern, std::shared_ptr<const TokenTrie> trie)
      : pattern_(std::move(pattern)), trie_(std::move(trie)) {}
  [[nodiscard]] const std::string& pattern() const { return pattern_; }
  [[nodiscard]] const std::shared_ptr<const TokenTrie>& trie() const { return trie_; }

 private:
  std::string pattern_;
  std::shared_ptr<const TokenTrie> trie_;
};

}  // namespace forge::text::constraint

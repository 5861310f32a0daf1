#pragma once
// Tokens as a tree of bytes: which tokens does the text at a place begin with. Children of a node lie side by side in
// the order of their bytes, so a node is 9 bytes and building needs one sort of the tokens.

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "text/tokenizer/vocabulary.h"

namespace forge::text {

class Trie {
 public:
  static constexpr std::uint32_t kRoot = 0, kNowhere = UINT32_MAX;

  Trie() = default;
  /// `ids`: which tokens of `vocabulary` are in the tree, in any order; none is empty.
  Trie(const Vocabulary& vocabulary, std::vector<TokenId> ids);

  /// The node that `byte` leads to, kNowhere when no token goes on so.
  [[nodiscard]] std::uint32_t child(std::uint32_t node, char byte) const {
    std::uint32_t low = first_child_[node], high = first_child_[node + 1];
    const auto wanted = static_cast<std::uint8_t>(byte);
    while (low < high) {
      const std::uint32_t middle = low + (high - low) / 2;
      if (bytes_[middle] < wanted)
        low = middle + 1;
      else
        high = middle;
    }
    return low < first_child_[node + 1] && bytes_[low] == wanted ? low : kNowhere;
  }
  /// The token that ends here, or kNoToken.
  [[nodiscard]] TokenId token(std::uint32_t node) const { return tokens_[node]; }

 private:
  std::vector<std::uint32_t> first_child_ = {1, 1};  // of node n: [n], up to [n + 1]
  std::vector<std::uint8_t> bytes_ = {0};            // that led to the node
  std::vector<TokenId> tokens_ = {kNoToken};
};

}  // namespace forge::text

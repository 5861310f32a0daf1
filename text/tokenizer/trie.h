#pragma once
// A prefix tree of tokens, for finding all tokens with which a text begins. Used by Unigram, PLaMo 2, WordPiece and
// RWKV. The children of a node are numbered consecutively in the order of their bytes, so a node takes 9 bytes and
// building needs one sort:
//
//    tokens "a", "ab", "b"      node          0 (root)   1 "a"   2 "b"   3 "ab"
//                               first_child_  1          3       4       4        (one more 4 at the end)
//                               bytes_        0          'a'     'b'     'b'
//                               tokens_       none       "a"     "b"     "ab"

#include <cstdint>
#include <functional>
#include <string_view>
#include <utility>
#include <vector>

#include "text/tokenizer/vocabulary.h"

namespace forge::text {

/// Longer tokens are not searched for in text. At each character of a text the search may take as many steps as the
/// longest token has bytes, so this bounds the cost.
inline constexpr std::size_t kSearchedBytesMax = 1024;
/// Warns that `tokens` tokens are longer than that, unless it is 0.
void warn_of_long_tokens(Vocabulary& vocabulary, std::size_t tokens);

/// Immutable once built. Nodes are numbers; kRoot is the empty text.
class Trie {
 public:
  static constexpr std::uint32_t kRoot = 0, kNoNode = UINT32_MAX;

  Trie() = default;
  /// `ids` are the tokens of `vocabulary` to put into the tree, in any order. None may have an empty text.
  Trie(const Vocabulary& vocabulary, std::vector<TokenId> ids)
      : Trie([&](TokenId id) { return vocabulary.text(id); }, std::move(ids)) {}
  /// The same for tokens that the file spells otherwise. `text_of` is called during construction only; of tokens with
  /// the same text the one with the highest id is found.
  Trie(const std::function<std::string_view(TokenId)>& text_of, std::vector<TokenId> ids);

  /// The node reached from `node` by `byte`; kNoNode if no token continues that way. Binary search among the children.
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
    return low < first_child_[node + 1] && bytes_[low] == wanted ? low : kNoNode;
  }
  /// The token that ends at this node, or kNoToken.
  [[nodiscard]] TokenId token(std::uint32_t node) const { return tokens_[node]; }

 private:
  std::vector<std::uint32_t> first_child_ = {1, 1};  // the children of node n are [n] up to, not including, [n + 1]
  std::vector<std::uint8_t> bytes_ = {0};            // the byte that leads to the node
  std::vector<TokenId> tokens_ = {kNoToken};
};

}  // namespace forge::text

#pragma once
// The tokens of a vocabulary by their bytes, laid out for computing masks: which tokens may come next under a
// constraint. The automaton walks along the tree, so that tokens share the work for common beginnings and a dead state
// skips all tokens below it (the idea is llguidance's; see docs/rooms/text.md).

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "text/constraint/token_mask.h"
#include "text/tokenizer/tokenizer.h"

namespace forge::text::constraint {

/// A node of a tree in preorder; the nodes below it follow it.
struct TrieNode {
  std::uint32_t nodes = 1;  ///< of the subtree, this one included
  std::int32_t token = -1;  ///< that ends here; -1 if none does
  std::uint16_t depth = 0;  ///< bytes before `byte`
  std::uint8_t byte = 0;
};

/// Immutable once built, about 15 bytes of memory for each byte of the vocabulary that is not a common beginning.
class TokenTrie {
 public:
  /// Tokens apart by length, because counts matter to short tokens in few places only (see
  /// RegularPool::within_horizon).
  static constexpr std::array<std::uint32_t, 3> kBandBytes{8, 24, 65535};
  static constexpr std::size_t kBands = kBandBytes.size();

  /// Takes every token that stands for text: no control and unknown tokens, and none that ends a generation.
  explicit TokenTrie(const Tokenizer& tokenizer) : TokenTrie(tokenizer, {}) {}
  /// `shown`: control tokens that stand for their spelling, besides.
  TokenTrie(const Tokenizer& tokenizer, std::span<const std::int32_t> shown);
  /// The same for tokens given by their bytes; an empty one is no text. `end_tokens` end a generation.
  TokenTrie(std::vector<std::string> tokens, std::vector<std::int32_t> end_tokens);

  [[nodiscard]] std::size_t vocab() const { return tokens_.size(); }
  [[nodiscard]] std::size_t mask_words() const { return constraint::mask_words(vocab()); }
  /// The bytes of a token that may appear in a mask, empty for others.
  [[nodiscard]] std::string_view bytes(std::int32_t token) const {
    return token < 0 || static_cast<std::size_t>(token) >= vocab() ? std::string_view()
                                                                   : tokens_[static_cast<std::size_t>(token)];
  }
  [[nodiscard]] const std::vector<std::int32_t>& end_tokens() const { return end_tokens_; }
  [[nodiscard]] bool is_end(std::int32_t token) const;
  /// Plain text: whole characters that JSON strings hold unescaped. Where a constraint allows any text, all such tokens
  /// are allowed at once.
  enum class Kind : std::uint8_t { kText, kOther };
  static constexpr std::size_t kKinds = 2;
  /// The tree of the tokens of a kind, of at most kBandBytes[band] bytes, that are in no band before.
  [[nodiscard]] std::span<const TrieNode> band(std::size_t band, Kind kind) const {
    return bands_.at(band * kKinds + static_cast<std::size_t>(kind));
  }
  /// The tokens of a band that are plain text, as a mask.
  [[nodiscard]] const std::vector<std::uint32_t>& text_mask(std::size_t band) const { return text_masks_.at(band); }
  /// The bytes of the longest token of a band.
  [[nodiscard]] std::uint32_t longest(std::size_t band) const { return longest_.at(band); }

  /// Tokens as the text of a JSON string and what follows its closing quote, so that a mask inside a string needs no
  /// look at the thousands of tokens that are text only.
  struct Quoted {
    std::uint32_t characters;  ///< before the quote, all of them plain text
    std::int32_t token;
  };
  struct StringTokens {
    std::vector<TrieNode> rests;              ///< the tree of what follows quotes; `token` is a place in `quoted`
    std::vector<std::vector<Quoted>> quoted;  ///< by rest, ascending by characters; [0]: nothing follows the quote
    std::vector<TrieNode> inside;             ///< the tree of the other tokens without quotes that are no plain text
    std::vector<TrieNode> escaped;            ///< and of those with quotes
    std::vector<Quoted> texts;                ///< plain text, ascending by characters
    /// Masks of the texts: of 0 characters, of at most 1, and so on; the last is of all.
    std::array<std::vector<std::uint32_t>, 18> texts_to;
    std::uint32_t longest = 0;  ///< bytes of a token
  };
  [[nodiscard]] const StringTokens& strings() const { return strings_; }

  /// Sets the bits of the tokens that are spelled as one whose bit is set, so that equal texts are allowed alike.
  void add_same(std::span<std::uint32_t> mask) const;
  /// Tokens that spell `text`: the longest match again and again. Empty if some byte has no token.
  [[nodiscard]] std::vector<std::int32_t> spelled(std::string_view text) const;
  /// Tokens that spell `text` as the tokenizer does, unless that spells another text: some put a space before a text,
  /// or change it. Then as above. `parse_special`: as EncodeOptions has it.
  [[nodiscard]] std::vector<std::int32_t> spelled_by(const Tokenizer& tokenizer, std::string_view text,
                                                     bool parse_special = false) const;

 private:
  struct Same {
    std::int32_t in_tree, other;
  };
  void build();
  void build_strings(std::span<const std::int32_t> order);

  std::vector<std::string> tokens_;
  std::vector<std::int32_t> end_tokens_;  // ascending
  std::array<std::vector<TrieNode>, kBands * kKinds> bands_;
  std::array<std::vector<std::uint32_t>, kBands> text_masks_;
  std::array<std::uint32_t, kBands> longest_{};
  StringTokens strings_;
  std::vector<Same> same_;
};

}  // namespace forge::text::constraint

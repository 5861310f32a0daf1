#pragma once
// PLaMo 2's tokenizer (source: AhoCorasick in tokenization_plamo.py of pfnet/plamo-2-8b, and llama.cpp). A unigram
// model: of all ways to split a text into tokens the one with the highest sum of scores is chosen. It differs from
// SentencePiece's (unigram.h) in what decides between equals, and in what is exact:
//   - scores are whole numbers, 10000 times the file's, so no sum is rounded;
//   - the search runs from the end of the text, and the longest token wins a tie;
//   - a character may always be spelled in its byte tokens, at a score of -1000 in all;
//   - text is not normalised and spaces are spaces.
//
// The original walks an automaton of all suffixes of tokens. A prefix tree, searched at each character, finds the same
// tokens.

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "loader/gguf/gguf.h"
#include "text/tokenizer/special_split.h"
#include "text/tokenizer/trie.h"
#include "text/tokenizer/vocabulary.h"

namespace forge::text {

/// The scheme of one PLaMo 2 model. Immutable, so threads may share it.
class Plamo2 {
 public:
  /// Reads tokenizer.ggml.scores. `vocabulary` and `gguf` must outlive this. Errors: kTokenizer if there are no scores,
  /// they do not fit the tokens, or one of the 256 byte tokens is missing.
  Plamo2(Vocabulary& vocabulary, const loader::Gguf& gguf);

  /// Appends the ids of `fragments` to `ids`. Bytes that are not UTF-8 are read as U+FFFD.
  void encode(std::span<const Fragment> fragments, std::vector<TokenId>& ids) const;
  [[nodiscard]] std::string describe() const { return "PLaMo 2, best sum of scores"; }
  static std::string decode(std::string_view token) { return std::string(token); }

 private:
  void encode_text(std::string_view text, std::vector<TokenId>& ids) const;

  const Vocabulary* vocabulary_;
  Trie trie_;                         // normal and user-defined tokens with a usable score
  std::vector<std::int64_t> scores_;  // of each token
  std::array<TokenId, 256> bytes_{};  // the token of each byte
};

}  // namespace forge::text

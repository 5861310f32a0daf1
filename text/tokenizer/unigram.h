#pragma once
// SentencePiece's unigram language model (arXiv 1804.10959; T5, XLM-RoBERTa). A text is normalised, and of all ways to
// split it into tokens the one with the highest sum of scores (log-probabilities) is chosen, by the Viterbi algorithm.
//
// Sums are f32 and are carried on from word to word, because SentencePiece does so: how they are rounded decides
// between splits of equal score.

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "loader/gguf/gguf.h"
#include "text/tokenizer/charsmap.h"
#include "text/tokenizer/metaspace.h"
#include "text/tokenizer/special_split.h"
#include "text/tokenizer/trie.h"
#include "text/tokenizer/vocabulary.h"

namespace forge::text {

/// The Unigram scheme of one model. Immutable, so threads may share it.
class Unigram {
 public:
  /// Reads tokenizer.ggml.scores and the normalisation rules. `vocabulary` and `gguf` must outlive this. Errors:
  /// kTokenizer if the scores do not fit the tokens, a score is NaN or infinite, or the rules are damaged.
  Unigram(Vocabulary& vocabulary, const loader::Gguf& gguf);

  /// Appends the ids of `fragments` to `ids`. A character that no token covers becomes its byte tokens if the
  /// vocabulary has all 256, otherwise the unknown token, one for each run of such characters. Bytes that are not UTF-8
  /// are read as U+FFFD.
  void encode(std::span<const Fragment> fragments, std::vector<TokenId>& ids) const;
  [[nodiscard]] std::string describe() const;
  static std::string decode(std::string_view token) { return unescape_spaces(token); }

 private:
  struct Lattice;
  /// The text that is split: rules applied, spaces replaced by U+2581, and repeated spaces merged if the model was
  /// trained so.
  [[nodiscard]] std::string normalized(std::string_view text) const;
  /// Appends the ids of the best split of one word.
  void encode_word(std::string_view word, Lattice& lattice, std::vector<TokenId>& ids) const;

  const Vocabulary* vocabulary_;
  Charsmap rules_;             // normalisation
  Trie trie_;                  // normal and user-defined tokens
  std::vector<float> scores_;  // of each token
  float unknown_score_ = 0;    // of a character that no token covers
  bool merge_spaces_ = false;
  bool by_word_ = true;
};

}  // namespace forge::text

#pragma once
// SentencePiece's unigram language model (arXiv 1804.10959; T5, XLM-RoBERTa): of all ways to cut a word into tokens
// the one with the highest sum of scores. Sums are rounded to 32 bits from token to token along the whole text, and
// ways of equal sums are chosen between by that rounding, as SentencePiece does.

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "loader/gguf/gguf.h"
#include "text/tokenizer/blank.h"
#include "text/tokenizer/charsmap.h"
#include "text/tokenizer/special_split.h"
#include "text/tokenizer/trie.h"
#include "text/tokenizer/vocabulary.h"

namespace forge::text {

class Unigram {
 public:
  /// Reads the scores and the normalisation rules. `vocabulary` and `gguf` outlive this. Errors: kTokenizer when the
  /// scores do not fit the tokens, a score is no number, or the rules are damaged.
  Unigram(Vocabulary& vocabulary, const loader::Gguf& gguf);

  /// A character that no token covers becomes its byte tokens where the vocabulary has all 256, else the unknown
  /// token, one for each run of them. A byte that is no UTF-8 is read as U+FFFD.
  void encode(std::span<const Fragment> fragments, std::vector<TokenId>& ids) const;
  [[nodiscard]] std::string describe() const;
  static std::string decode(std::string_view token) { return spaces_of_blanks(token); }

 private:
  struct Lattice;
  /// What the text is before it is cut: rules applied, spaces as U+2581, extra ones gone where the model was trained
  /// so.
  [[nodiscard]] std::string normalized(std::string_view text) const;
  void encode_word(std::string_view word, Lattice& lattice, std::vector<TokenId>& ids) const;

  const Vocabulary* vocabulary_;
  Charsmap rules_;
  Trie trie_;
  std::vector<float> scores_;
  float unknown_score_ = 0;
  bool merge_spaces_ = false;
  bool words_are_separate_ = true;
};

}  // namespace forge::text

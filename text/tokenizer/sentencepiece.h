#pragma once
// SentencePiece BPE on scores (Llama 1 and 2, Mistral, Phi-3, Gemma): spaces become U+2581, the adjacent pair whose
// joined text is the token of the highest score is joined first, and characters without a token become byte tokens.

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "loader/gguf/gguf.h"
#include "text/tokenizer/blank.h"
#include "text/tokenizer/special_split.h"
#include "text/tokenizer/vocabulary.h"

namespace forge::text {

class SentencePiece {
 public:
  /// Reads tokenizer.ggml.scores. `vocabulary` and `gguf` outlive this. Errors: kTokenizer when the scores do not fit
  /// the tokens.
  SentencePiece(Vocabulary& vocabulary, const loader::Gguf& gguf);

  void encode(std::span<const Fragment> fragments, std::vector<TokenId>& ids) const;
  [[nodiscard]] static std::string describe() { return "SentencePiece BPE"; }
  static std::string decode(std::string_view token) { return spaces_of_blanks(token); }

 private:
  const Vocabulary* vocabulary_;
  std::vector<std::uint32_t> ranks_;  // of each token, from its score: lower is joined first
  bool words_are_separate_ = true;
};

}  // namespace forge::text

#pragma once
// SentencePiece BPE with scores (Llama 1 and 2, Mistral, Phi-3, Gemma). Spaces become U+2581. The adjacent pair whose
// merged text is the token with the highest score is merged first. Characters without a token become byte tokens
// ("<0xE2>").

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "loader/gguf/gguf.h"
#include "text/tokenizer/metaspace.h"
#include "text/tokenizer/special_split.h"
#include "text/tokenizer/vocabulary.h"

namespace forge::text {

/// The SentencePiece BPE scheme of one model. Immutable, so threads may share it.
class SentencePiece {
 public:
  /// Reads tokenizer.ggml.scores. Keeps references to `vocabulary` and `gguf`, which must outlive it. Errors:
  /// kTokenizer if the scores do not fit the tokens.
  SentencePiece(Vocabulary& vocabulary, const loader::Gguf& gguf);

  /// Appends the ids of `fragments` to `ids`. Any bytes are accepted; those that are not UTF-8 become byte tokens.
  void encode(std::span<const Fragment> fragments, std::vector<TokenId>& ids) const;
  [[nodiscard]] static std::string describe() { return "SentencePiece BPE"; }
  static std::string decode(std::string_view token) { return unescape_spaces(token); }

 private:
  const Vocabulary* vocabulary_;
  std::vector<std::uint32_t> ranks_;  // rank of each token, made of its score: lower is merged first
  bool by_word_ = true;               // words can be encoded one by one (no_token_spans_words)
};

}  // namespace forge::text

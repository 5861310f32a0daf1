#pragma once
// tokenizer.ggml.scores: how likely each token is, for the tokenizers of SentencePiece.

#include <string_view>
#include <vector>

#include "loader/gguf/gguf.h"
#include "text/tokenizer/vocabulary.h"

namespace forge::text {

inline constexpr std::string_view kScoresKey = "tokenizer.ggml.scores";

/// One a token; empty when the file has none. Error: kTokenizer when they do not fit the tokens.
[[nodiscard]] std::vector<float> read_scores(const Vocabulary& vocabulary, const loader::Gguf& gguf);

}  // namespace forge::text

#pragma once
// tokenizer.ggml.scores: how likely each token is, for the tokenizers of SentencePiece.

#include <string_view>
#include <vector>

#include "loader/gguf.h"
#include "loader/tok/vocabulary.h"

namespace forge::loader::tok {

inline constexpr std::string_view kScoresKey = "tokenizer.ggml.scores";

/// One a token; empty when the file has none. Error: kTokenizer when they do not fit the tokens.
[[nodiscard]] std::vector<float> read_scores(const Vocabulary& vocabulary, const Gguf& gguf);

}  // namespace forge::loader::tok

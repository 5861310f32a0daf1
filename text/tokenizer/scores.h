#pragma once
// Reads tokenizer.ggml.scores, which SentencePiece's tokenizers need: BPE merges the pair with the highest score first,
// and Unigram adds scores up as log-probabilities.

#include <string_view>
#include <vector>

#include "loader/gguf/gguf.h"
#include "text/tokenizer/vocabulary.h"

namespace forge::text {

inline constexpr std::string_view kScoresKey = "tokenizer.ggml.scores";

/// One score for each token; empty if the file has none. Some converters write integers, which are accepted. Error:
/// kTokenizer if there are fewer scores than tokens or their type is wrong.
[[nodiscard]] std::vector<float> read_scores(const Vocabulary& vocabulary, const loader::Gguf& gguf);

}  // namespace forge::text

#pragma once
// Pre-tokenizers: they cut text into words, and byte-level BPE then merges only inside each word. A GGUF file names its
// pre-tokenizer in tokenizer.ggml.pre. The names and the regular expressions behind them are those of llama.cpp and of
// Hugging Face's tokenizer.json files. Each expression is a hand-written scanner here.
//
// A pre-tokenizer is a list of stages. Stage 1 cuts the text; each further stage cuts the pieces of the one before it.
// Example, smollm (every digit alone, then GPT-2's expression):
//
//    "in 1984 it's"  --digits-->  "in " "1" "9" "8" "4" " it's"  --gpt2-->  "in" " " "1" "9" "8" "4" " it" "'s"

#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <span>
#include <string_view>
#include <vector>

namespace forge::text {

/// One stage. Returns the end of the piece that begins at `at`, where at < text.size(); the result is always greater
/// than `at`. `text` is well-formed UTF-8 and is treated as the whole input: the stage does not look beyond it.
using Splitter = std::size_t (*)(std::string_view text, std::size_t at);

/// The alphabet in which a vocabulary spells its tokens.
enum class Spelling : std::uint8_t {
  kByteLevel,  ///< each byte as a character of GPT-2's printable alphabet (byte_level.h)
  kMetaspace,  ///< UTF-8 with U+2581 for a space (metaspace.h); other bytes have tokens such as "<0x0A>"
};

/// One row of the table in split.cc.
struct PreTokenizer {
  std::string_view name;
  std::span<const Splitter> stages;  ///< in order; each cuts the pieces of the one before it
  bool ignore_merges = false;        ///< a word that is in the vocabulary becomes that token without merging
  bool add_bos = false;              ///< default for files without tokenizer.ggml.add_bos_token
  Spelling spelling = Spelling::kByteLevel;
};

/// The pre-tokenizer that tokenizer.ggml.pre calls `name`; nullptr if forge does not have it.
const PreTokenizer* find_pre_tokenizer(std::string_view name);
/// The pre-tokenizer for files that name none or an unknown one.
const PreTokenizer& default_pre_tokenizer();

/// Runs all `stages` over `text` and calls `word(piece)` for every final piece, in order. The pieces together are
/// `text`.
template <class Word>
void split_words(std::span<const Splitter> stages, std::string_view text, Word&& word) {
  if (stages.empty()) {
    if (!text.empty()) word(text);
    return;
  }
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t end = stages.front()(text, at);
    const auto piece = text.substr(at, end - at);
    if (stages.size() == 1) {
      word(piece);
    } else {
      split_words(stages.subspan(1), piece, word);
    }
    at = end;
  }
}

}  // namespace forge::text

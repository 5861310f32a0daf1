#pragma once
// Pre-tokenizers: how text is cut into words before byte-level BPE merges inside each word. A GGUF file names one in
// tokenizer.ggml.pre; the names and the regular expressions they stand for are those of Hugging Face's tokenizer.json
// files and of llama.cpp. Each expression is a hand-written scanner here.

#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <span>
#include <string_view>
#include <vector>

namespace forge::text {

/// The end of the piece that begins at `at` (at < text.size()); always beyond `at`. Text is well-formed UTF-8.
using Splitter = std::size_t (*)(std::string_view text, std::size_t at);

/// How a vocabulary spells text.
enum class Spelling : std::uint8_t {
  kBytes,   ///< bytes as characters of GPT-2's printable alphabet
  kBlanks,  ///< UTF-8, a space as U+2581; bytes of what is no token as "<0x0A>"
};

struct PreTokenizer {
  std::string_view name;
  std::span<const Splitter> stages;  ///< each cuts the pieces of the one before
  bool ignore_merges = false;        ///< a word that is a token as a whole is taken as that token, whatever the merges
  bool add_bos = false;              ///< when the file does not say
  Spelling spelling = Spelling::kBytes;
};

/// nullptr for a name that forge does not know.
const PreTokenizer* find_pre_tokenizer(std::string_view name);
/// What files without a name, or with an unknown one, are cut with.
const PreTokenizer& default_pre_tokenizer();

/// Calls `word(piece)` for every piece of `text`, in order; together they are the text.
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

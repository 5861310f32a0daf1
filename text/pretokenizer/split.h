#pragma once
// Pre-tokenizers: they cut text into words, and byte-level BPE then merges only inside each word. A GGUF file names its
// pre-tokenizer in tokenizer.ggml.pre; the names are those of llama.cpp. Each stands for the regular expressions of the
// models' published tokenizer.json files.
//
// The expressions of a pre-tokenizer are stages. The first cuts the text; each further one cuts the pieces of the one
// before it. A stage makes every match a piece, and what lies between two matches another, like Hugging Face's Split
// with behavior "isolated". Example, smollm (every digit alone, then GPT-2's expression):
//
//    "in 1984 it's"  --digits-->  "in " "1" "9" "8" "4" " it's"  --gpt2-->  "in" " " "1" "9" "8" "4" " it" "'s"

#include <algorithm>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "text/pretokenizer/regex.h"

namespace forge::text {

/// The alphabet in which a vocabulary spells its tokens.
enum class Spelling : std::uint8_t {
  kByteLevel,  ///< each byte as a character of GPT-2's printable alphabet (byte_level.h)
  kMetaspace,  ///< UTF-8 with U+2581 for a space (metaspace.h); other bytes have tokens such as "<0x0A>"
  kUtf8,       ///< UTF-8; other characters may have tokens such as "<0x0A>" for their bytes, else they are left out
};

/// One row of the table in split.cc.
struct PreTokenizer {
  std::string_view name;
  std::span<const std::string_view> expressions;  ///< one a stage, in order
  bool ignore_merges = false;                     ///< a word that is in the vocabulary becomes that token unmerged
  bool add_bos = false;                           ///< default for files without tokenizer.ggml.add_bos_token
  Spelling spelling = Spelling::kByteLevel;
};

/// All names, in no order that matters but for the first, which is the default.
std::span<const PreTokenizer> pre_tokenizers();
/// The pre-tokenizer that tokenizer.ggml.pre calls `name`; nullptr if forge does not have it.
const PreTokenizer* find_pre_tokenizer(std::string_view name);
/// The pre-tokenizer for files that name none or an unknown one.
const PreTokenizer& default_pre_tokenizer();

/// The compiled expressions of one pre-tokenizer. Immutable, so threads may share it.
class WordSplitter {
 public:
  explicit WordSplitter(const PreTokenizer& pre, Regex::Engine engine = Regex::Engine::kFastest);

  /// Calls `word(piece)` for every final piece of `text`, in order. The pieces are not empty, and together they are
  /// `text`, which repair_utf8() must have made well-formed. Linear in the text for any text.
  template <class Word>
  void split(std::string_view text, Word&& word) const {
    std::string storage;
    const std::string_view subject = without_surrogates(text, storage);
    cut(stages_, subject, [&](std::string_view piece) {
      word(text.substr(static_cast<std::size_t>(piece.data() - subject.data()), piece.size()));
    });
  }

 private:
  /// `text` itself, or a copy in `storage` with every surrogate replaced by U+FFFF. PCRE2 rejects surrogates; a
  /// noncharacter has as many bytes and, like them, none of the categories that the expressions name.
  static std::string_view without_surrogates(std::string_view text, std::string& storage);

  template <class Piece>
  static void cut(std::span<const Regex> stages, std::string_view text, const Piece& piece) {
    if (text.empty()) return;
    if (stages.empty()) return piece(text);
    const auto pass_on = [&](std::size_t begin, std::size_t end) {
      const auto part = text.substr(begin, end - begin);
      if (stages.size() == 1) return piece(part);  // the usual case without a call
      cut(stages.subspan(1), part, piece);
    };
    for (std::size_t at = 0; at < text.size();) {
      const Regex::Match match = stages.front().find(text, at);
      const std::size_t begin = std::min(match.begin, text.size());
      if (begin > at) pass_on(at, begin);
      if (begin == text.size()) return;
      pass_on(begin, match.end);
      at = match.end;
    }
  }

  std::vector<Regex> stages_;
};

}  // namespace forge::text

#pragma once
// The spelling of spaces in SentencePiece vocabularies: U+2581 ("▁") stands for a space and marks the start of a word.
// Hugging Face calls this the metaspace.

#include <string>
#include <string_view>

#include "text/tokenizer/vocabulary.h"

namespace forge::text {

// U+2581 in UTF-8.
inline constexpr std::string_view kMetaspace = "\xE2\x96\x81";

/// The end of the word that begins at `at`: the next U+2581 that does not follow another one. "▁▁a▁b" has the words
/// "▁▁a" and "▁b".
inline std::size_t word_end(std::string_view text, std::size_t at) {
  while (text.substr(at).starts_with(kMetaspace)) at += kMetaspace.size();
  const std::size_t end = text.find(kMetaspace, at);
  return end == text.npos ? text.size() : end;
}

/// True if no token holds a U+2581 after another character. Then no token crosses the start of a word, so words can be
/// encoded one by one (and cached) with the same result. True for every vocabulary trained with split_by_whitespace.
[[nodiscard]] bool no_token_spans_words(const Vocabulary& vocabulary);

/// `text` with every space replaced by U+2581.
[[nodiscard]] std::string escape_spaces(std::string_view text);

/// The reverse: the text of `token` with every U+2581 replaced by a space.
[[nodiscard]] std::string unescape_spaces(std::string_view token);

}  // namespace forge::text

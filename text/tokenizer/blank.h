#pragma once
// SentencePiece's space: U+2581 stands for it in tokens, and words begin with it.

#include <string>
#include <string_view>

#include "text/tokenizer/vocabulary.h"

namespace forge::text {

inline constexpr std::string_view kBlank = "\xE2\x96\x81";

/// The end of the word that begins at `at`: the next U+2581 that does not follow another one.
inline std::size_t word_end(std::string_view text, std::size_t at) {
  while (text.substr(at).starts_with(kBlank)) at += kBlank.size();
  const std::size_t end = text.find(kBlank, at);
  return end == text.npos ? text.size() : end;
}

/// Whether no token holds a U+2581 after another character, so that none crosses the start of a word and words can be
/// encoded one by one; true for every vocabulary trained with split-by-whitespace.
[[nodiscard]] bool words_are_separate(const Vocabulary& vocabulary);

/// Text with U+2581 for its spaces.
[[nodiscard]] std::string blanks_of_spaces(std::string_view text);

/// A token's text with its spaces as spaces.
[[nodiscard]] std::string spaces_of_blanks(std::string_view token);

}  // namespace forge::text

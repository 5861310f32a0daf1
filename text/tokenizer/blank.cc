#include "text/tokenizer/blank.h"

namespace forge::text {

bool words_are_separate(const Vocabulary& vocabulary) {
  for (TokenId id = 0; id < vocabulary.size(); ++id) {
    const auto text = vocabulary.text(id);
    if (!text.empty() && word_end(text, 0) != text.size()) return false;
  }
  return true;
}

std::string blanks_of_spaces(std::string_view text) {
  std::string out;
  out.reserve(text.size() * 2);
  for (const char c : text) c == ' ' ? out += kBlank : out += c;
  return out;
}

std::string spaces_of_blanks(std::string_view token) {
  std::string out;
  for (std::size_t at = 0; at < token.size();) {
    const bool blank = token.substr(at).starts_with(kBlank);
    out += blank ? ' ' : token[at];
    at += blank ? kBlank.size() : 1;
  }
  return out;
}

}  // namespace forge::text

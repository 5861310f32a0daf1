#include "text/tokenizer/metaspace.h"

namespace forge::text {

bool no_token_spans_words(const Vocabulary& vocabulary) {
  for (TokenId id = 0; id < vocabulary.size(); ++id) {
    const auto text = vocabulary.text(id);
    if (!text.empty() && word_end(text, 0) != text.size()) return false;
  }
  return true;
}

std::string escape_spaces(std::string_view text) {
  std::string out;
  out.reserve(text.size() * 2);
  for (const char c : text) c == ' ' ? out += kMetaspace : out += c;
  return out;
}

std::string unescape_spaces(std::string_view token) {
  std::string out;
  for (std::size_t at = 0; at < token.size();) {
    const bool meta = token.substr(at).starts_with(kMetaspace);
    out += meta ? ' ' : token[at];
    at += meta ? kMetaspace.size() : 1;
  }
  return out;
}

}  // namespace forge::text

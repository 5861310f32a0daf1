#include "text/tokenizer/rwkv.h"

#include <fmt/core.h>

#include <algorithm>
#include <charconv>
#include <optional>
#include <string>

#include "support/error.h"

namespace forge::text {
namespace {

/// Appends what an escaped token stands for; false if a \x is not followed by two hexadecimal digits, or nothing
/// follows a backslash. A backslash before another character than t, n, r and x stands for that character, as in
/// llama.cpp (repr writes \\ and \').
bool unescape(std::string_view token, std::string& out) {
  while (!token.empty()) {
    const std::size_t plain = std::min(token.find('\\'), token.size());
    out += token.substr(0, plain);
    token.remove_prefix(plain);
    if (token.empty()) break;
    if (token.size() < 2) return false;
    const char kind = token[1];
    token.remove_prefix(2);
    if (kind != 'x') {
      out += kind == 't' ? '\t' : kind == 'n' ? '\n' : kind == 'r' ? '\r' : kind;
      continue;
    }
    if (token.size() < 2) return false;
    std::uint8_t byte = 0;
    const std::string digits(token.substr(0, 2));
    const auto [end, error] = std::from_chars(digits.c_str(), digits.c_str() + 2, byte, 16);
    if (error != std::errc() || end != digits.c_str() + 2) return false;
    out += static_cast<char>(byte);
    token.remove_prefix(2);
  }
  return true;
}

}  // namespace

Rwkv::Rwkv(Vocabulary& vocabulary, const loader::Gguf& /*gguf*/) : vocabulary_(&vocabulary) {
  // All unescaped texts one after another, needed until the tree is built. Text i is [begins[i], begins[i + 1]).
  std::string texts;
  std::vector<std::size_t> begins;
  std::vector<TokenId> ids;
  std::size_t too_long = 0;
  for (TokenId id = 0; id < vocabulary.size(); ++id) {
    const auto spelled = vocabulary.text(id);
    begins.push_back(texts.size());
    if ((vocabulary.kind(id) & (kNormalToken | kUserToken)) == 0 || spelled.empty()) continue;
    if (!unescape(spelled, texts))
      throw Error(ErrorCode::kTokenizer, fmt::format("token {} is '{}'", id, printable(spelled)),
                  "it is not escaped as in Python: \\x must be followed by two hexadecimal digits",
                  "convert the model again");
    if (texts.size() - begins.back() <= kSearchedBytesMax)
      ids.push_back(id);
    else
      ++too_long;
  }
  warn_of_long_tokens(vocabulary, too_long);
  begins.push_back(texts.size());
  const auto text_of = [&](TokenId id) {
    const auto at = static_cast<std::size_t>(id);
    return std::string_view(texts).substr(begins[at], begins[at + 1] - begins[at]);
  };
  trie_ = Trie(text_of, std::move(ids));
}

std::string Rwkv::decode(std::string_view token) {
  std::string bytes;
  unescape(token, bytes);
  return bytes;
}

void Rwkv::encode(std::span<const Fragment> fragments, std::vector<TokenId>& ids) const {
  for (const auto& [text, special] : fragments) {
    if (special != kNoToken) ids.push_back(special);
    for (std::size_t at = 0; at < text.size();) {
      TokenId longest = kNoToken;
      std::size_t bytes = 1;
      std::uint32_t node = trie_.child(Trie::kRoot, text[at]);
      for (std::size_t end = at + 1; node != Trie::kNoNode; ++end) {
        if (trie_.token(node) != kNoToken) {
          longest = trie_.token(node);
          bytes = end - at;
        }
        if (end == text.size()) break;
        node = trie_.child(node, text[end]);
      }
      if (longest == kNoToken) longest = vocabulary_->unknown();
      if (longest != kNoToken) ids.push_back(longest);
      at += bytes;
    }
  }
}

}  // namespace forge::text

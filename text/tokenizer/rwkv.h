#pragma once
// RWKV's "World" tokenizer (source: BlinkDL's rwkv_tokenizer.py of the PyPI package rwkv). A text is cut from the left
// into the longest tokens, compared as bytes; there are no words, scores or merges. The vocabulary has a token for
// each byte, so nothing is unknown.
//
// Tokens are arbitrary bytes, which strings of GGUF files should not be, so the file spells them as Python's
// repr(bytes) does, without the quotes:
//
//    bytes E4 BD 0A   ->   \xe4\xbd\n        a backslash   ->   \\ (two)

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "loader/gguf/gguf.h"
#include "text/tokenizer/special_split.h"
#include "text/tokenizer/trie.h"
#include "text/tokenizer/vocabulary.h"

namespace forge::text {

/// The scheme of one RWKV model. Immutable, so threads may share it.
class Rwkv {
 public:
  /// Unescapes the tokens. `vocabulary` must outlive this. Error: kTokenizer if one has a damaged \xNN.
  Rwkv(Vocabulary& vocabulary, const loader::Gguf& gguf);

  /// Appends the ids of `fragments` to `ids`. A byte that no token begins with becomes the unknown token, if there is
  /// one.
  void encode(std::span<const Fragment> fragments, std::vector<TokenId>& ids) const;
  [[nodiscard]] std::string describe() const { return "RWKV, longest token first"; }
  /// The bytes of a token as the file spells it.
  static std::string decode(std::string_view token);

 private:
  const Vocabulary* vocabulary_;
  Trie trie_;  // normal and user-defined tokens, unescaped
};

}  // namespace forge::text

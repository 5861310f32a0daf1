#pragma once
// WordPiece (arXiv 1609.08144) as BERT uses it (arXiv 1810.04805). Text is cleaned and split at spaces and punctuation.
// Each word is covered from the left by the longest token that fits, again and again; a word that cannot be covered
// becomes the unknown token. GGUF spells tokens that begin a word with U+2581 in front, and continuations without
// BERT's "##":
//
//    "unaffable"  ->  "▁un" "aff" "able"

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "loader/gguf/gguf.h"
#include "text/tokenizer/metaspace.h"
#include "text/tokenizer/special_split.h"
#include "text/tokenizer/trie.h"
#include "text/tokenizer/vocabulary.h"

namespace forge::text {

/// The WordPiece scheme of one model. Immutable, so threads may share it.
class WordPiece {
 public:
  /// Reads the normaliser's options. `vocabulary` and `gguf` must outlive this.
  WordPiece(Vocabulary& vocabulary, const loader::Gguf& gguf);

  /// Appends the ids of `fragments` to `ids`. Bytes that are not UTF-8 are dropped, as are U+FFFD and control
  /// characters.
  void encode(std::span<const Fragment> fragments, std::vector<TokenId>& ids) const;
  [[nodiscard]] std::string describe() const;
  static std::string decode(std::string_view token) { return unescape_spaces(token); }

 private:
  /// The code points of `text` after normalisation: accents removed and letters lowered if the file says so.
  [[nodiscard]] std::vector<std::uint32_t> cleaned(std::string_view text) const;
  /// Appends the tokens of one word, or the unknown token.
  void encode_word(std::string_view word, std::vector<TokenId>& ids) const;

  const Vocabulary* vocabulary_;
  Trie trie_;                                 // all tokens but control tokens
  std::uint32_t word_start_ = Trie::kNoNode;  // the node of U+2581: tokens that begin a word
  bool lowercase_ = true;
  bool strip_accents_ = true;
};

}  // namespace forge::text

#pragma once
// WordPiece (arXiv 1609.08144) as BERT has it (arXiv 1810.04805): text is cleaned, cut at spaces and punctuation, and
// each word is covered by the longest token that fits, again and again; a word that cannot be covered is unknown. GGUF
// spells the tokens that begin a word with U+2581 in front, and those that go on bare.

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "loader/gguf/gguf.h"
#include "text/tokenizer/blank.h"
#include "text/tokenizer/special_split.h"
#include "text/tokenizer/trie.h"
#include "text/tokenizer/vocabulary.h"

namespace forge::text {

class WordPiece {
 public:
  /// `vocabulary` and `gguf` outlive this.
  WordPiece(Vocabulary& vocabulary, const loader::Gguf& gguf);

  /// Bytes that are no UTF-8 are left out, as BERT leaves out U+FFFD and control characters.
  void encode(std::span<const Fragment> fragments, std::vector<TokenId>& ids) const;
  [[nodiscard]] std::string describe() const;
  static std::string decode(std::string_view token) { return spaces_of_blanks(token); }

 private:
  /// The characters of `text` as words are made of: accents taken off and lower case where the file says so.
  [[nodiscard]] std::vector<std::uint32_t> cleaned(std::string_view text) const;
  void encode_word(std::string_view word, std::vector<TokenId>& ids) const;

  const Vocabulary* vocabulary_;
  Trie trie_;
  std::uint32_t word_start_ = Trie::kNowhere;  // the node behind U+2581
  bool lowercase_ = true;
  bool strip_accents_ = true;
};

}  // namespace forge::text

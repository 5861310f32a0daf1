#pragma once
// Byte-level BPE with ranked merges: GPT-2's algorithm, also used by Llama 3, Qwen, SmolLM and most later models. The
// pre-tokenizer cuts the text into words, and each word is merged from single characters by the ranks of
// tokenizer.ggml.merges (lowest first). Also handles Gemma 4, which has merges but spells tokens in UTF-8 with U+2581
// for spaces and "<0x0A>" for single bytes, and the vocabularies of tokenizer.ggml.model "whitespace" (Jina's Chinese
// embeddings), which spell them in UTF-8 and drop white space.

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "loader/gguf/gguf.h"
#include "text/pretokenizer/split.h"
#include "text/tokenizer/special_split.h"
#include "text/tokenizer/string_table.h"
#include "text/tokenizer/vocabulary.h"

namespace forge::text {

/// The byte-level BPE scheme of one model. Immutable, so threads may share it.
class ByteLevelBpe {
 public:
  /// Reads tokenizer.ggml.merges and tokenizer.ggml.pre. Keeps references to `vocabulary` and `gguf`, which must
  /// outlive it, and may add warnings and the pre-tokenizer's BOS default to `vocabulary`. Errors: kTokenizer if the
  /// merges are missing or malformed, if one names an unknown token, or if a printable ASCII byte has no token.
  ByteLevelBpe(Vocabulary& vocabulary, const loader::Gguf& gguf);

  /// Appends the ids of `fragments` (see special_split.h) to `ids`. Ill-formed UTF-8 is repaired first, as
  /// repair_utf8() says. A byte without a token is left out.
  void encode(std::span<const Fragment> fragments, std::vector<TokenId>& ids) const;
  /// For people: "byte-level BPE, words as 'llama-bpe'".
  [[nodiscard]] std::string describe() const;
  /// The bytes that the vocabulary spelling `token` stands for.
  [[nodiscard]] std::string decode(std::string_view token) const;

 private:
  void read_merges(const loader::Gguf& gguf);
  void check_bytes() const;
  /// The rank of merging `pair`, whose left part is its first `left_bytes` bytes; HashSlots::kNone if there is no such
  /// merge. `hash` is hash_of_pair() of the hashes of both parts.
  [[nodiscard]] std::uint32_t rank(std::string_view pair, std::size_t left_bytes, std::uint64_t hash) const;

  const Vocabulary* vocabulary_;
  const PreTokenizer* pre_ = nullptr;
  std::optional<WordSplitter> words_;  // of pre_; always there after construction
  bool drop_spaces_ = false, lowercase_ = false;
  StringList merges_;             // "left right", the position is the rank
  HashSlots slots_;               // hash_of_pair(left, right) -> rank
  std::size_t longest_pair_ = 0;  // bytes of both parts together; longer pairs need no look-up
};

}  // namespace forge::text

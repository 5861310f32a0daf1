#pragma once
// Byte-level BPE with ranked merges: GPT-2's scheme, and that of Llama 3, Qwen, SmolLM and most others since.

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

class ByteLevelBpe {
 public:
  /// Reads tokenizer.ggml.merges and .pre; may add warnings and the pre-tokenizer's BOS rule to `vocabulary`, which
  /// outlives this. Errors: kTokenizer when the merges are missing, malformed or of unknown tokens, or when a printable
  /// byte has no token.
  ByteLevelBpe(Vocabulary& vocabulary, const loader::Gguf& gguf);

  void encode(std::span<const Fragment> fragments, std::vector<TokenId>& ids) const;
  [[nodiscard]] std::string describe() const;
  [[nodiscard]] std::string decode(std::string_view token) const;

 private:
  void read_merges(const loader::Gguf& gguf);
  void check_bytes() const;
  /// The rank of joining two adjacent stretches of `pair`, HashSlots::kNone when they do not join.
  [[nodiscard]] std::uint32_t rank(std::string_view pair, std::size_t left_bytes, std::uint64_t hash) const;

  const Vocabulary* vocabulary_;
  const PreTokenizer* pre_ = nullptr;
  StringList merges_;
  HashSlots slots_;
  std::size_t longest_pair_ = 0;  // bytes of both sides together
};

}  // namespace forge::text

#pragma once
// A vocabulary for models that have none: every byte, and some longer tokens that SentencePiece BPE merges to.

#include <fmt/format.h>

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "loader/gguf/gguf.h"
#include "tests/support/gguf_writer.h"
#include "text/tokenizer/tokenizer.h"

namespace forge::tests {

/// Ids: 0 <unk>, 1 <s>, 2 </s>, 3 <think>, 4 </think>, then the bytes, then the merges.
struct SmallVocabulary {
  static constexpr std::int32_t kEnd = 2, kThink = 3, kThinkEnd = 4;
  static std::int32_t byte(char value) { return 5 + static_cast<unsigned char>(value); }
  /// The token that is spelled so; -1 if there is none.
  [[nodiscard]] std::int32_t token(const std::string& text) const {
    for (std::int32_t id = 0; id < tokenizer->vocab_size(); ++id)
      if (tokenizer->decode_piece(id) == text && (text.size() > 1 || id >= 5)) return id;
    return -1;
  }
  [[nodiscard]] std::string text(std::span<const std::int32_t> ids) const {
    std::string text;
    for (const auto id : ids) text += tokenizer->decode_piece(id);
    return text;
  }

  static std::string image() {
    GgufWriter w("llama");
    std::vector<std::string> tokens{"<unk>", "<s>", "</s>", "<think>", "</think>"};
    std::vector<std::int32_t> types{2, 3, 3, 3, 3};
    for (unsigned byte = 0; byte < 256; ++byte) {
      tokens.push_back(fmt::format("<0x{:02X}>", byte));
      types.push_back(6);
    }
    for (const auto* text : {"{\"", "na", "nam", "name", "\":", "\u2581\"", "ag", "age", "\",", "\"}", "ab", "abc"}) {
      tokens.emplace_back(text);
      types.push_back(1);
    }
    std::vector<float> scores(tokens.size());
    for (std::size_t i = 0; i < scores.size(); ++i) scores[i] = i > 260 ? static_cast<float>(i) : 0.0F;
    w.add("tokenizer.ggml.model", "llama").add("tokenizer.ggml.tokens", tokens);
    w.add("tokenizer.ggml.scores", scores).add("tokenizer.ggml.token_type", types);
    return w.add("tokenizer.ggml.eos_token_id", std::uint32_t{2}).bytes();
  }
  std::string file = image();
  loader::Gguf gguf = loader::Gguf::from(std::as_bytes(std::span(file)));
  std::unique_ptr<text::Tokenizer> tokenizer = text::Tokenizer::open(gguf);
};

}  // namespace forge::tests

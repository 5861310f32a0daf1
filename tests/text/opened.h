#pragma once
// Opens tokenizers on small vocabularies that a test defines.

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "loader/gguf/gguf.h"
#include "tests/support/error_of.h"
#include "tests/support/gguf_writer.h"
#include "text/tokenizer/tokenizer.h"

namespace forge::tests {

/// Values of tokenizer.ggml.token_type (source: ggml's GGUF specification).
inline constexpr int kNormal = 1, kUnknown = 2, kControl = 3, kUser = 4, kUnused = 5, kByte = 6;

/// A tokenizer on a GGUF file in memory.
struct Opened {
  explicit Opened(const GgufWriter& writer)
      : bytes(writer.bytes()),
        gguf(loader::Gguf::from(std::as_bytes(std::span(bytes)))),
        tokenizer(text::Tokenizer::open(gguf)) {}
  [[nodiscard]] std::vector<std::int32_t> encode(std::string_view text, text::EncodeOptions options = {}) const {
    return tokenizer->encode(text, options);
  }
  const text::Tokenizer* operator->() const { return tokenizer.get(); }

  std::string bytes;
  loader::Gguf gguf;
  std::unique_ptr<text::Tokenizer> tokenizer;
};

/// The error line with which the file is refused.
inline std::string refusal_of(const GgufWriter& writer) {
  return error_of([&] { const Opened opened(writer); }, ErrorCode::kTokenizer);
}

/// A token as stored in the file.
struct Piece {
  std::string text;
  float score = 0;
  int type = kNormal;
};

/// A vocabulary with scores; `model` is the value of tokenizer.ggml.model.
inline GgufWriter scored(std::string_view model, const std::vector<Piece>& pieces) {
  std::vector<std::string> tokens;
  std::vector<float> scores;
  std::vector<std::int32_t> types;
  for (const auto& piece : pieces) {
    tokens.push_back(piece.text);
    scores.push_back(piece.score);
    types.push_back(piece.type);
  }
  GgufWriter w("llama");
  w.add("tokenizer.ggml.model", model).add("tokenizer.ggml.tokens", tokens);
  w.add("tokenizer.ggml.scores", scores).add("tokenizer.ggml.token_type", types);
  return w;
}

}  // namespace forge::tests

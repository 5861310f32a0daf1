#pragma once
// The answer of /v1/embeddings: each input text as a vector of length 1, made from the hidden states after the final
// norm. Source of the JSON form: OpenAI's API reference.

#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "serve/row_batch.h"

namespace forge::serve {

struct EmbeddingsSpec {
  RowInputs inputs;
  bool base64 = false;         ///< send base64 of little-endian f32 instead of lists of numbers
  std::size_t dimensions = 0;  ///< keep the first ones and normalise the vector again; 0: all
};

/// Creates the answer; may be called from any thread. The model must have a pooling and outlive the answer.
[[nodiscard]] std::unique_ptr<Answer> embeddings_answer(ServedModel& model, EmbeddingsSpec spec, Wake wake);

/// Base64 with padding (RFC 4648, section 4).
[[nodiscard]] std::string base64(std::span<const unsigned char> bytes);

}  // namespace forge::serve

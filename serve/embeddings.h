#pragma once
// The answer of /v1/embeddings: each input text as a vector of length 1, made from the hidden states after the final
// norm. Source of the JSON form: OpenAI's API reference.

#include <chrono>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "serve/http/http.h"
#include "serve/protocol/request_json.h"
#include "serve/served_model.h"

namespace forge::serve {

struct EmbeddingsSpec {
  std::vector<std::vector<std::int32_t>> inputs;
  bool base64 = false;         ///< send base64 of little-endian f32 instead of lists of numbers
  std::size_t dimensions = 0;  ///< keep the first ones and normalise the vector again; 0: all
  std::chrono::milliseconds timeout{};
};

/// Creates the answer; may be called from any thread. Only a few inputs at a time are submitted to the engine, so that
/// one request with many inputs does not fill its queue. The model must have a pooling and outlive the answer.
[[nodiscard]] std::unique_ptr<Answer> embeddings_answer(ServedModel& model, EmbeddingsSpec spec, Wake wake);

/// Base64 with padding (RFC 4648, section 4).
[[nodiscard]] std::string base64(std::span<const unsigned char> bytes);

}  // namespace forge::serve

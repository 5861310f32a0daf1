#pragma once
// Embeddings: texts as vectors of length 1, from the final norm's rows. Source of the form: OpenAI's API reference.

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
  bool base64 = false;         ///< of little-endian f32s, instead of lists of numbers
  std::size_t dimensions = 0;  ///< a vector's first ones, made as long as 1 again; 0: all
  std::chrono::milliseconds timeout{};
};

/// From any thread. Some inputs at a time are with the engine, so that many fill no queue. The model, which embeds,
/// outlives the answer.
[[nodiscard]] std::unique_ptr<Answer> embeddings_answer(ServedModel& model, EmbeddingsSpec spec, Wake wake);

/// RFC 4648, section 4.
[[nodiscard]] std::string base64(std::span<const unsigned char> bytes);

}  // namespace forge::serve

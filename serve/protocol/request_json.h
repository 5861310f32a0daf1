#pragma once
// Request bodies as plain values, checked: hostile JSON goes in, and what comes out can be run or is refused with the
// member that is wrong. Members that nobody knows are refused by name; those that only other servers have a use for
// ("user", "store", ...) are read and ignored. Source of the members: OpenAI's API reference (completions, chat) and,
// for what OpenAI lacks, vLLM's extra parameters.

#include <chrono>
#include <cstdint>
#include <expected>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "runtime/engine/engine_core.h"
#include "serve/protocol/api_error.h"
#include "session/sampling_defaults.h"

namespace forge::serve {

/// What a request says about generating, whatever its dialect.
struct GenerationParams {
  runtime::SamplerParams sampling;
  /// Members that the request does not have, so that the dialect's default stands in `sampling`.
  struct Unset {
    bool temperature = false, top_k = false, top_p = false, min_p = false, repeat_penalty = false;
  } unset;
  std::optional<std::uint64_t> seed;  ///< none: a new one
  std::size_t max_tokens = 0;         ///< 0: what the context leaves
  std::size_t samples = 1;
  int priority = 0;
  bool logprobs = false;
  std::size_t likeliest = 0;  ///< with logprobs
  std::vector<std::string> stops;
  std::vector<std::int32_t> stop_tokens;
  bool ignore_eos = false;
  std::optional<std::chrono::milliseconds> timeout;
};

using Prompt = std::variant<std::string, std::vector<std::int32_t>>;

struct CompletionBody {
  std::string model;  ///< empty: not given
  GenerationParams params;
  std::vector<Prompt> prompts;  ///< at least one; of /generate exactly one
  bool stream = false, include_usage = false;
};

struct ChatBody {
  std::string model;
  GenerationParams params;
  std::string conversation;  ///< JSON as text/chat/chat.h reads it: messages, tools, further variables
  bool stream = false, include_usage = false;
};

struct EmbeddingsBody {
  std::string model;
  std::vector<Prompt> inputs;  ///< at least one
  bool base64 = false;
  std::size_t dimensions = 0;  ///< 0: not given
  std::optional<std::chrono::milliseconds> timeout;
};

struct TokenizeBody {
  std::string text;
  bool add_special = true, parse_special = true;
};

/// Puts what the model's file says in place of the dialect's defaults.
void use_defaults_of(const session::SamplingDefaults& file, GenerationParams& params);

template <class T>
using Read = std::expected<T, ApiError>;

[[nodiscard]] Read<CompletionBody> read_completion(std::string_view json);
/// prompt, max_tokens, temperature, top_k, top_p and the other sampling members; greedy unless it (or the model's file,
/// see use_defaults_of) says otherwise.
[[nodiscard]] Read<CompletionBody> read_generate(std::string_view json);
[[nodiscard]] Read<ChatBody> read_chat(std::string_view json);
[[nodiscard]] Read<EmbeddingsBody> read_embeddings(std::string_view json);
[[nodiscard]] Read<TokenizeBody> read_tokenize(std::string_view json);
[[nodiscard]] Read<std::vector<std::int32_t>> read_detokenize(std::string_view json);

}  // namespace forge::serve

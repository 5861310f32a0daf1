#pragma once
// Parses and checks request bodies. Input is untrusted JSON; the result is a plain struct with values in range, or an
// error that names the wrong member. Unknown members are refused, so that a typing error is noticed; members that have
// a meaning for OpenAI's service only ("user", "store", ...) are accepted and ignored. Source of the members: OpenAI's
// API reference and, for what OpenAI lacks, vLLM's extra parameters; for reranking, the API references of Jina
// AI and Cohere.

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
#include "serve/protocol/structured_output.h"
#include "session/sampling_defaults.h"

namespace forge::serve {

/// Generation parameters, common to all routes that generate.
struct GenerationParams {
  runtime::SamplerParams sampling;
  /// True for members that the request does not have; `sampling` has the route's default for them.
  struct Unset {
    bool temperature = false, top_k = false, top_p = false, min_p = false, repeat_penalty = false;
  } unset;
  std::optional<std::uint64_t> seed;  ///< nullopt: a random one
  std::size_t max_tokens = 0;         ///< 0: until the context is full
  std::size_t samples = 1;
  int priority = 0;
  bool logprobs = false;
  std::size_t top_logprobs = 0;  ///< with logprobs: how many of the most probable tokens to report
  std::vector<std::string> stops;
  std::vector<std::int32_t> stop_tokens;
  bool ignore_eos = false;
  std::optional<std::chrono::milliseconds> timeout;
  std::optional<StructuredOutput> structured;
};

/// Text, or token ids.
using Prompt = std::variant<std::string, std::vector<std::int32_t>>;

struct CompletionBody {
  std::string model;  ///< empty: not given
  GenerationParams params;
  std::vector<Prompt> prompts;  ///< at least one; exactly one for /generate
  bool stream = false, include_usage = false;
};

/// Whether and what the model calls.
struct ToolChoice {
  enum class Kind : std::uint8_t { kNone, kAuto, kRequired, kNamed };
  Kind kind = Kind::kNone;
  std::string name;  ///< of the tool, for kNamed
};

struct ChatBody {
  std::string model;
  GenerationParams params;
  std::string conversation;               ///< JSON for text/chat/chat.h: messages, tools, variables of the template
  std::string tools;                      ///< the tools that may be called, a JSON list; empty: none
  std::vector<std::string> strict_tools;  ///< names of those whose arguments must obey their schemas
  ToolChoice tool_choice;
  bool has_cut_calls = false;  ///< the conversation has a call whose arguments are text that is no JSON
  bool parallel_tool_calls = true;
  bool include_reasoning = true;
  bool reasoning_in_content = false;           ///< reasoning_format none: it stays in the content, between its markers
  std::optional<std::size_t> thinking_budget;  ///< tokens of reasoning; nullopt: no limit
  bool stream = false, include_usage = false;
};

struct EmbeddingsBody {
  std::string model;
  std::vector<Prompt> inputs;  ///< at least one
  bool base64 = false;
  std::size_t dimensions = 0;  ///< 0: not given
  std::optional<std::chrono::milliseconds> timeout;
};

struct RerankBody {
  std::string model, query;
  std::vector<std::string> documents;  ///< at least one
  std::size_t top_n = 0;               ///< from 1 to the number of documents
  bool return_documents = false;
  std::optional<std::chrono::milliseconds> timeout;
};

struct TokenizeBody {
  std::string text;
  bool add_special = true, parse_special = true;
};

/// Sets the members in `unset` from the model file's sampling defaults, where the file has them.
void use_defaults_of(const session::SamplingDefaults& file, GenerationParams& params);

template <class T>
using Read = std::expected<T, ApiError>;

[[nodiscard]] Read<CompletionBody> read_completion(std::string_view json);
/// The body of /generate. Its default is greedy sampling, unless the model file says otherwise (use_defaults_of).
[[nodiscard]] Read<CompletionBody> read_generate(std::string_view json);
[[nodiscard]] Read<ChatBody> read_chat(std::string_view json);
[[nodiscard]] Read<EmbeddingsBody> read_embeddings(std::string_view json);
[[nodiscard]] Read<RerankBody> read_rerank(std::string_view json);
[[nodiscard]] Read<TokenizeBody> read_tokenize(std::string_view json);
[[nodiscard]] Read<std::vector<std::int32_t>> read_detokenize(std::string_view json);

}  // namespace forge::serve

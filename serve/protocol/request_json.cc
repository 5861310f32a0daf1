#include "serve/protocol/request_json.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <utility>

#include "serve/protocol/chat_json.h"
#include "serve/protocol/json_fields.h"
#include "serve/protocol/other_members.h"

namespace forge::serve {
namespace {

constexpr std::int64_t kTokensMax = std::int64_t{1} << 31;
constexpr std::size_t kStopsMax = 16, kStopBytesMax = 1024, kPromptsMax = 128, kInputsMax = 2048, kStopTokensMax = 1024;
constexpr double kTimeoutMax = 7 * 24 * 3600.0;
constexpr std::size_t kCompletionTokens = 16;  ///< OpenAI's default of /v1/completions

template <class T>
Read<T> guarded(std::string_view json, T (*read)(const Json&)) {
  try {
    return read(parse_object(json));
  } catch (Refused& refused) {
    return std::unexpected(std::move(refused.error));
  }
}

void read_logit_bias(Fields& fields, runtime::SamplerParams& sampling) {
  const auto* bias = fields.take("logit_bias");
  if (bias == nullptr) return;
  if (!bias->is_object()) refuse_value("logit_bias", "logit_bias is not an object of token ids and numbers");
  for (const auto& [key, value] : bias->items()) {
    std::int32_t token = -1;
    const auto [end, failed] = std::from_chars(key.data(), key.data() + key.size(), token);
    if (failed != std::errc{} || end != key.data() + key.size() || token < 0)
      refuse_value("logit_bias", fmt::format("logit_bias: '{}' is not a token id", printable(key)));
    if (!value.is_number() || !(std::abs(value.get<double>()) <= 100))
      refuse_value("logit_bias", fmt::format("logit_bias of {} is not a number from -100 to 100", token));
    sampling.logit_bias.push_back({.token = token, .bias = value.get<float>()});
  }
}

void read_stops(Fields& fields, GenerationParams& params) {
  params.stops = fields.texts("stop", kStopsMax);
  for (const auto& stop : params.stops)
    if (stop.empty() || stop.size() > kStopBytesMax)
      refuse_value("stop", fmt::format("a stop string has {} bytes; 1 to {} are allowed", stop.size(), kStopBytesMax));
  if (const auto* ids = fields.take("stop_token_ids")) params.stop_tokens = token_ids("stop_token_ids", *ids);
  if (params.stop_tokens.size() > kStopTokensMax)
    refuse_value("stop_token_ids", fmt::format("stop_token_ids has {} ids; at most {} are allowed",
                                               params.stop_tokens.size(), kStopTokensMax));
}

std::optional<std::chrono::milliseconds> read_timeout(Fields& fields) {
  const auto seconds = fields.number("timeout", 0.001, kTimeoutMax);
  if (!seconds) return std::nullopt;
  return std::chrono::milliseconds(static_cast<std::int64_t>(*seconds * 1000));
}

/// The members that all generating routes share. `temperature`: the route's default.
GenerationParams read_params(Fields& fields, double temperature) {
  GenerationParams params;
  auto& sampling = params.sampling;
  auto& unset = params.unset;
  const auto real = [&](std::string_view name, double low, double high, double fallback, bool* absent = nullptr) {
    const auto value = fields.number(name, low, high);
    if (absent != nullptr) *absent = !value;
    return static_cast<float>(value.value_or(fallback));
  };
  sampling.temperature = real("temperature", 0, 2, temperature, &unset.temperature);
  sampling.top_p = real("top_p", 0, 1, 1, &unset.top_p);
  sampling.min_p = real("min_p", 0, 1, 0, &unset.min_p);
  sampling.typical_p = real("typical_p", 0, 1, 1);
  sampling.frequency_penalty = real("frequency_penalty", -2, 2, 0);
  sampling.presence_penalty = real("presence_penalty", -2, 2, 0);
  sampling.repeat_penalty = real("repetition_penalty", 0.01, 100, 1, &unset.repeat_penalty);
  const auto top_k = fields.integer("top_k", -1, kTokensMax - 1);
  unset.top_k = !top_k;
  sampling.top_k = static_cast<std::int32_t>(std::max<std::int64_t>(top_k.value_or(0), 0));
  read_logit_bias(fields, sampling);
  if (const auto seed = fields.integer("seed", INT64_MIN, INT64_MAX)) params.seed = static_cast<std::uint64_t>(*seed);
  params.samples = static_cast<std::size_t>(fields.integer("n", 1, engine::kSamplesMax).value_or(1));
  params.priority =
      static_cast<int>(fields.integer("priority", -engine::kPriorityMax, engine::kPriorityMax).value_or(0));
  params.ignore_eos = fields.boolean("ignore_eos", false);
  params.timeout = read_timeout(fields);
  read_stops(fields, params);
  params.structured = read_structured_output(fields);
  read_other_members(fields);
  return params;
}

std::size_t read_max_tokens(Fields& fields, std::string_view name, std::size_t fallback) {
  const auto tokens = fields.integer(name, 1, kTokensMax);
  return tokens ? static_cast<std::size_t>(*tokens) : fallback;
}

template <class Body>
void read_stream(Fields& fields, Body& body) {
  body.stream = fields.boolean("stream", false);
  const auto* options = fields.take("stream_options");
  if (options == nullptr) return;
  if (!body.stream) refuse_value("stream_options", "stream_options needs stream to be true");
  if (!options->is_object()) refuse_value("stream_options", "stream_options is not an object");
  Fields inner(*options);
  body.include_usage = inner.boolean("include_usage", false);
  inner.ignore({"include_obfuscation", "continuous_usage_stats"});
  inner.done();
}

Prompt read_prompt(std::string_view name, const Json& value) {
  if (value.is_string()) return value.get<std::string>();
  return token_ids(name, value);
}

/// The member `name`: one text, one list of token ids, or a list of at most `most` of either.
std::vector<Prompt> read_prompts(Fields& fields, std::string_view name, std::size_t most) {
  const auto* value = fields.take(name);
  if (value == nullptr) refuse_value(name, fmt::format("{} is missing", name));
  const bool several = value->is_array() && !value->empty() && !(*value)[0].is_number();
  if (!several) return {read_prompt(name, *value)};
  if (value->size() > most)
    refuse_value(name, fmt::format("{} {}s are given; at most {} are allowed", value->size(), name, most));
  std::vector<Prompt> prompts;
  for (const auto& item : *value) prompts.push_back(read_prompt(name, item));
  return prompts;
}

CompletionBody completion(const Json& json) {
  Fields fields(json);
  CompletionBody body;
  body.model = fields.text("model").value_or("");
  body.prompts = read_prompts(fields, "prompt", kPromptsMax);
  body.params = read_params(fields, 1);
  body.params.max_tokens = read_max_tokens(fields, "max_tokens", kCompletionTokens);
  if (const auto count = fields.integer("logprobs", 0, 20)) {
    body.params.logprobs = true;
    body.params.top_logprobs = static_cast<std::size_t>(*count);
  }
  read_stream(fields, body);
  fields.only("echo", false, "the server does not return the prompt");
  fields.only("suffix", "", "the server can only continue text");
  fields.only("best_of", body.params.samples, "all samples are returned: use n");
  fields.ignore({"user"});
  fields.done();
  return body;
}

CompletionBody generate(const Json& json) {
  Fields fields(json);
  CompletionBody body;
  body.model = fields.text("model").value_or("");
  const auto* prompt = fields.take("prompt");
  if (prompt == nullptr) refuse_value("prompt", "prompt is missing");
  body.prompts = {read_prompt("prompt", *prompt)};
  body.params = read_params(fields, 0);
  body.params.max_tokens = read_max_tokens(fields, "max_tokens", 0);
  if (body.params.samples != 1) refuse_value("n", "/generate returns one sample; use /v1/completions for several");
  fields.done();
  return body;
}

ChatBody chat(const Json& json) {
  Fields fields(json);
  ChatBody body;
  body.model = fields.text("model").value_or("");
  read_conversation(fields, body);
  body.params = read_params(fields, 1);
  const auto old_name = read_max_tokens(fields, "max_tokens", 0);
  body.params.max_tokens = read_max_tokens(fields, "max_completion_tokens", old_name);
  body.params.logprobs = fields.boolean("logprobs", false);
  if (const auto count = fields.integer("top_logprobs", 0, 20)) {
    if (!body.params.logprobs) refuse_value("top_logprobs", "top_logprobs needs logprobs to be true");
    body.params.top_logprobs = static_cast<std::size_t>(*count);
  }
  read_stream(fields, body);
  body.include_reasoning = fields.boolean("include_reasoning", body.include_reasoning);
  const auto format = fields.text("reasoning_format").value_or("auto");
  if (format != "auto" && format != "deepseek" && format != "none")
    refuse_value("reasoning_format", "reasoning_format is not auto, deepseek or none");
  body.reasoning_in_content = format == "none";
  fields.only("modalities", Json::array({"text"}), "the model generates text only");
  fields.ignore({"user", "store", "metadata", "service_tier", "safety_identifier", "prompt_cache_key", "verbosity"});
  fields.done();
  return body;
}

EmbeddingsBody embeddings(const Json& json) {
  Fields fields(json);
  EmbeddingsBody body;
  body.model = fields.text("model").value_or("");
  body.inputs = read_prompts(fields, "input", kInputsMax);
  const auto format = fields.text("encoding_format").value_or("float");
  if (format != "float" && format != "base64")
    refuse_value("encoding_format", "encoding_format is not float or base64");
  body.base64 = format == "base64";
  body.dimensions = static_cast<std::size_t>(fields.integer("dimensions", 1, kTokensMax).value_or(0));
  body.timeout = read_timeout(fields);
  fields.ignore({"user"});
  fields.done();
  return body;
}

/// A document: its text, or an object with the text.
std::string read_document(const Json& value) {
  if (value.is_string()) return value.get<std::string>();
  if (!value.is_object()) refuse_value("documents", "a document is not a string or an object with a text");
  Fields fields(value);
  auto text = fields.text("text");
  if (!text) refuse_value("documents", "a document has no text");
  fields.done();
  return *std::move(text);
}

RerankBody rerank(const Json& json) {
  Fields fields(json);
  RerankBody body;
  body.model = fields.text("model").value_or("");
  auto query = fields.text("query");
  if (!query) refuse_value("query", "query is missing");
  body.query = *std::move(query);
  const auto* documents = fields.take("documents");
  if (documents == nullptr || !documents->is_array() || documents->empty())
    refuse_value("documents", "documents is not a list with at least one document");
  if (documents->size() > kInputsMax)
    refuse_value("documents",
                 fmt::format("{} documents are given; at most {} are allowed", documents->size(), kInputsMax));
  for (const auto& document : *documents) body.documents.push_back(read_document(document));
  const auto all = static_cast<std::int64_t>(body.documents.size());
  body.top_n = static_cast<std::size_t>(std::min(fields.integer("top_n", 1, kTokensMax).value_or(all), all));
  body.return_documents = fields.boolean("return_documents", false);
  body.timeout = read_timeout(fields);
  fields.ignore({"user"});
  fields.done();
  return body;
}

TokenizeBody tokenize(const Json& json) {
  Fields fields(json);
  fields.ignore({"model"});
  auto text = fields.text("content");
  if (!text) text = fields.text("prompt");
  if (!text) refuse_value("content", "content is missing");
  const TokenizeBody body{.text = *std::move(text),
                          .add_special = fields.boolean("add_special", true),
                          .parse_special = fields.boolean("parse_special", true)};
  fields.done();
  return body;
}

std::vector<std::int32_t> detokenize(const Json& json) {
  Fields fields(json);
  fields.ignore({"model"});
  const auto* tokens = fields.take("tokens");
  if (tokens == nullptr) refuse_value("tokens", "tokens is missing");
  auto ids = token_ids("tokens", *tokens);
  fields.done();
  return ids;
}

}  // namespace

void use_defaults_of(const session::SamplingDefaults& file, GenerationParams& params) {
  auto& sampling = params.sampling;
  const auto use = [](bool unset, const auto& value, auto& into) {
    if (unset && value) into = *value;
  };
  use(params.unset.temperature, file.temperature, sampling.temperature);
  use(params.unset.top_k, file.top_k, sampling.top_k);
  use(params.unset.top_p, file.top_p, sampling.top_p);
  use(params.unset.min_p, file.min_p, sampling.min_p);
  use(params.unset.repeat_penalty, file.repeat_penalty, sampling.repeat_penalty);
  if (file.penalty_window) sampling.penalty_window = static_cast<std::size_t>(*file.penalty_window);
}

Read<CompletionBody> read_completion(std::string_view json) {
  return guarded(json, completion);
}
Read<CompletionBody> read_generate(std::string_view json) {
  return guarded(json, generate);
}
Read<ChatBody> read_chat(std::string_view json) {
  return guarded(json, chat);
}
Read<EmbeddingsBody> read_embeddings(std::string_view json) {
  return guarded(json, embeddings);
}
Read<RerankBody> read_rerank(std::string_view json) {
  return guarded(json, rerank);
}
Read<TokenizeBody> read_tokenize(std::string_view json) {
  return guarded(json, tokenize);
}
Read<std::vector<std::int32_t>> read_detokenize(std::string_view json) {
  return guarded(json, detokenize);
}

}  // namespace forge::serve

#include "serve/protocol/openai_dialect.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <utility>

#include "support/json_text.h"

namespace forge::serve {
namespace {

constexpr float kLogprobMin = -9999;  ///< sent for -infinity, which JSON cannot express; the value OpenAI uses

/// Number of UTF-8 characters whose first byte is in `bytes`; a token may begin or end within a character.
std::size_t characters(std::string_view bytes) {
  return static_cast<std::size_t>(
      std::ranges::count_if(bytes, [](char c) { return (static_cast<unsigned char>(c) & 0xC0U) != 0x80U; }));
}

class CompletionDialect final : public OpenAiDialect {
 public:
  explicit CompletionDialect(ReplyHead head)
      : OpenAiDialect(std::move(head), "cmpl-", "text_completion", "text_completion") {}

  std::vector<std::string> chunks(const Piece& piece) override {
    const bool token = head_.logprobs && piece.token >= 0;
    if (piece.text.empty() && !token && piece.finish == engine::FinishReason::kNone) return {};
    return {chunk_of(choice_of(piece.choice, piece.text, std::span(&piece, token ? 1 : 0), piece.finish))};
  }

 protected:
  std::string choice_json(std::size_t index, const Choice& choice) override {
    return choice_of(index, choice.text, choice.tokens, choice.finish);
  }

 private:
  std::string choice_of(std::size_t index, const std::string& text, std::span<const Piece> tokens,
                        engine::FinishReason finish) {
    JsonWriter json(JsonLayout::kCompact);
    json.open('{').field("index", index).field("text", text);
    json.raw("logprobs", head_.logprobs ? logprobs(index, tokens) : "null").raw("finish_reason", finish_json(finish));
    return json.close().take();
  }

  std::string logprobs(std::size_t index, std::span<const Piece> tokens) {
    JsonWriter json(JsonLayout::kCompact);
    json.open('{').open("tokens", '[');
    for (const auto& piece : tokens) json.item(token_name(piece.token));
    json.close().open("token_logprobs", '[');
    for (const auto& piece : tokens) json.raw_item(logprob_json(piece.chosen.logprob));
    json.close().open("top_logprobs", '[');
    for (const auto& piece : tokens) {
      json.open('{');
      bool there = false;  // OpenAI lists the sampled token also if it is not among the most probable ones
      for (const auto& [token, logprob] : piece.top_logprobs) {
        json.raw(token_name(token), logprob_json(logprob));
        there = there || token == piece.token;
      }
      if (!there) json.raw(token_name(piece.token), logprob_json(piece.chosen.logprob));
      json.close();
    }
    json.close().open("text_offset", '[');
    auto& offset = offsets_[index];
    for (const auto& piece : tokens) {
      json.raw_item(fmt::format("{}", offset));
      offset += characters(token_bytes(piece.token));
    }
    return json.close().close().take();
  }

  /// The token's text, or, if its bytes alone are not valid UTF-8, OpenAI's form for them: bytes:\xe2\x80.
  [[nodiscard]] std::string token_name(std::int32_t token) const {
    auto bytes = token_bytes(token);
    if (is_utf8(bytes)) return bytes;
    std::string name = "bytes:";
    for (const auto byte : bytes) name += fmt::format("\\x{:02x}", static_cast<unsigned char>(byte));
    return name;
  }

  std::map<std::size_t, std::size_t> offsets_;  ///< in characters, by choice
};

class GenerateDialect final : public Dialect {
 public:
  explicit GenerateDialect(ReplyHead head) : head_(std::move(head)) {}

  std::string whole(std::span<const Choice> choices, const UsageTotals& usage) override {
    std::vector<std::int32_t> tokens;
    for (const auto& piece : choices[0].tokens) tokens.push_back(piece.token);
    auto json = begin(choices[0].text, tokens, choices[0].finish);
    return add_usage(json, usage).close().take();
  }
  std::vector<std::string> chunks(const Piece& piece) override {
    return {begin(piece.text, std::span(&piece.token, piece.token >= 0 ? 1 : 0), piece.finish).close().take()};
  }
  bool says_done() const override { return false; }

 private:
  [[nodiscard]] JsonWriter begin(const std::string& text, std::span<const std::int32_t> tokens,
                                 engine::FinishReason finish) const {
    JsonWriter json(JsonLayout::kCompact);
    json.open('{').field("request_id", head_.id).field("text", text).field("tokens", tokens);
    json.field("finished", finish != engine::FinishReason::kNone).raw("finish_reason", finish_json(finish));
    return json;
  }

  ReplyHead head_;
};

}  // namespace

std::string finish_json(engine::FinishReason finish) {
  return finish == engine::FinishReason::kNone ? "null" : json_string(engine::finish_reason_name(finish));
}

std::string logprob_json(float logprob) {
  return json_number(std::max(logprob, kLogprobMin));
}

JsonWriter& add_usage(JsonWriter& json, const UsageTotals& usage) {
  json.open("usage", '{').field("prompt_tokens", usage.prompt_tokens);
  json.field("completion_tokens", usage.generated_tokens);
  json.field("total_tokens", usage.prompt_tokens + usage.generated_tokens);
  json.open("prompt_tokens_details", '{').field("cached_tokens", usage.cached_tokens).close();
  if (usage.reasoning_tokens)
    json.open("completion_tokens_details", '{').field("reasoning_tokens", *usage.reasoning_tokens).close();
  return json.close();
}

OpenAiDialect::OpenAiDialect(ReplyHead head, std::string_view prefix, std::string_view whole, std::string_view chunk)
    : head_(std::move(head)), whole_(whole), chunk_(chunk) {
  head_.id.insert(0, prefix);
}

std::string OpenAiDialect::whole(std::span<const Choice> choices, const UsageTotals& usage) {
  auto json = begin(whole_);
  for (std::size_t i = 0; i < choices.size(); ++i) json.raw_item(choice_json(i, choices[i]));
  json.close();
  return add_usage(json, usage).close().take();
}

std::string OpenAiDialect::last(const UsageTotals& usage) {
  if (!head_.include_usage) return {};
  auto json = begin(chunk_);
  json.close();
  return add_usage(json, usage).close().take();
}

JsonWriter OpenAiDialect::begin(std::string_view object) const {
  JsonWriter json(JsonLayout::kCompact);
  json.open('{').field("id", head_.id).field("object", object).field("created", head_.created);
  json.field("model", head_.model).open("choices", '[');
  return json;
}

std::string OpenAiDialect::chunk_of(std::string_view choice) const {
  auto json = begin(chunk_);
  json.raw_item(choice).close();
  if (head_.include_usage) json.raw("usage", "null");
  return json.close().take();
}

std::string OpenAiDialect::token_bytes(std::int32_t token) const {
  return head_.tokenizer->decode_piece(token, true);
}

std::unique_ptr<Dialect> completion_dialect(ReplyHead head) {
  return std::make_unique<CompletionDialect>(std::move(head));
}
std::unique_ptr<Dialect> generate_dialect(ReplyHead head) {
  return std::make_unique<GenerateDialect>(std::move(head));
}

}  // namespace forge::serve

// OpenAI's chat form. Reasoning is "reasoning_content", as DeepSeek's API, vLLM and llama.cpp name it.

#include <fmt/format.h>

#include <utility>

#include "serve/protocol/openai_dialect.h"

namespace forge::serve {
namespace {

std::string chat_finish_json(engine::FinishReason finish, text::FinishReason answer) {
  return answer == text::FinishReason::kToolCalls && finish == engine::FinishReason::kStop
             ? json_string(to_string(answer))
             : finish_json(finish);
}

class ChatDialect final : public OpenAiDialect {
 public:
  explicit ChatDialect(ReplyHead head)
      : OpenAiDialect(std::move(head), "chatcmpl-", "chat.completion", "chat.completion.chunk") {}

  std::string first(std::size_t choice) override {
    return chunk_of(choice_of(choice, R"({"role":"assistant","content":""})", {}, "null"));
  }

  std::vector<std::string> chunks(const Piece& piece) override {
    const bool token = head_.logprobs && piece.token >= 0, ends = piece.finish != engine::FinishReason::kNone;
    std::vector<std::string> deltas;
    auto answer = text::FinishReason::kNone;
    for (const auto& delta : piece.answer) {
      if (!delta.reasoning.empty() && head_.reasoning)
        deltas.push_back(fmt::format(R"({{"reasoning_content":{}}})", json_string(delta.reasoning)));
      if (!delta.content.empty()) deltas.push_back(fmt::format(R"({{"content":{}}})", json_string(delta.content)));
      if (!delta.calls.empty()) deltas.push_back(calls_delta(delta.calls));
      if (delta.finish != text::FinishReason::kNone) answer = delta.finish;
    }
    if (deltas.empty() && (token || ends)) deltas.emplace_back("{}");
    std::vector<std::string> chunks;
    for (std::size_t i = 0; i < deltas.size(); ++i)
      chunks.push_back(chunk_of(choice_of(piece.choice, deltas[i], std::span(&piece, token && i == 0 ? 1 : 0),
                                          i + 1 == deltas.size() ? chat_finish_json(piece.finish, answer) : "null")));
    return chunks;
  }

 protected:
  std::string choice_json(std::size_t index, const Choice& choice) override {
    const auto& answer = choice.answer;
    JsonWriter json(JsonLayout::kCompact);
    json.open('{').field("index", index).open("message", '{').field("role", "assistant");
    json.raw("content", answer.content.empty() && !answer.calls.empty() ? "null" : json_string(answer.content));
    if (!answer.reasoning.empty() && head_.reasoning) json.field("reasoning_content", answer.reasoning);
    if (!answer.calls.empty()) {
      json.open("tool_calls", '[');
      for (const auto& call : answer.calls) {
        json.open('{').field("id", call.id).field("type", "function").open("function", '{');
        json.field("name", call.name).field("arguments", call.arguments).close().close();
      }
      json.close();
    }
    json.raw("refusal", "null").close();
    json.raw("logprobs", head_.logprobs ? logprobs(choice.tokens) : "null");
    return json.raw("finish_reason", chat_finish_json(choice.finish, answer.finish)).close().take();
  }

 private:
  /// A call's id, type and name come once, with its first piece.
  static std::string calls_delta(std::span<const text::CallDelta> calls) {
    JsonWriter json(JsonLayout::kCompact);
    json.open('{').open("tool_calls", '[');
    for (const auto& call : calls) {
      json.open('{').field("index", call.index);
      if (!call.name.empty()) json.field("id", call.id).field("type", "function");
      json.open("function", '{');
      if (!call.name.empty()) json.field("name", call.name);
      json.field("arguments", call.arguments).close().close();
    }
    return json.close().close().take();
  }

  std::string choice_of(std::size_t index, std::string_view delta, std::span<const Piece> tokens,
                        std::string_view finish) const {
    JsonWriter json(JsonLayout::kCompact);
    json.open('{').field("index", index).raw("delta", delta);
    json.raw("logprobs", tokens.empty() ? "null" : logprobs(tokens));
    return json.raw("finish_reason", finish).close().take();
  }

  void add_token(JsonWriter& json, const engine::TokenLogprob& token) const {
    const auto bytes = token_bytes(token.token);
    json.field("token", bytes).raw("logprob", logprob_json(token.logprob)).open("bytes", '[');
    for (const auto byte : bytes) json.raw_item(fmt::format("{}", static_cast<unsigned char>(byte)));
    json.close();
  }

  std::string logprobs(std::span<const Piece> tokens) const {
    JsonWriter json(JsonLayout::kCompact);
    json.open('{').open("content", '[');
    for (const auto& piece : tokens) {
      add_token(json.open('{'), piece.chosen);
      json.open("top_logprobs", '[');
      for (const auto& token : piece.top_logprobs) {
        add_token(json.open('{'), token);
        json.close();
      }
      json.close().close();
    }
    return json.close().raw("refusal", "null").close().take();
  }
};

}  // namespace

std::unique_ptr<Dialect> chat_dialect(ReplyHead head) {
  return std::make_unique<ChatDialect>(std::move(head));
}

}  // namespace forge::serve

#pragma once
// A server whose model says what the test wants: the fake device's most probable tokens spell a given text.

#include <span>
#include <string>
#include <utility>
#include <vector>

#include "tests/serve/running_server.h"
#include "tests/support/byte_vocabulary.h"

namespace forge::serve::test {

using Json = nlohmann::ordered_json;

/// A byte-level vocabulary with control tokens, among them the markers of calls.
struct ChatVocabulary {
  static std::string image() {
    return tests::byte_vocabulary(
        {"<|im_start|>", "<|im_end|>", "<tool_call>", "</tool_call>", "<think>", "</think>", "<|image|>"}, 257);
  }
  std::string file = image();
  loader::Gguf gguf = loader::Gguf::from(std::as_bytes(std::span(file)));
  std::unique_ptr<text::Tokenizer> tokenizer = text::Tokenizer::open(gguf);
};

constexpr FakeShape kChatShape{
    .vocab = 263, .step_tokens = 64, .sequences = 4, .context = 16384, .block_tokens = 16, .blocks = 2048};

/// Calls as JSON between tags, reasoning between tags, tools in the system message.
constexpr std::string_view kChatTemplate =
    "{% if tools %}<|im_start|>system\n{% for t in tools %}{{ t | tojson }}\n{% endfor %}<|im_end|>\n{% endif %}"
    "{% for m in messages %}<|im_start|>{{ m.role }}\n"
    "{% if m.reasoning_content %}<think>\n{{ m.reasoning_content }}\n</think>\n\n{% endif %}{{ m.content }}"
    "{% for c in m.tool_calls or [] %}{{ '\n' }}<tool_call>\n{\"name\": \"{{ c.function.name }}\", \"arguments\": "
    "{{ c.function.arguments | tojson }}}\n</tool_call>{% endfor %}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}";

constexpr std::string_view kWeather = R"({"type":"function","function":{"name":"weather","parameters":{"type":"object",
    "properties":{"city":{"type":"string"}},"required":["city"]}}})";

class ScriptedChat {
 public:
  explicit ScriptedChat(std::string_view chat_template = kChatTemplate, const FakeShape& shape = kChatShape)
      : device(server.load(shape, *vocabulary.tokenizer, chat_template)) {}

  [[nodiscard]] std::vector<std::int32_t> encode(const std::string& text) const {
    return vocabulary.tokenizer->encode(text, {.parse_special = true});
  }
  [[nodiscard]] std::string prompt(const Json& body) const {
    return json_of(ask(server, post("/apply-template", body.dump())))["prompt"];
  }
  /// The next answer to `body` is `text`, then the end of the turn.
  void will_say(const Json& body, const std::string& text) {
    const auto begin = static_cast<std::int32_t>(encode(prompt(body)).size()) - 1;
    auto tokens = encode(text);
    tokens.push_back(257);
    (void)server.idle();
    device.script = [begin, tokens](std::int32_t position) {
      const auto at = static_cast<std::size_t>(position - begin);
      return position < begin || at >= tokens.size() ? -1 : tokens[at];
    };
  }
  /// The whole answer's JSON.
  Json answer(Json body, const std::string& text) {
    body["temperature"] = 0;
    will_say(body, text);
    return Json::parse(json_of(ask(server, post("/v1/chat/completions", body.dump()))).dump());
  }
  /// The events of the answer as a stream, without [DONE].
  std::vector<Json> events(Json body, const std::string& text) {
    body["temperature"] = 0;
    will_say(body, text);
    body["stream"] = true;
    const auto stream = ask(server, post("/v1/chat/completions", body.dump()));
    std::vector<Json> events;
    for (std::size_t at = stream.find("data: "); at != std::string::npos; at = stream.find("data: ", at + 1)) {
      const auto line = stream.substr(at + 6, stream.find('\n', at) - at - 6);
      if (line != "[DONE]") events.push_back(Json::parse(line));
    }
    return events;
  }
  /// "CODE PARAM" of the refusal of `body`, which must be a 400 of one line; "ok" if it is answered.
  [[nodiscard]] std::string refusal(const Json& body) const {
    const auto text = ask(server, post("/v1/chat/completions", body.dump()));
    INFO(text.substr(0, 500));
    if (text.starts_with("HTTP/1.1 200 ")) return "ok";
    REQUIRE(text.starts_with("HTTP/1.1 400 "));
    const auto error = Json::parse(text.substr(text.find("\r\n\r\n") + 4))["error"];
    CHECK(error["message"].get<std::string>().find('\n') == std::string::npos);
    return error["code"].get<std::string>() + " " + (error["param"].is_null() ? "" : error["param"].get<std::string>());
  }

  ChatVocabulary vocabulary;
  Running server;
  FakeExecutor& device;
};

/// A request with one user message and the weather tool.
inline Json weather_body() {
  return {{"messages", {{{"role", "user"}, {"content", "Oslo?"}}}}, {"tools", {Json::parse(kWeather)}}};
}

/// The message that a stream's events make. Checks the order and form of the pieces.
inline Json joined(const std::vector<Json>& events) {
  Json message{{"content", ""}, {"reasoning_content", ""}, {"tool_calls", Json::array()}};
  for (const auto& event : events) {
    if (event["choices"].empty()) continue;
    const auto& choice = event["choices"][0];
    CHECK_FALSE(message.contains("finish_reason"));
    if (!choice["finish_reason"].is_null()) message["finish_reason"] = choice["finish_reason"];
    const auto& delta = choice["delta"];
    for (const auto* name : {"content", "reasoning_content"})
      if (delta.contains(name)) message[name] = message[name].get<std::string>() + delta[name].get<std::string>();
    for (const auto& piece : delta.value("tool_calls", Json::array())) {
      auto& calls = message["tool_calls"];
      const auto index = piece["index"].get<std::size_t>();
      REQUIRE(index + 1 - calls.size() <= 1);
      CHECK((index == calls.size()) == piece["function"].contains("name"));
      if (index == calls.size()) {
        CHECK(piece["type"] == "function");
        calls.push_back({{"id", piece["id"]}, {"name", piece["function"]["name"]}, {"arguments", ""}});
      } else {
        CHECK((!piece.contains("id") && !piece.contains("type") && !piece["function"].contains("name")));
      }
      auto& call = calls[index];
      call["arguments"] = call["arguments"].get<std::string>() + piece["function"]["arguments"].get<std::string>();
    }
  }
  return message;
}

}  // namespace forge::serve::test

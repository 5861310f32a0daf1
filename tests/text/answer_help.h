#pragma once
// Parses answers for the tests: whole, and in pieces of every size, which must give the same message.

#include <catch2/catch.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "text/answer/answer_parser.h"

namespace forge::text {

struct Message {
  std::string content, reasoning, finish;
  std::vector<CallDelta> calls;
  bool operator==(const Message& other) const {
    return content == other.content && reasoning == other.reasoning && finish == other.finish &&
           listed() == other.listed();
  }
  /// NAME ARGUMENTS of each call, a line each; #ID before if there is an id.
  [[nodiscard]] std::string listed() const {
    std::string out;
    for (const auto& call : calls) {
      if (!call.id.empty()) out += "#" + call.id + " ";
      out += call.name + " " + call.arguments + "\n";
    }
    return out;
  }
};

inline void join(Message& message, const std::vector<AnswerDelta>& deltas) {
  for (const auto& delta : deltas) {
    message.content += delta.content;
    message.reasoning += delta.reasoning;
    message.finish += to_string(delta.finish);
    for (const auto& piece : delta.calls) {
      if (piece.index == message.calls.size()) message.calls.emplace_back();
      REQUIRE(piece.index + 1 == message.calls.size());
      auto& call = message.calls.back();
      CHECK((piece.name.empty() || call.name.empty()));  // a name comes once, and before arguments
      CHECK((!piece.name.empty() || !call.name.empty()));
      call.name += piece.name;
      if (!piece.id.empty()) call.id = piece.id;
      call.arguments += piece.arguments;
    }
  }
}

constexpr std::string_view kTestTools = R"([
  {"type": "function", "function": {"name": "weather", "parameters": {"type": "object", "properties": {
    "city": {"type": "string"}, "days": {"type": "integer"}, "metric": {"type": "boolean"},
    "tags": {"type": "array"}, "where": {"$ref": "#/$defs/place"}}, "$defs": {"place": {"type": "object"}}}}},
  {"type": "function", "function": {"name": "now"}}])";

/// The message of `text`, read in pieces of `size` bytes.
inline Message parse_pieces(const AnswerFormat& format, std::string_view prompt, std::string_view text,
                            std::size_t size, bool cut = false) {
  const ToolTypes tools = ToolTypes::parse(kTestTools);
  AnswerParser parser(format, tools, prompt);
  Message message;
  for (std::size_t at = 0; at < text.size(); at += size) join(message, parser.feed(text.substr(at, size)));
  join(message, parser.finish(cut));
  return message;
}

inline Message parse(const AnswerFormat& format, std::string_view text, std::string_view prompt = {},
                     bool cut = false) {
  Message whole = parse_pieces(format, prompt, text, text.size() + 1, cut);
  for (const std::size_t size : {1, 2, 3, 7, 16}) {
    INFO(text << " in pieces of " << size);
    CHECK(parse_pieces(format, prompt, text, size, cut) == whole);
  }
  return whole;
}

/// A template whose turns are <|im_start|>ROLE, a newline, the text, <|im_end|>. `call`: what it prints for each call.
inline std::string template_of(std::string_view call, std::string_view before = {}, std::string_view after = {}) {
  std::string out = "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}{% if m.tool_calls %}";
  out +=
      std::string(before) + "{% for c in m.tool_calls %}{% set f = c.function %}" + std::string(call) + "{% endfor %}";
  out += std::string(after) + "{% endif %}<|im_end|>\n{% endfor %}";
  return out + "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}";
}

/// The format of template_of(...).
inline AnswerFormat format_of(std::string_view call, std::string_view before = {}, std::string_view after = {}) {
  return find_answer_format(template_of(call, before, after), {});
}

constexpr std::string_view kJsonCall = "{\"name\": \"{{ f.name }}\", \"arguments\": {{ f.arguments | tojson }}}";

}  // namespace forge::text

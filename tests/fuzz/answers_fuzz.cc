// Fuzzes the parser of models' answers (text/answer). The input is the number of a format, a piece size and a model's
// text. Whatever the text is, it must parse without an error, the same in pieces as at once.

#include <array>
#include <string>

#include "tests/fuzz/target.h"
#include "text/answer/answer_parser.h"

namespace {

using namespace forge;
using namespace forge::text;

/// What templates print for a call, one for each way of writing arguments.
constexpr std::array<std::string_view, 9> kCalls{
    "<tool_call>{\"name\": \"{{ f.name }}\", \"arguments\": {{ f.arguments | tojson }}}</tool_call>",
    "{\"name\": \"{{ f.name }}\", \"parameters\": {{ f.arguments | tojson }}}",
    "[T]{{ f.name }}[A]{{ f.arguments | tojson }}",
    "<c>function<s>{{ f.name }}\n```json\n{{ f.arguments | tojson }}\n```</c>",
    "<f={{ f.name }}>{% for k, v in f.arguments.items() %}<p={{ k }}>\n{{ v }}\n</p>{% endfor %}</f>{# <![CDATA[ #}",
    "<t>{{ f.name }}{% for k, v in f.arguments.items() %}<a_key>{{ k }}</a_key><a_v>{{ v }}</a_v>{% endfor %}</t>",
    "<|p|>[{{ f.name }}({% for k, v in f.arguments.items() %}{{ k }}='{{ v }}'{% endfor %})]<|p_end|>",
    "<|c>call:{{ f.name }}{{ '{' }}{% for k, v in f.arguments.items() %}{{ k }}:<|q>{{ v }}<|q>{% endfor %}{{ '}' "
    "}}<c|>",
    "{{ f.name }}\n{{ f.arguments | tojson }}"};

std::array<AnswerFormat, kCalls.size() + 2> make_formats() {
  std::array<AnswerFormat, kCalls.size() + 2> out;
  for (std::size_t i = 0; i < kCalls.size(); ++i) {
    const std::string source =
        "{# <think> </think> #}{% for m in messages %}<|{{ m.role }}|>{{ m.content }}{% for c in "
        "m.tool_calls or [] %}{% set f = c.function %}" +
        std::string(kCalls[i]) + "{% endfor %}{% endfor %}";
    out[i] = find_answer_format(source, {});
    fuzz::expect(out[i].has_calls(), "a format without calls");
  }
  out[kCalls.size()] = find_answer_format("<|channel|><|message|>", {});
  out[kCalls.size() + 1] = find_answer_format(">>>all", {});
  return out;
}

/// The message as one text; pieces of a call follow each other.
std::string parse(const AnswerFormat& format, const ToolTypes& tools, std::string_view text, std::size_t piece,
                  bool cut) {
  AnswerParser parser(format, tools, {});
  std::string content, reasoning, calls;
  const auto join = [&](const std::vector<AnswerDelta>& deltas) {
    for (const auto& delta : deltas) {
      content += delta.content;
      reasoning += delta.reasoning;
      for (const auto& call : delta.calls) {
        if (!call.name.empty()) calls += "\n" + call.name + " ";
        calls += call.arguments;
      }
    }
  };
  for (std::size_t at = 0; at < text.size(); at += piece) join(parser.feed(text.substr(at, piece)));
  join(parser.finish(cut));
  fuzz::expect(content.size() + reasoning.size() + calls.size() <= 16 * text.size() + 64, "more text than was read");
  return content + '\0' + reasoning + '\0' + calls;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static const auto formats = make_formats();
  static const ToolTypes tools = ToolTypes::parse(
      R"([{"name": "f", "parameters": {"properties": {"x": {"type": "string"}, "y": {"type": ["integer", "object"]}}}}])");
  if (size < 2) return 0;
  return fuzz::refuse_or_read([&] {
    const AnswerFormat& format = formats[data[0] % formats.size()];
    const std::string_view text = fuzz::text_of(data + 2, size - 2);
    const bool cut = (data[1] & 1) != 0;
    const std::string whole = parse(format, tools, text, text.size() + 1, cut);
    fuzz::expect(whole == parse(format, tools, text, 1 + (data[1] >> 1) % 32, cut), "pieces give another message");
  });
}

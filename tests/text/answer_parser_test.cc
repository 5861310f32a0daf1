// What holds for answers in any format: reasoning, malformed and cut-off calls, markers that are none, bounded work.
#include <fmt/format.h>

#include "tests/text/answer_help.h"

using namespace forge::text;

namespace {

const AnswerFormat& tagged() {
  static const AnswerFormat format = format_of("<tool_call>\n" + std::string(kJsonCall) + "\n</tool_call>");
  return format;
}

AnswerFormat thinking() {
  return find_answer_format(
      "{# <think> </think> #}" + template_of("<tool_call>" + std::string(kJsonCall) + "</tool_call>"), {});
}

}  // namespace

TEST_CASE("reasoning is opened by the answer or by the prompt") {
  const auto format = thinking();
  const Message message =
      parse(format, "<think>\nA <b> {x}\n</think>\n\nYes.\n<tool_call>{\"name\": \"now\"}</tool_call>");
  CHECK(message.reasoning == "A <b> {x}");
  CHECK(message.content == "Yes.");
  CHECK(message.listed() == "now {}\n");
  CHECK(parse(format, "A</think>Yes.", "<|im_start|>assistant\n<think>\n").reasoning == "A");
  CHECK(parse(format, "<think>A</think>Yes.", "<think>\n").reasoning == "A");
  CHECK(parse(format, "Yes.", "<think>\n\n</think>\n\n").content == "Yes.");
  const Message cut = parse(format, "A and ", "<think>", true);
  CHECK(cut.reasoning == "A and");
  CHECK(cut.finish == "length");
  CHECK(parse(format, "Write <think> first.").content == "Write <think> first.");
}

TEST_CASE("a turn that goes on after a tool's result reasons if the template always does") {
  std::string source = "{# </think> #}{% for m in messages %}<{{ m.role }}>{{ m.content }}{% endfor %}";
  source += "{% if add_generation_prompt %}<assistant><think>{% endif %}";
  const auto format = find_answer_format(source, {});
  CHECK(parse(format, "A</think>B", "<user>x<assistant>call<tool>result").reasoning == "A");
  CHECK(parse(format, "B", "<user>x<assistant><think>A</think>call<tool>result").content == "B");
  CHECK(parse(format, "B", "<user>x<assistant>").content == "B");
}

TEST_CASE("markers around content are dropped") {
  const auto format = find_answer_format(
      "{% for m in messages %}<|turn|>{% if m.tool_calls %}<|act|>[{% for c in m.tool_calls %}{\"name\": \"{{ "
      "c.function.name }}\","
      " \"arguments\": {{ c.function.arguments | tojson }}}{% endfor %}]{% else %}<|start_say|>{{ m.content "
      "}}<|end_say|>{% endif %}{% endfor %}",
      {});
  CHECK(parse(format, "<|start_say|>Hello.<|end_say|>").content == "Hello.");
  CHECK(parse(format, "<|act|>[{\"name\": \"now\"}]").listed() == "now {}\n");
}

TEST_CASE("what only begins like a marker is content") {
  for (const std::string text :
       {"They begin with <, <t, <tool, <tool_cal or </tool_call and end with <tool",
        "<tool_call> and then comes the name", "Write <tool_call>{name} or </tool_call>.", "a <tool_call>"}) {
    const Message message = parse(tagged(), text);
    CHECK(message.content == text);
    CHECK(message.calls.empty());
  }
}

TEST_CASE("markers inside of arguments are text") {
  const std::string arguments = R"({"city": "</tool_call> <tool_call> }}]}", "days": 1})";
  CHECK(parse(tagged(), "<tool_call>\n{\"name\": \"weather\", \"arguments\": " + arguments + "}\n</tool_call>")
            .listed() == "weather " + arguments + "\n");
}

TEST_CASE("malformed arguments are handed on as they are, without repair") {
  const Message message =
      parse(tagged(), "<tool_call>\n{\"name\": \"weather\", \"arguments\": {\"days\": , ]}}\n</tool_call>");
  REQUIRE(message.calls.size() == 1);
  CHECK(message.calls[0].name == "weather");
  CHECK(message.calls[0].arguments == "{\"days\": , ]}}\n");
  CHECK(message.content.empty());
  const Message nameless = parse(tagged(), "<tool_call>{\"days\": 1}</tool_call>");
  CHECK(nameless.content == "<tool_call>{\"days\": 1}</tool_call>");
  CHECK(nameless.finish == "stop");
}

TEST_CASE("what only begins like another call of a list is content, with the space before it") {
  const auto format = format_of("<call>{{ f.name }}\n{{ f.arguments | tojson }}</call>");
  const Message message = parse(format, "Now.<call>now\n{}\n\n{\"y>");
  CHECK(message.listed() == "now {}\n");
  CHECK(message.content == "Now.\n\n{\"y>");
  const Message two = parse(format, "<call>now\n{}\n\n{\"name\": \"weather\", \"arguments\": {}}</call>");
  CHECK(two.listed() == "now {}\nweather {}\n");
  CHECK(two.content.empty());
}

TEST_CASE("a list in brackets is no marker because capitals or underscores are all that it holds") {
  const auto format = format_of("<c>function<s>{{ f.name }}\n```json\n{{ f.arguments | tojson }}\n```</c>");
  for (const std::string_view text : {"<c>[_]<=>", "<c>[__A]{}", "<c>[_", "<c>[/]<=>"}) {
    const Message message = parse(format, text);
    CHECK(message.content == text);
    CHECK(message.calls.empty());
  }
}

TEST_CASE("a call that is cut off is no content") {
  const std::string text =
      "<tool_call>\n{\"name\": \"now\", \"arguments\": {}}\n</tool_call>\n<tool_call>\n{\"name\": \"weat";
  const Message cut = parse(tagged(), text, {}, true);
  CHECK(cut.content.empty());
  CHECK(cut.listed() == "now {}\n");
  CHECK(cut.finish == "length");
  CHECK(parse(tagged(), "<tool_call>\n{\"name\": \"weather\", \"arguments\": {\"city\": \"Os", {}, true).listed() ==
        "weather {\"city\": \"Os\n");
  // A model that stops there has written text.
  CHECK(parse(tagged(), "<tool_call>\n{\"na").content == "<tool_call>\n{\"na");
}

TEST_CASE("a call to a tool that is not offered is handed on by name") {
  CHECK(parse(tagged(), "<tool_call>{\"name\": \"other\", \"arguments\": {\"a\": 1}}</tool_call>").listed() ==
        "other {\"a\": 1}\n");
}

TEST_CASE("templates without calls, unknown ones and broken ones") {
  const auto none = find_answer_format("{% for m in messages %}{{ m.content }}{% endfor %}", {});
  CHECK_FALSE(none.has_calls());
  CHECK(parse(none, "  <tool_call> {\"name\": \"now\"}\n").content == "  <tool_call> {\"name\": \"now\"}\n");
  const auto unknown = format_of("@@{{ f.name }}%%{{ f.arguments | tojson }}$$");
  CHECK(parse(unknown, "a @@now%%{\"x\": 1}$$").listed() == "now {\"x\": 1}\n");
  CHECK(parse(unknown, "a @@ b").content == "a @@ b");
  const std::string source = "{% broken <tool_call> and </tool_call>";
  CHECK(parse(find_answer_format(source, {}), "<tool_call>{\"name\": \"now\"}</tool_call>").listed() == "now {}\n");
  const std::vector<std::string> tokens{"<|tool_call_start|>", "<|tool_call_end|>"};
  CHECK(parse(find_answer_format("{{ messages[0].content }}", tokens), "<|tool_call_start|>[now()]<|tool_call_end|>")
            .listed() == "now {}\n");
}

TEST_CASE("deep nesting and long heads are bounded") {
  const std::string deep(100'000, '[');
  CHECK(parse_pieces(tagged(), {}, "<tool_call>{\"name\": \"now\", \"arguments\": " + deep, 1 << 20).calls.size() == 1);
  CHECK(parse_pieces(tagged(), {}, "<tool_call>" + std::string(100'000, ' ') + "{}", 64).calls.empty());
  const std::string name(1000, 'n');
  CHECK(parse_pieces(tagged(), {}, "<tool_call>" + name + "{}", 64).content == "<tool_call>" + name + "{}");
}

TEST_CASE("deltas come as the text does") {
  const ToolTypes tools = ToolTypes::parse(kTestTools);
  AnswerParser parser(tagged(), tools, {});
  CHECK(parser.feed("Hello <").at(0).content == "Hello");
  CHECK(parser.feed("b>").at(0).content == " <b>");
  CHECK(parser.feed("\n<tool_call>\n{\"name\": \"weather\", ").at(0).calls.at(0).name == "weather");
  CHECK(parser.feed("\"arguments\": {\"city\": \"Os\xc3").at(0).calls.at(0).arguments == "{\"city\": \"Os");
  CHECK(parser.feed("\xb8").at(0).calls.at(0).arguments == "ø");
}

TEST_CASE("schemas give the types of untyped values") {
  CHECK(json_of_value("12", kStringType) == "\"12\"");
  CHECK(json_of_value(" 12 ", kNumberType) == "12");
  CHECK(json_of_value("twelve", kNumberType) == "\"twelve\"");
  CHECK(json_of_value("False", kBooleanType) == "false");
  CHECK(json_of_value("null", kStringType | kNullType) == "null");
  CHECK(json_of_value("{'a': (1, None)}", kObjectType) == "{\"a\": [1, null]}");
  CHECK(json_of_value("[1,", kArrayType) == "\"[1,\"");
  CHECK(json_of_value("x", 0) == "\"x\"");
  CHECK(json_of_value("[1]", 0) == "[1]");
}

namespace {

/// The types of the parameter x of a tool with these definitions.
ValueTypes types_of_x(const std::string& schema, const std::string& defs) {
  return ToolTypes::parse(R"([{"function": {"name": "f", "parameters": {"properties": {"x": )" + schema +
                          R"(}, "$defs": )" + defs + "}}}]")
      .types("f", "x");
}

std::string repeated(const std::string& part, std::size_t count) {
  std::string list = part;
  for (std::size_t i = 1; i < count; ++i) list += "," + part;
  return list;
}

}  // namespace

TEST_CASE("the types of a parameter are those of all that its schema refers to") {
  CHECK(types_of_x(R"({"anyOf": [{"type": "string"}, {"$ref": "#/$defs/a"}, {"const": 1}]})",
                   R"({"a": {"oneOf": [{"enum": [null, true]}, {"$ref": "#/$defs/b"}]}, "b": {"items": {}}})") ==
        (kStringType | kNumberType | kNullType | kBooleanType | kArrayType));
  CHECK(types_of_x(R"({"type": ["integer", "null"]})", "{}") == (kNumberType | kNullType));
  CHECK(types_of_x(R"({"allOf": [{"description": "d"}], "properties": {}})", "{}") == kObjectType);
  CHECK(types_of_x(R"({"allOf": [{"type": "string"}], "properties": {}})", "{}") == kStringType);
  CHECK(types_of_x(R"({"$ref": "#/$defs/nix"})", "{}") == 0);
  CHECK(types_of_x(R"({"$ref": 5, "maxLength": 3})", "{}") == kStringType);
}

TEST_CASE("schemas that refer to themselves, and long chains of references, are looked through once") {
  const std::string self = R"({"$ref": "#/$defs/a"})";
  CHECK(types_of_x(self, R"({"a": {"anyOf": [{"type": "null"}, )" + repeated(self, 30) + "]}}") == kNullType);
  // An expression tree: each kind of node may hold any other.
  const std::string any = R"({"anyOf": [)" + repeated(R"({"$ref": "#/$defs/a"}, {"$ref": "#/$defs/b"})", 20) + "]}";
  CHECK(types_of_x(any, R"({"a": )" + any + R"(, "b": {"oneOf": [{"type": "number"}, )" + any + "]}}") == kNumberType);
  std::string chain = R"({"end": {"type": "boolean"})";
  for (int i = 0; i < 100'000; ++i)
    chain += fmt::format(R"(, "r{}": {{"$ref": "#/$defs/{}"}})", i, i == 0 ? "end" : fmt::format("r{}", i - 1));
  CHECK(types_of_x(R"({"$ref": "#/$defs/r99999"})", chain + "}") == kBooleanType);
  // Work is bounded over all parameters: what is left then is unknown.
  const auto tools =
      ToolTypes::parse(R"([{"function": {"name": "f", "parameters": {"properties": {"first": {"type": "string"}, )" +
                       [] {
                         std::string members = R"("last": {"$ref": "#/$defs/r99999"})";
                         for (int i = 0; i < 1000; ++i)
                           members += fmt::format(R"(, "p{}": {{"$ref": "#/$defs/r99999"}})", i);
                         return members;
                       }() +
                       R"(}, "$defs": )" + chain + "}}}}]");
  CHECK(tools.types("f", "first") == kStringType);
  CHECK(tools.types("f", "p999") == 0);
}

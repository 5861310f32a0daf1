// Rules of calls on the reference data's templates: what they allow is written by random walks over the masks, and the
// parser reads it back as calls of offered tools whose arguments obey the schemas.

#include "session/constraint/call_rules.h"

#include <catch2/catch.hpp>
#include <map>
#include <random>

#include "tests/session/template_models.h"
#include "text/answer/answer_parser.h"
#include "text/answer/json_scanner.h"
#include "text/constraint/schema/schema.h"

namespace forge::session {
namespace {

using tests::TemplateModel;

constexpr std::string_view kTools = R"([
  {"type": "function", "function": {"name": "look-up", "parameters": {"type": "object", "properties": {
    "city": {"type": "string"}, "days": {"type": "integer"}, "unit": {"type": "string", "enum": ["C", "F", "ü <b>"]},
    "share": {"type": "number"}, "exact": {"type": "boolean"}, "none": {"type": "null"},
    "tags": {"type": "array", "items": {"type": "string", "maxLength": 9}, "maxItems": 3},
    "place": {"type": "object", "properties": {"x": {"type": "integer"}, "at": {"type": "array", "items": {
      "type": ["boolean", "null"]}, "maxItems": 2}}, "required": ["x"], "additionalProperties": false}},
    "required": ["city", "days"], "additionalProperties": false}}},
  {"type": "function", "function": {"name": "now", "parameters": {"type": "object", "properties": {
    "zone": {"type": "string"}, "hours": {"type": "number"}}, "additionalProperties": false}}},
  {"type": "function", "function": {"name": "stop"}}])";

/// Keywords for values and for the whole object, references, unions, and a required name that is not declared.
constexpr std::string_view kHardTools = R"([
  {"type": "function", "function": {"name": "put", "parameters": {"type": "object", "properties": {
    "code": {"type": "string", "pattern": "^[a-c]{3}$"}, "kind": {"const": "X"},
    "note": {"type": "string", "minLength": 2, "maxLength": 5}, "when": {"type": "string", "format": "date"},
    "either": {"type": ["string", "integer"], "minimum": 3, "maximum": 12, "maxLength": 4},
    "maybe": {"type": ["string", "null"], "enum": ["on", "off", null]}, "same": {"$ref": "#/properties/code"},
    "n": {"type": "integer", "minimum": 3, "maximum": 12}, "free": {"anyOf": [{"enum": ["a", 7]}, {"type": "null"}]},
    "list": {"type": "array", "items": {"$ref": "#/properties/n"}, "minItems": 1, "maxItems": 2}},
    "required": ["code", "kind", "extra"], "additionalProperties": {"type": "boolean"}, "minProperties": 2}}},
  {"type": "function", "function": {"name": "tree", "parameters": {"$ref": "#/$defs/T", "$defs": {"T": {
    "type": "object", "properties": {"x": {"type": "integer", "minimum": 0, "maximum": 99}, "child": {"anyOf": [{"$ref": "#/$defs/T"},
      {"type": "null"}]}}, "required": ["x"], "additionalProperties": false}}}}}])";

struct Schemas {
  explicit Schemas(std::string_view tools = kTools) {
    for (const auto& tool : nlohmann::ordered_json::parse(tools)) {
      const auto& function = tool["function"];
      text_of[function["name"]] =
          function.value("parameters", nlohmann::ordered_json{{"type", "object"}, {"additionalProperties", false}})
              .dump();
    }
  }
  [[nodiscard]] bool allow(const std::string& tool, std::string_view arguments) const {
    text::constraint::RegularPool pool;
    const auto language = text::constraint::compile_schema(pool, text_of.at(tool));
    auto expr = language.start;
    for (const char c : arguments) expr = pool.derivative(expr, static_cast<std::uint8_t>(c));
    return pool.nullable(expr);
  }
  /// The same for members in another order than that of the language: as declared, and others last.
  [[nodiscard]] bool allow_in_order(const std::string& tool, const std::string& arguments) const {
    using Json = nlohmann::ordered_json;
    auto left = Json::parse(arguments), sorted = Json::object();
    const auto properties = Json::parse(text_of.at(tool)).value("properties", Json::object());
    for (const auto& [key, value] : properties.items())
      if (left.contains(key)) {
        sorted[key] = left[key];
        left.erase(key);
      }
    sorted.update(left);
    return allow(tool, text::spaced_json(sorted.dump()));
  }
  std::map<std::string, std::string> text_of;
};

/// Constraints that see the markers of a model's answers.
struct ModelConstraints : Constraints {
  explicit ModelConstraints(const TemplateModel& model)
      : Constraints(*model.tokenizer, static_cast<std::size_t>(model.tokenizer->vocab_size()), kBytesMax,
                    answer_tokens(*model.tokenizer, model.format)) {}
};

/// What one answer's text is generated with.
class Writer {
 public:
  Writer(const TemplateModel& model, Constraints& constraints, const CallRules& rules, unsigned seed)
      : model_(model), random_(seed) {
    REQUIRE_FALSE(rules.pieces.empty());
    constraint_ = constraints.start(
        constraints.compile({text::constraint::ConstraintSyntax::kCalls, text::pieces_json(rules.pieces)}),
        rules.gate ? &*rules.gate : nullptr);
  }

  [[nodiscard]] bool allows(std::int32_t token) {
    const auto mask = constraint_->mask();
    const auto id = static_cast<std::size_t>(token);
    return mask.empty() || (mask[id / 32] >> id % 32 & 1U) != 0;
  }
  [[nodiscard]] bool may_end() {
    return std::ranges::any_of(model_.tokenizer->end_of_generation(), [&](auto id) { return allows(id); });
  }
  /// Types a text if every token of it is allowed; nothing of it else.
  bool type(const std::string& wanted) {
    const auto ids = model_.tokenizer->encode(wanted, {.parse_special = true});
    for (std::size_t i = 0; i < ids.size(); ++i)
      if (!allows(ids[i]) || !constraint_->accept(ids[i])) {
        constraint_->roll_back(i);
        return false;
      }
    text += wanted;
    return true;
  }
  /// Writes at random until the text may end. Values are ended now and then, or they would go on for ever.
  void walk() {
    const auto& layout = model_.format.layout;
    const std::vector<std::string> ends{"\"", layout.value_end, layout.quote, "<|end|><|start|>assistant"};
    for (int step = 0; step < 4000; ++step) {
      if (may_end() && (step > 300 || random_() % 4 == 0 || constraint_->ended())) return;
      std::vector<std::int32_t> ids;
      for (std::int32_t id = 0; id < model_.tokenizer->vocab_size(); ++id)
        if (allows(id) && !ends_or_thinks(id)) ids.push_back(id);
      if (ids.empty() && may_end()) return;
      INFO(model_.name << ": " << text);
      REQUIRE_FALSE(ids.empty());
      // A model that has begun to think must think.
      if (!text.empty() && text == model_.format.think_open && type("So it is." + model_.format.think_close)) continue;
      if (step > 300 && ids.size() < 60 && !layout.close.empty() && type(layout.close)) continue;
      const auto& end = ends[random_() % ends.size()];
      if (ids.size() > 60 && random_() % 8 == 0 && !end.empty() && type(end)) continue;
      auto id = ids[random_() % ids.size()];
      if (step > 300 && ids.size() < 60)  // numbers, lists and objects end
        for (const char c : {'}', ']', '/', ','})
          if (allows(c - '!')) id = c - '!';
      REQUIRE(constraint_->accept(id));
      text += model_.tokenizer->decode_piece(id, true);
    }
    FAIL(model_.name << ": no end: " << text);
  }

  std::string text;

 private:
  [[nodiscard]] bool ends_or_thinks(std::int32_t id) const {
    const auto& ends = model_.tokenizer->end_of_generation();
    return std::ranges::find(ends, id) != ends.end() || model_.tokenizer->token_text(id) == model_.format.think_open;
  }

  const TemplateModel& model_;
  std::mt19937 random_;
  std::unique_ptr<runtime::TokenConstraint> constraint_;
};

text::AnswerMessage read(const TemplateModel& model, const std::string& answer, std::size_t piece,
                         std::string_view offered = kTools) {
  const auto tools = text::ToolTypes::parse(offered);
  text::AnswerParser parser(model.format, tools, model.prompt);
  text::AnswerMessage message;
  for (std::size_t at = 0; at < answer.size(); at += piece) message.add(parser.feed(answer.substr(at, piece)));
  message.add(parser.finish(false));
  return message;
}

/// What a model that thinks writes before it answers; empty if the prompt keeps it from that.
std::string thought_of(const TemplateModel& model) {
  if (model.format.channels) return "<|channel|>analysis<|message|>So it is.<|end|><|start|>assistant";
  const auto gate = reasoning_gate(model.format, model.prompt);
  // A marker that is a token that ends generations is never written before the end.
  const bool ends = std::ranges::find(model.turn_ends, model.format.think_close) != model.turn_ends.end();
  return gate && !ends ? gate->opener + "So it is." + model.format.think_close : "";
}

}  // namespace

TEST_CASE("calls that must come, written at random behind reasoning or without, are read back and obey the schemas") {
  const Schemas schemas;
  for (const auto& model : tests::template_models()) {
    ModelConstraints constraints(*model);
    const std::string thought = thought_of(*model);
    std::size_t most = 0;
    for (unsigned seed = 0; seed < 12; ++seed) {
      const bool thinks = seed % 2 == 0;
      const auto rules = required_calls(model->format, {.tools = kTools, .only = {}, .several = true}, model->prompt,
                                        model->turn_ends);
      Writer writer(*model, constraints, rules, seed);
      INFO(model->name << " seed " << seed);
      CHECK_FALSE(writer.may_end());
      if (thinks && !thought.empty()) {
        CHECK(writer.type(thought));
      } else if (rules.gate && rules.gate->opener.empty()) {
        CHECK(writer.type(model->format.think_close));  // the prompt has begun to think
      }
      CHECK_FALSE(writer.may_end());
      CHECK_FALSE(writer.type("Zebra"));
      writer.walk();
      INFO(writer.text);
      const auto message = read(*model, writer.text, writer.text.size());
      CHECK(message.content.empty());
      if (thinks && !thought.empty()) CHECK(message.reasoning.starts_with("So it is."));
      REQUIRE_FALSE(message.calls.empty());
      most = std::max(most, message.calls.size());
      for (const auto& call : message.calls) {
        REQUIRE(schemas.text_of.contains(call.name));
        INFO(call.name << " " << call.arguments);
        CHECK(schemas.allow(call.name, call.arguments));
      }
      const auto streamed = read(*model, writer.text, 1);
      REQUIRE(streamed.calls.size() == message.calls.size());
      for (std::size_t i = 0; i < message.calls.size(); ++i)
        CHECK((streamed.calls[i].name == message.calls[i].name &&
               streamed.calls[i].arguments == message.calls[i].arguments));
    }
    INFO(model->name);
    if (model->format.layout.several) CHECK(most > 1);
  }
}

TEST_CASE("arguments between tags obey every keyword of their schemas") {
  const Schemas schemas(kHardTools);
  std::map<std::string, int> tagged;
  for (const auto& model : tests::template_models()) {
    ModelConstraints constraints(*model);
    const auto rules = required_calls(model->format, {.tools = kHardTools}, model->prompt, model->turn_ends);
    for (unsigned seed = 0; seed < 8; ++seed) {
      Writer writer(*model, constraints, rules, seed);
      INFO(model->name << " seed " << seed);
      if (rules.gate && rules.gate->opener.empty()) CHECK(writer.type(model->format.think_close));
      writer.walk();
      INFO(writer.text);
      const auto message = read(*model, writer.text, writer.text.size(), kHardTools);
      REQUIRE(message.calls.size() == 1);
      const auto& call = message.calls[0];
      INFO(call.name << " " << call.arguments);
      CHECK(schemas.allow_in_order(call.name, call.arguments));
      if (model->format.layout.arguments != text::CallLayout::Arguments::kJson) ++tagged[call.name];
    }
  }
  CHECK((tagged["put"] > 10 && tagged["tree"] > 10));
}

TEST_CASE("an answer that may call or be JSON is one of both, and is read back as that") {
  const Schemas schemas;
  constexpr std::string_view kAnswer =
      R"({"type": "object", "properties": {"sum": {"type": "integer"}}, "required": ["sum"], "additionalProperties": false})";
  int called = 0, answered = 0;
  for (const auto& model : tests::template_models()) {
    INFO(model->name);
    ModelConstraints constraints(*model);
    const OfferedCalls offered{.tools = kTools, .answer = kAnswer};
    const auto rules = required_calls(model->format, offered, model->prompt, model->turn_ends);
    if (model->format.is_bare()) {
      CHECK(rules.pieces.empty());
      continue;
    }
    for (unsigned seed = 0; seed < 6; ++seed) {
      Writer writer(*model, constraints, rules, seed);
      if (rules.gate && rules.gate->opener.empty()) CHECK(writer.type(model->format.think_close));
      CHECK_FALSE((writer.may_end() || writer.type("Zebra")));
      const bool answers = seed % 2 == 0;
      const std::string header = model->format.channels     ? "<|channel|>final<|message|>"
                                 : model->format.recipients ? "all\n"
                                                            : "";
      if (answers) REQUIRE(writer.type(header + "{\"sum\": "));
      writer.walk();
      INFO(writer.text);
      const auto message = read(*model, writer.text, writer.text.size());
      CHECK((message.calls.empty() != message.content.empty()));
      if (answers) CHECK(message.content.starts_with("{\"sum\": "));
      if (!message.content.empty()) CHECK(text::is_json(message.content));
      for (const auto& call : message.calls) CHECK(schemas.allow(call.name, call.arguments));
      ++(message.calls.empty() ? answered : called);
    }
  }
  CHECK((called > 20 && answered > 20));
}

TEST_CASE("what calls with a tag for each parameter cannot obey is refused by its keyword") {
  for (const auto& model : tests::template_models()) {
    if (model->format.layout.arguments == text::CallLayout::Arguments::kJson) continue;
    for (const std::string keyword :
         {R"("allOf": [{"required": ["a"]}])", R"("not": {"required": ["b"]})", R"("dependentRequired": {"a": ["b"]})",
          R"("minProperties": 1)", R"("patternProperties": {"^a": {"type": "integer"}})", R"("$ref": "#")"}) {
      const auto tools = R"([{"type": "function", "function": {"name": "f", "parameters": {"type": "object",
          "properties": {"a": {"type": "string"}, "b": {"type": "integer"}}, )" +
                         keyword + "}}}]";
      INFO(model->name << " " << tools);
      const auto name = keyword.substr(1, keyword.find('"', 1) - 1);
      CHECK_THROWS_WITH(required_calls(model->format, {.tools = tools}, model->prompt, model->turn_ends),
                        Catch::Contains(name));
    }
  }
}

TEST_CASE("only a strict tool's arguments obey its schema, and what looks like a call in reasoning is free") {
  const Schemas schemas;
  const std::vector<std::string> strict{"look-up"};
  for (const auto& model : tests::template_models()) {
    ModelConstraints constraints(*model);
    const auto rules = optional_calls(model->format, {.tools = kTools, .only = {}, .several = false, .strict = strict},
                                      model->prompt, model->turn_ends);
    const auto& layout = model->format.layout;
    const auto begin = layout.open.substr(0, layout.open.find(text::kIdMark));
    const bool has_id = begin.size() < layout.open.size();
    INFO(model->name);
    // No call at all.
    Writer none(*model, constraints, rules, 0);
    CHECK((none.may_end() && none.type("Zebra [1] {\"name\": \"Bo\"}") && none.may_end()));
    for (unsigned seed = 0; seed < 12; ++seed) {
      const bool is_strict = seed % 2 == 0;
      Writer writer(*model, constraints, rules, seed);
      // A marker that the model thinks about.
      auto thought = thought_of(*model);
      const bool thinks = !thought.empty();
      if (thinks && !model->format.channels) thought.replace(thought.find("So it is."), 0, "So " + layout.open + "! ");
      CHECK(writer.type(thought));
      CHECK(writer.may_end());
      const std::string name = is_strict ? "look-up" : "now";
      const auto head = text::calls_text(layout, std::vector<text::WrittenCall>{{.name = name, .arguments = "{}"}});
      if (has_id) {
        CHECK(writer.type(begin));
      } else {
        // Without a marker the call begins with the end of the name.
        const bool by_name = model->format.is_bare() || model->format.recipients;
        const auto size = head.find(name) + name.size() + (by_name ? 1 : 0);
        CHECK(writer.type(head.substr(0, size)));
      }
      CHECK_FALSE(writer.may_end());
      writer.walk();
      INFO(writer.text);
      const auto message = read(*model, writer.text, writer.text.size());
      CHECK(message.content.empty());
      REQUIRE_FALSE(message.calls.empty());
      for (const auto& call : message.calls) {
        INFO(call.name << " " << call.arguments);
        REQUIRE(schemas.text_of.contains(call.name));
        CHECK((call.arguments.starts_with('{') && text::is_json(call.arguments)));
        if (call.name == "look-up") CHECK(schemas.allow(call.name, call.arguments));
      }
    }
  }
}

}  // namespace forge::session

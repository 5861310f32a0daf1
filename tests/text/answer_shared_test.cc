// The reference data's answers of 40 chat templates: parsed whole and in pieces; and what the templates' layouts say of
// calls, written and read back.
#include <algorithm>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>

#include "tests/support/skip.h"
#include "tests/text/answer_help.h"
#include "text/answer/call_grammar.h"
#include "text/answer/white_space.h"
#include "text/constraint/call_language.h"

using namespace forge::text;
using Json = nlohmann::ordered_json;

namespace {

struct Known {
  AnswerFormat format;
  std::vector<std::string> turn_ends;
};

/// The formats of all templates by name; empty, and the case skipped, without the data.
struct Shared {
  Json file;
  std::map<std::string, Known> known;

  Shared() {
    const auto path = forge::tests::reference_file("agents/toolcalls.json");
    if (path.empty()) return;
    std::ifstream in(path), more(forge::tests::reference_path("chat/templates.json"));
    file = Json::parse(in);
    const auto named = Json::parse(more);
    for (const auto& [name, item] : file["templates"].items()) {
      auto source = item.value("template_source", "");
      if (source.empty()) {
        const auto reference = item["template_ref"].get<std::string>();
        for (const auto& one : named)
          if (reference.ends_with(": " + one["name"].get<std::string>())) source = one["template"];
      }
      REQUIRE(!source.empty());
      const auto text = [&](const char* key) { return item[key].is_string() ? item[key].get<std::string>() : ""; };
      known[name] = {.format = find_answer_format(source, item["special_tokens"].get<std::vector<std::string>>(),
                                                  text("bos_token"), text("eos_token")),
                     .turn_ends = item["end_of_turn"].get<std::vector<std::string>>()};
    }
  }
};

/// The message as the reference data has it, without ids. Arguments that are no JSON stay text.
Json json_of(const AnswerMessage& message) {
  const auto trim = [](const std::string& text) { return std::string(trimmed(text)); };
  Json out{{"content", trim(message.content)}, {"reasoning_content", trim(message.reasoning)}};
  out["tool_calls"] = Json::array();
  for (const auto& call : message.calls) {
    auto arguments = Json::parse(call.arguments, nullptr, false);
    out["tool_calls"].push_back({{"name", call.name}, {"arguments", std::move(arguments)}});
  }
  out["finish_reason"] = to_string(message.finish);
  return out;
}

Json expected_of(const Json& expected) {
  AnswerMessage none;
  Json out = json_of(none);
  for (const char* const key : {"content", "reasoning_content"})
    out[key] = std::string(trimmed(expected.value(key, "")));
  for (const auto& call : expected.value("tool_calls", Json::array()))
    out["tool_calls"].push_back({{"name", call["name"]}, {"arguments", call["arguments"]}});
  out["finish_reason"] = expected["finish_reason"];
  return out;
}

/// Equal without regard to the order of members.
bool same(const Json& a, const Json& b) {
  return nlohmann::json::parse(a.dump()) == nlohmann::json::parse(b.dump());
}

/// The text of pieces for the call's arguments; what is optional is there if the arguments have it.
std::string text_of(const std::vector<CallPiece>& pieces, const std::string& tool, const Json& arguments) {
  std::string out;
  for (const auto& piece : pieces) {
    const auto* value = piece.key.empty() ? nullptr : arguments.contains(piece.key) ? &arguments[piece.key] : nullptr;
    switch (piece.kind) {
      case CallPiece::Kind::kLiteral:
        out += piece.text;
        break;
      case CallPiece::Kind::kSchema:
        CHECK(Json::parse(piece.text).is_object());
        out += piece.key.empty() ? arguments.dump() : value->dump();
        break;
      case CallPiece::Kind::kText:
        CHECK(!piece.text.empty());
        out += value->get<std::string>();
        break;
      case CallPiece::Kind::kTagged:
        CHECK((Json::parse(piece.text).is_object() && !piece.until.empty()));
        out += value->is_string() ? value->get<std::string>() : value->dump();
        break;
      case CallPiece::Kind::kId:
        out += "abcdef123";
        break;
      case CallPiece::Kind::kIndex:
        out += "0";
        break;
      case CallPiece::Kind::kChoice: {
        if (!piece.key.empty()) {  // one of the values of an enum
          out += value->get<std::string>();
          break;
        }
        // The choice of parameters that fits: the longest one whose keys are all there.
        std::string best;
        for (const auto& part : piece.parts) {
          const bool fits =
              std::ranges::all_of(part, [&](const CallPiece& p) { return p.key.empty() || arguments.contains(p.key); });
          if (!fits) continue;
          if (auto text = text_of(part, tool, arguments); text.size() > best.size()) best = std::move(text);
        }
        out += best;
        break;
      }
      case CallPiece::Kind::kOptional: {
        const auto& part = piece.parts[0];
        const bool wanted =
            std::ranges::all_of(part, [&](const CallPiece& p) { return p.key.empty() || arguments.contains(p.key); });
        if (wanted) out += text_of(part, tool, arguments);
        break;
      }
      case CallPiece::Kind::kRepeat:
      case CallPiece::Kind::kKey:
        break;
    }
  }
  return out;
}

constexpr std::string_view kTools = R"([
  {"type": "function", "function": {"name": "look-up", "parameters": {"type": "object", "properties": {
    "city": {"type": "string"}, "days": {"type": "integer"}, "unit": {"type": "string", "enum": ["C", "F"]},
    "tags": {"type": "array", "items": {"type": "string"}}, "exact": {"type": "boolean"}}, "required": ["city"]}}},
  {"type": "function", "function": {"name": "now", "parameters": {"type": "object", "properties": {
    "zone": {"type": "string"}, "hours": {"type": "number"}}}}}])";

const std::vector<std::pair<std::string, Json>> kCalls{
    {"look-up", {{"city", "São \"Tomé\" <b> {1}"}}},
    {"look-up", {{"city", "Rome"}, {"days", 3}, {"unit", "F"}, {"tags", {"a", "b c"}}, {"exact", true}}},
    {"now", Json::object()},
    {"now", {{"zone", "CET"}, {"hours", 1.5}}},
    {"now", {{"hours", -2}}}};

bool matches(constraint::RegularPool& pool, constraint::Expr expr, std::string_view text) {
  for (const char c : text) expr = pool.derivative(expr, static_cast<std::uint8_t>(c));
  return pool.nullable(expr);
}

/// The pieces' language has the text, and no text in which a byte is missing. Schemas allow the given values only.
void check_language(const std::vector<CallPiece>& pieces, const std::string& text, const Json& arguments) {
  constraint::RegularPool pool;
  const auto values_of = [&](bool plain) {
    std::vector<constraint::Expr> values;
    for (const auto& [key, value] : arguments.items())
      values.push_back(pool.literal(plain && value.is_string() ? value.get<std::string>() : value.dump()));
    if (!plain) values.push_back(pool.literal(arguments.dump()));
    return pool.or_(values);
  };
  const auto language =
      constraint::call_language(pool, pieces_json(pieces),
                                {.json = [&](std::string_view, std::string_view) { return values_of(false); },
                                 .tagged = [&](const constraint::TaggedValue&) { return values_of(true); }});
  INFO(text << "\n" << pieces_json(pieces));
  CHECK(matches(pool, language, text));
  const std::string value = arguments.value("city", "");
  for (std::size_t at = 0; at < text.size(); ++at) {
    auto less = text;
    less.erase(at, 1);
    // Free text, and what repeats a letter, may lose one. A broken tag is free text if another one follows.
    const bool free = !value.empty() && at >= text.find(value) && at < text.find(value) + value.size();
    if (free || arguments.contains("zone") || arguments.size() > 1) continue;
    const bool twin = at + 1 < text.size() && text[at + 1] == text[at];
    if (!twin) CHECK_FALSE(matches(pool, language, less));
  }
}

std::string prompt_of(const Shared& shared, const std::string& name) {
  for (const auto& one : shared.file["cases"])
    if (one["template"] == name && one.contains("prompt")) return one["prompt"];
  return {};
}

AnswerMessage parsed(const AnswerFormat& format, const ToolTypes& tools, std::string_view prompt, std::string_view text,
                     std::size_t pieces, bool cut) {
  AnswerParser parser(format, tools, prompt);
  AnswerMessage message;
  for (std::size_t i = 0, at = 0; i < pieces; ++i) {
    const std::size_t end = text.size() * (i + 1) / pieces;
    message.add(parser.feed(text.substr(at, end - at)));
    at = end;
  }
  message.add(parser.finish(cut));
  return message;
}

}  // namespace

TEST_CASE("the answers of the reference data's templates") {
  const Shared shared;
  for (const auto& one : shared.file.value("cases", Json::array())) {
    const auto& known = shared.known.at(one["template"].get<std::string>());
    const auto tools = ToolTypes::parse(one.contains("tools") ? one["tools"].dump() : "[]");
    const auto text = one["completion"].get<std::string>();
    const bool cut = one["ended"] == "length";
    // A call that was cut, and several right answers, are left to the judge.
    if (cut || one.contains("expected_any")) continue;
    for (const std::size_t pieces : {std::size_t{1}, std::size_t{5}, text.size() + 1}) {
      const auto message = json_of(parsed(known.format, tools, one.value("prompt", ""), text, pieces, cut));
      INFO(one["template"] << ": " << one["kind"] << " in " << pieces << " pieces: " << text << "\n" << message.dump());
      CHECK(same(message, expected_of(one["expected"])));
    }
  }
}

TEST_CASE("a call that is written by a template's layout or grammar is read back") {
  const Shared shared;
  const auto tools = ToolTypes::parse(kTools);
  std::size_t unknown = 0;
  for (const auto& [name, known] : shared.known) {
    const bool has_calls = known.format.has_calls();
    const auto format = has_calls ? known.format : known.format.with_described_calls();
    auto prompt = prompt_of(shared, name);
    // A reasoning block that the prompt has opened is closed before calls.
    const bool thinks = !format.think_open.empty() && trimmed(prompt).ends_with(format.think_open);
    const std::string thought = thinks ? "So.\n" + format.think_close + "\n" : "";
    if (format.layout.arguments == CallLayout::Arguments::kUnknown) ++unknown;
    for (const auto& [tool, arguments] : kCalls) {
      const Json expected{{{"name", tool}, {"arguments", arguments}}};
      auto pieces = call_grammar(format.layout, kTools, tool, true);
      trim_literals(pieces, thinks ? "" : prompt, known.turn_ends);
      check_language(pieces, text_of(pieces, tool, arguments), arguments);
      const std::vector<WrittenCall> call{{.name = tool, .arguments = arguments.dump(), .id = {}}};
      for (const auto& text : {text_of(pieces, tool, arguments), calls_text(format.layout, call)}) {
        const auto message = json_of(parsed(format, tools, prompt, thought + text, 1, false));
        INFO(name << ": " << text << "\n" << message.dump());
        CHECK(same(message["tool_calls"], expected));
        CHECK(message["content"] == "");
      }
    }
    const std::vector<WrittenCall> two{{.name = "now", .arguments = "{}", .id = {}},
                                       {.name = "look-up", .arguments = R"({"city": "Rome"})"}};
    const auto text = calls_text(format.layout, two);
    const auto message = parsed(format, tools, prompt, thought + text, 1, false);
    INFO(name << ": " << text);
    if (format.layout.several) CHECK(message.calls.size() == 2);
  }
  CHECK(unknown == 0);
}

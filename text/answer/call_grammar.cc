#include "text/answer/call_grammar.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>

#include "support/error.h"
#include "text/answer/call_parameters.h"
#include "text/answer/tool_types.h"
#include "text/answer/white_space.h"

namespace forge::text {
namespace {

using Json = nlohmann::ordered_json;
using Kind = CallPiece::Kind;
using Pieces = std::vector<CallPiece>;

CallPiece literal(std::string text) {
  return {.kind = Kind::kLiteral, .text = std::move(text)};
}

/// Adds text with a layout's marks; literals that meet become one.
void add_text(Pieces& pieces, std::string_view text, std::string_view name) {
  const auto add = [&](std::string_view part) {
    if (part.empty()) return;
    if (!pieces.empty() && pieces.back().kind == Kind::kLiteral)
      pieces.back().text += part;
    else
      pieces.push_back(literal(std::string(part)));
  };
  while (!text.empty()) {
    const std::size_t at = std::min(text.find_first_of("\x01\x02\x03"), text.size());
    add(text.substr(0, at));
    if (at == text.size()) return;
    if (text[at] == kNameMark)
      add(name);
    else
      pieces.push_back({.kind = text[at] == kIdMark ? Kind::kId : Kind::kIndex});
    text.remove_prefix(at + 1);
  }
}

void append(Pieces& to, Pieces from) {
  for (auto& piece : from) {
    if (piece.kind == Kind::kLiteral)
      add_text(to, piece.text, {});
    else
      to.push_back(std::move(piece));
  }
}

/// The tag before a value that is JSON, where the tag tells strings apart.
std::string json_tag(std::string tag) {
  constexpr std::string_view kIsString = "string=\"true\"";
  if (const std::size_t at = tag.find(kIsString); at != std::string::npos)
    tag.replace(at, kIsString.size(), "string=\"false\"");
  return tag;
}

/// What ends the value of the parameter `key`.
std::string value_end_of(const CallLayout& layout, const std::string& key) {
  std::string end = layout.value_end;
  if (const std::size_t at = end.find(kKeyMark); at != std::string::npos) end.replace(at, 1, key);
  return end;
}

struct Tool {
  std::string name;
  Json schema;
  bool is_loose = false;  ///< any object is its arguments
};

bool has_no_parameters(const Json& schema) {
  constexpr std::string_view kWords[] = {"type", "properties", "required", "description", "title", "$schema"};
  const auto properties = schema.find("properties");
  if (properties == schema.end() || !properties->empty()) return false;
  for (const auto& [key, value] : schema.items())
    if (std::ranges::find(kWords, key) == std::end(kWords)) return false;
  return true;
}

std::vector<Tool> tools_of(std::string_view text, std::string_view only,
                           std::optional<std::span<const std::string>> strict) {
  const Json tools = Json::parse(text, nullptr, false);
  if (!tools.is_array()) throw Error(ErrorCode::kUsage, "\"tools\" is not a list");
  std::vector<Tool> out;
  for (const auto& tool : tools) {
    const Json& function = tool.is_object() && tool.contains("function") ? tool["function"] : tool;
    if (!function.is_object() || !function.contains("name") || !function["name"].is_string())
      throw Error(ErrorCode::kUsage, "a tool has no name");
    const auto name = function["name"].get<std::string>();
    if (!only.empty() && name != only) continue;
    Json schema = function.value("parameters", Json());
    if (!schema.is_object()) schema = {{"type", "object"}, {"properties", Json::object()}};
    if (!schema.contains("$ref")) schema["type"] = "object";  // whatever else it allows
    // A tool without parameters, as clients write it.
    if (has_no_parameters(schema)) schema["additionalProperties"] = false;
    const bool is_loose = strict && std::ranges::find(*strict, name) == strict->end();
    out.push_back({.name = name, .schema = std::move(schema), .is_loose = is_loose});
  }
  return out;
}

class CallWriter {
 public:
  CallWriter(const CallLayout& layout, const Tool& tool, const ToolTypes& types)
      : layout_(layout), tool_(tool), types_(types) {}

  /// NAME name_end ARGUMENTS close, after `begin`.
  Pieces call(const std::string& begin) const {
    Pieces out;
    add_text(out, begin + kNameMark + layout_.name_end, tool_.name);
    if (layout_.arguments == CallLayout::Arguments::kJson)
      out.push_back({.kind = Kind::kSchema, .text = tool_.is_loose ? R"({"type":"object"})" : tool_.schema.dump()});
    else if (tool_.is_loose && !layout_.value_end.contains(kKeyMark))
      add_any_parameters(out);
    else
      add_parameters(out);
    add_text(out, layout_.close, tool_.name);
    return out;
  }

 private:
  void add_parameters(Pieces& out) const {
    const CallParameters parameters(tool_.schema);
    std::vector<Pieces> needed, others;
    for (const auto& one : parameters.needed) needed.push_back(parameter(one));
    for (const auto& one : parameters.others) others.push_back(parameter(one));
    const std::string& between = layout_.key_between;
    for (std::size_t i = 0; i < needed.size(); ++i) {
      if (i > 0) add_text(out, between, {});
      append(out, std::move(needed[i]));
    }
    if (others.empty()) return;
    if (!needed.empty() || between.empty()) return append(out, optional_from(others, 0));
    // The first of optional ones has nothing before it.
    CallPiece choice{.kind = Kind::kChoice, .parts = {{}}};
    for (std::size_t i = 0; i < others.size(); ++i) {
      choice.parts.push_back(others[i]);
      append(choice.parts.back(), optional_from(others, i + 1));
    }
    out.push_back(std::move(choice));
  }

  Pieces optional_from(const std::vector<Pieces>& parameters, std::size_t first) const {
    Pieces out;
    for (std::size_t i = first; i < parameters.size(); ++i) {
      Pieces part;
      add_text(part, layout_.key_between, {});
      append(part, parameters[i]);
      out.push_back({.kind = Kind::kOptional, .parts = {std::move(part)}});
    }
    return out;
  }

  /// Any number of parameters of any name.
  void add_any_parameters(Pieces& out) const {
    const bool tagged = layout_.arguments == CallLayout::Arguments::kTagged;
    const auto one = [&](std::string_view before) {
      Pieces pieces;
      add_text(pieces, before, {});
      add_text(pieces, layout_.key_begin, {});
      pieces.push_back({.kind = Kind::kKey});
      Pieces text, json;
      add_text(text, layout_.value_begin, {});
      add_text(json, json_tag(layout_.value_begin), {});
      text.push_back({.kind = Kind::kText, .text = std::string(trimmed(layout_.value_end))});
      json.push_back({.kind = Kind::kSchema, .text = "{}"});
      if (tagged && text[0].text == json[0].text)
        append(pieces, std::move(text));
      else if (tagged)
        pieces.push_back({.kind = Kind::kChoice, .parts = {std::move(text), std::move(json)}});
      else
        append(pieces, std::move(json));
      add_text(pieces, layout_.value_end, {});
      return pieces;
    };
    CallPiece more{.kind = Kind::kRepeat, .parts = {one(layout_.key_between)}};
    if (layout_.key_between.empty()) {
      out.push_back(std::move(more));
      return;
    }
    auto first = one({});
    first.push_back(std::move(more));
    out.push_back({.kind = Kind::kOptional, .parts = {std::move(first)}});
  }

  Pieces parameter(const CallParameters::One& one) const {
    Pieces out;
    const auto& key = one.key;
    ValueTypes types = types_.types(tool_.name, key);
    const std::string value_end = value_end_of(layout_, key);
    const bool tagged = layout_.arguments == CallLayout::Arguments::kTagged;
    const bool text =
        tagged ? types == 0 || (types & kStringType) != 0 : !layout_.quote.empty() && types == kStringType;
    const auto json_begin = json_tag(layout_.value_begin);
    if (text && types == 0 && json_begin != layout_.value_begin) types = kStringType;  // the tag says so
    add_text(out, layout_.key_begin + key + (text ? layout_.value_begin : json_begin), {});
    const bool quoted = text && !tagged;
    const std::string end(quoted ? std::string_view(layout_.quote) : trimmed(value_end));
    if (quoted) add_text(out, layout_.quote, {});
    CallPiece value{.kind = Kind::kText, .text = end, .key = key};
    if (!text || !takes_any_text(*one.schema)) {
      auto schema = placed_schema(tool_.schema, one);
      value = {.kind = Kind::kSchema, .text = std::move(schema.text), .at = std::move(schema.at), .key = key};
      if (text || tagged) {
        value.kind = Kind::kTagged;
        value.until = end;
        value.types = names_of(types);
      }
    }
    out.push_back(std::move(value));
    if (quoted) add_text(out, layout_.quote, {});
    add_text(out, value_end, {});
    return out;
  }

  static std::vector<std::string> names_of(ValueTypes types) {
    std::vector<std::string> out;
    for (const auto& [type, name] : {std::pair(kStringType, "string"),
                                     {kNumberType, "number"},
                                     {kBooleanType, "boolean"},
                                     {kNullType, "null"},
                                     {kObjectType, "object"},
                                     {kArrayType, "array"}})
      if ((types & type) != 0) out.emplace_back(name);
    return out;
  }

  const CallLayout& layout_;
  const Tool& tool_;
  const ToolTypes& types_;
};

Json json_of_pieces(std::span<const CallPiece> pieces) {
  Json out = Json::array();
  for (const auto& piece : pieces) {
    switch (piece.kind) {
      case Kind::kLiteral:
        out.push_back(piece.text);
        break;
      case Kind::kSchema:
        out.push_back(piece.at.empty() ? Json{{"schema", piece.text}} : Json{{"schema", piece.text}, {"at", piece.at}});
        break;
      case Kind::kTagged:
        out.push_back({{"value", piece.text}, {"at", piece.at}, {"until", piece.until}, {"types", piece.types}});
        break;
      case Kind::kText:
        out.push_back({{"until", piece.text}});
        break;
      case Kind::kId:
        out.push_back({{"id", 9}});
        break;
      case Kind::kIndex:
        out.push_back({{"index", true}});
        break;
      case Kind::kKey:
        out.push_back({{"key", true}});
        break;
      case Kind::kOptional:
        out.push_back({{"optional", json_of_pieces(piece.parts[0])}});
        break;
      case Kind::kRepeat:
        out.push_back({{"repeat", json_of_pieces(piece.parts[0])}});
        break;
      case Kind::kChoice: {
        Json parts = Json::array();
        for (const auto& part : piece.parts) parts.push_back(json_of_pieces(part));
        out.push_back({{"choice", std::move(parts)}});
        break;
      }
    }
  }
  return out;
}

/// JSON as Python's json.dumps writes it, which templates print and models have learnt.
std::string spaced(const Json& json) {
  if (json.is_structured() && !json.empty()) {
    std::string out;
    for (const auto& [key, value] : json.items()) {
      out += out.empty() ? "" : ", ";
      if (json.is_object()) out += Json(key).dump() + ": ";
      out += spaced(value);
    }
    return json.is_object() ? "{" + out + "}" : "[" + out + "]";
  }
  return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

std::string arguments_text(const CallLayout& layout, const Json& arguments) {
  if (arguments.is_string()) return arguments.get<std::string>();  // of a call that was cut
  if (layout.arguments == CallLayout::Arguments::kJson) return spaced(arguments);
  std::string out;
  for (const auto& [key, value] : arguments.items()) {
    const bool tagged = layout.arguments == CallLayout::Arguments::kTagged;
    const bool text = value.is_string() && (tagged || !layout.quote.empty());
    if (!out.empty()) out += layout.key_between;
    out += layout.key_begin + key + (text ? layout.value_begin : json_tag(layout.value_begin));
    if (text && !tagged) out += layout.quote;
    out += text ? value.get<std::string>() : spaced(value);
    if (text && !tagged) out += layout.quote;
    out += value_end_of(layout, key);
  }
  return out;
}

}  // namespace

std::vector<CallPiece> call_grammar(const CallLayout& layout, std::string_view tools, std::string_view only,
                                    bool several, std::optional<std::span<const std::string>> strict) {
  const std::vector<Tool> list = tools_of(tools, only, strict);
  if (layout.arguments == CallLayout::Arguments::kUnknown || list.empty()) return {};
  const ToolTypes types = ToolTypes::parse(tools);
  const auto any = [&](const std::string& begin) {
    CallPiece choice{.kind = Kind::kChoice};
    for (const auto& tool : list) choice.parts.push_back(CallWriter(layout, tool, types).call(begin));
    return choice.parts.size() == 1 ? std::move(choice.parts[0]) : Pieces{std::move(choice)};
  };
  Pieces out = any(layout.open);
  if (several && layout.several) out.push_back({.kind = Kind::kRepeat, .parts = {any(layout.between)}});
  add_text(out, layout.end, {});
  return out;
}

std::vector<std::string> tool_names(std::string_view tools) {
  std::vector<std::string> out;
  for (auto& tool : tools_of(tools, {}, std::nullopt)) out.push_back(std::move(tool.name));
  return out;
}

void trim_literals(std::vector<CallPiece>& pieces, std::string_view prompt, std::span<const std::string> turn_ends) {
  if (pieces.empty()) return;
  auto& last = pieces.back();
  for (const auto& end : turn_ends)
    if (!end.empty() && last.kind == Kind::kLiteral) last.text.resize(std::min(last.text.find(end), last.text.size()));
  const auto trim_begin = [&](Pieces& part) {
    if (part.empty() || part[0].kind != Kind::kLiteral) return;
    auto& text = part[0].text;
    for (std::size_t size = std::min(text.size(), prompt.size()); size > 0; --size)
      if (prompt.ends_with(text.substr(0, size))) {
        text.erase(0, size);
        return;
      }
  };
  if (pieces[0].kind == Kind::kChoice)
    for (auto& part : pieces[0].parts) trim_begin(part);
  else
    trim_begin(pieces);
  std::erase_if(pieces, [](const CallPiece& piece) { return piece.kind == Kind::kLiteral && piece.text.empty(); });
}

std::string pieces_json(std::span<const CallPiece> pieces) {
  return json_of_pieces(pieces).dump();
}

std::string spaced_json(std::string_view json) {
  return spaced(Json::parse(json));
}

std::string calls_text(const CallLayout& layout, std::span<const WrittenCall> calls) {
  if (layout.arguments == CallLayout::Arguments::kUnknown || calls.empty()) return {};
  std::string out;
  for (std::size_t i = 0; i < calls.size(); ++i) {
    Pieces pieces;
    if (i > 0 && !layout.several) add_text(pieces, layout.end + "\n", calls[i - 1].name);
    add_text(pieces, (i == 0 || !layout.several ? layout.open : layout.between) + kNameMark + layout.name_end,
             calls[i].name);
    pieces.push_back(
        {.kind = Kind::kSchema, .text = arguments_text(layout, Json::parse(calls[i].arguments, nullptr, false))});
    add_text(pieces, layout.close, calls[i].name);
    for (const auto& piece : pieces)
      out += piece.kind == Kind::kId      ? (calls[i].id.empty() ? std::string("000000000") : calls[i].id)
             : piece.kind == Kind::kIndex ? std::to_string(i)
                                          : piece.text;
  }
  return out + layout.end;
}

}  // namespace forge::text

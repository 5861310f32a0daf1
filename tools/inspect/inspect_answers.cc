#include "tools/inspect/inspect_answers.h"

#include <fmt/format.h>

#include <iostream>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "support/error.h"
#include "support/os/console.h"
#include "text/answer/answer_parser.h"
#include "text/answer/json_scanner.h"

namespace forge::tools {
namespace {

using Json = nlohmann::ordered_json;
using text::AnswerDelta;

[[noreturn]] void refuse(std::string_view why) {
  throw Error(ErrorCode::kUsage, std::string(why));
}

std::string text_member(const Json& line, const char* key, bool required) {
  const auto found = line.find(key);
  if (found == line.end() || found->is_null()) {
    if (required) refuse(fmt::format("\"{}\" is missing", key));
    return {};
  }
  if (!found->is_string()) refuse(fmt::format("\"{}\" is not a string", key));
  return found->get<std::string>();
}

std::vector<std::string> text_list(const Json& line, const char* key) {
  const auto found = line.find(key);
  if (found == line.end() || found->is_null()) return {};
  if (!found->is_array()) refuse(fmt::format("\"{}\" is not a list", key));
  std::vector<std::string> out;
  for (const auto& item : *found) {
    if (!item.is_string()) refuse(fmt::format("\"{}\" is not a list of strings", key));
    out.push_back(item.get<std::string>());
  }
  return out;
}

Json json_of(const std::vector<AnswerDelta>& deltas) {
  Json out = Json::array();
  for (const auto& delta : deltas) {
    Json item = Json::object();
    if (!delta.reasoning.empty()) item["reasoning_content"] = delta.reasoning;
    if (!delta.content.empty()) item["content"] = delta.content;
    for (const auto& call : delta.calls) {
      Json piece{{"index", call.index}};
      if (!call.id.empty()) piece["id"] = call.id;
      if (!call.name.empty()) piece["name"] = call.name;
      if (!call.arguments.empty()) piece["arguments"] = call.arguments;
      item["tool_calls"].push_back(std::move(piece));
    }
    if (delta.finish != text::FinishReason::kNone) item["finish_reason"] = to_string(delta.finish);
    out.push_back(std::move(item));
  }
  return out;
}

/// The message that the deltas make.
Json joined(const std::vector<AnswerDelta>& deltas) {
  text::AnswerMessage message;
  message.add(deltas);
  Json out{{"content", message.content}, {"reasoning_content", message.reasoning}, {"tool_calls", Json::array()}};
  for (const auto& call : message.calls) {
    Json item = Json::object();
    if (!call.id.empty()) item["id"] = call.id;
    item["name"] = call.name;
    item["arguments"] = call.arguments;
    out["tool_calls"].push_back(std::move(item));
  }
  out["finish_reason"] = to_string(message.finish);
  return out;
}

class AnswerLines {
 public:
  Json parse(const std::string& source) {
    if (!text::is_json(source)) refuse("it is not JSON, or nested too deep");
    const Json line = Json::parse(source, nullptr, false);
    if (line.is_discarded()) refuse("it is not JSON");
    if (!line.is_object()) refuse("it is not an object");
    const std::string prompt = text_member(line, "prompt", false);
    const auto tools = line.find("tools");
    const text::ToolTypes types = text::ToolTypes::parse(tools == line.end() ? "null" : tools->dump());
    const std::string ended = text_member(line, "ended", false);
    if (!ended.empty() && ended != "stop" && ended != "length") refuse("\"ended\" is neither \"stop\" nor \"length\"");
    const bool cut = ended == "length";
    text::AnswerParser parser(format_of(line), types, prompt);
    if (!line.contains("chunks")) {
      std::vector<AnswerDelta> deltas = parser.feed(text_member(line, "completion", true));
      for (auto& delta : parser.finish(cut)) deltas.push_back(std::move(delta));
      return joined(deltas);
    }
    Json deltas = Json::array();
    for (const auto& chunk : text_list(line, "chunks")) deltas.push_back(json_of(parser.feed(chunk)));
    deltas.push_back(json_of(parser.finish(cut)));
    return Json{{"deltas", std::move(deltas)}};
  }

 private:
  static constexpr std::size_t kFormatsMax = 64;

  /// Formats are kept, because neighbouring lines tend to have the same template.
  const text::AnswerFormat& format_of(const Json& line) {
    const std::string source = text_member(line, "template_source", true), bos = text_member(line, "bos_token", false),
                      eos = text_member(line, "eos_token", false);
    const std::vector<std::string> control = text_list(line, "special_tokens");
    std::string key = Json{source, bos, eos, control}.dump();
    if (const auto found = formats_.find(key); found != formats_.end()) return found->second;
    if (formats_.size() == kFormatsMax) formats_.clear();
    return formats_.emplace(std::move(key), text::find_answer_format(source, control, bos, eos)).first->second;
  }

  std::map<std::string, text::AnswerFormat> formats_;
};

}  // namespace

void inspect_parse_answers() {
  std::ios::sync_with_stdio(false);
  AnswerLines lines;
  Output out;
  std::string line;
  for (std::size_t number = 1; std::getline(std::cin, line); ++number) {
    try {
      out.write(lines.parse(line).dump(-1, ' ', false, Json::error_handler_t::replace) + '\n');
    } catch (const Error& error) {
      throw error.within(fmt::format("line {}", number));
    }
  }
}

}  // namespace forge::tools

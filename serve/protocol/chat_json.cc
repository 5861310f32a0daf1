#include "serve/protocol/chat_json.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <optional>
#include <set>
#include <utility>

namespace forge::serve {
namespace {

constexpr std::size_t kToolNameBytesMax = 64, kToolsMax = 512;

[[noreturn]] void refuse_message(std::string message) {
  refuse_value("messages", std::move(message));
}

/// Joins a content that is a list of text parts into one string, the only form that templates of text models handle.
/// No content becomes "": templates print a null as the word None.
void settle_content(Json& message) {
  auto& content = message["content"];
  if (content.is_null()) content = "";
  if (content.is_string()) return;
  if (!content.is_array()) refuse_message("a message's content is not a string or a list of parts");
  std::string text;
  for (const auto& part : content) {
    const bool is_text =
        part.is_object() && part.value("type", Json()) == "text" && part.contains("text") && part["text"].is_string();
    if (!is_text)
      throw Refused{
          bad_request("not_supported", "a message has a part that is not text; only text is supported", "messages")};
    text += part["text"].get<std::string>();
  }
  content = text;
}

/// Parses the arguments of a tool call: OpenAI sends them as a string of JSON, chat templates expect the object.
void settle_arguments(Json& function, const std::string& name) {
  auto& arguments = function["arguments"];
  if (arguments.is_string()) {
    const auto& text = arguments.get_ref<const std::string&>();
    auto parsed = text.find_first_not_of(" \t\n\r") == std::string::npos ? Json::object()
                                                                         : parse_inner(text, "a call's arguments");
    arguments = std::move(parsed);
  }
  if (arguments.is_null()) arguments = Json::object();
  if (!arguments.is_object())
    refuse_message(fmt::format("the arguments of a call of '{}' are not a JSON object", printable(name)));
}

void settle_call(Json& call, std::set<std::string, std::less<>>& ids) {
  if (!call.is_object()) refuse_message("a tool call is not an object");
  if (call.value("type", Json("function")) != "function")
    throw Refused{bad_request("not_supported", "a tool call is not of type function", "messages")};
  if (!call.contains("function") || !call["function"].is_object()) refuse_message("a tool call has no function");
  auto& function = call["function"];
  if (!function.contains("name") || !function["name"].is_string() || function["name"].empty())
    refuse_message("a tool call's function has no name");
  settle_arguments(function, function["name"].get<std::string>());
  call["type"] = "function";
  const auto id = call.find("id");
  if (id == call.end() || id->is_null()) return;
  if (!id->is_string()) refuse_message("a tool call's id is not a string");
  ids.insert(id->get<std::string>());
}

/// Reasoning that clients send back in any of the spellings becomes reasoning_content.
void settle_reasoning(Json& message) {
  for (const char* const name : {"reasoning_content", "reasoning", "thinking"}) {
    const auto found = message.find(name);
    if (found == message.end()) continue;
    auto value = std::move(*found);
    message.erase(found);
    if (value.is_null()) continue;
    if (!value.is_string()) refuse_message(fmt::format("a message's {} is not a string", name));
    if (!message.contains("reasoning_content")) message["reasoning_content"] = std::move(value);
  }
}

/// One message. `ids`: of the calls so far.
void settle_message(Json& message, std::set<std::string, std::less<>>& ids) {
  if (!message.is_object() || !message.contains("role") || !message["role"].is_string())
    refuse_message("a message is not an object with a role");
  // Clients send back all members of an answer, most of them null.
  for (auto member = message.begin(); member != message.end();)
    member = member->is_null() ? message.erase(member) : std::next(member);
  settle_content(message);
  settle_reasoning(message);
  if (const auto calls = message.find("tool_calls"); calls != message.end()) {
    if (!calls->is_array()) refuse_message("a message's tool_calls is not a list");
    for (auto& call : *calls) settle_call(call, ids);
    if (calls->empty()) message.erase(calls);
  }
  if (message["role"] != "tool") return;
  const auto id = message.find("tool_call_id");
  if (id == message.end()) return;
  if (!id->is_string()) refuse_message("a message's tool_call_id is not a string");
  if (!ids.contains(id->get_ref<const std::string&>()))
    refuse_message(
        fmt::format("tool_call_id '{}' is of no call before it", printable(id->get_ref<const std::string&>())));
}

Json read_messages(Fields& fields) {
  const auto* value = fields.take("messages");
  if (value == nullptr) refuse_message("messages is missing");
  if (!value->is_array() || value->empty()) refuse_message("messages is not a list with at least one message");
  Json messages = *value;
  std::set<std::string, std::less<>> ids;
  for (auto& message : messages) settle_message(message, ids);
  return messages;
}

/// One tool as templates expect it. `names`: of the tools so far, `strict_tools`: of those that are strict.
void settle_tool(Json& tool, std::set<std::string, std::less<>>& names, std::vector<std::string>& strict_tools) {
  if (!tool.is_object()) refuse_value("tools", "a tool is not an object");
  if (tool.value("type", Json("function")) != "function")
    throw Refused{bad_request("not_supported", "only tools of type function are supported", "tools")};
  if (!tool.contains("function") || !tool["function"].is_object()) refuse_value("tools", "a tool has no function");
  auto& function = tool["function"];
  if (!function.contains("name") || !function["name"].is_string()) refuse_value("tools", "a tool has no name");
  const auto name = function["name"].get<std::string>();
  if (!is_callable_name(name))
    refuse_value("tools", fmt::format("'{}' is no tool's name: it must have 1 to {} letters, digits, '_', '-' or '.'",
                                      printable(name), kToolNameBytesMax));
  if (!names.insert(name).second) refuse_value("tools", fmt::format("there are two tools of the name '{}'", name));
  const auto description = function.find("description");
  if (description != function.end() && !description->is_string() && !description->is_null())
    refuse_value("tools", fmt::format("the description of '{}' is not a string", name));
  const auto strict = function.find("strict");
  if (strict != function.end()) {
    if (!strict->is_boolean() && !strict->is_null())
      refuse_value("tools", fmt::format("strict of '{}' is not true or false", name));
    if (*strict == true) strict_tools.push_back(name);
    function.erase(strict);  // meant for the server
  }
  auto& parameters = function["parameters"];
  if (parameters.is_null()) parameters = {{"type", "object"}, {"properties", Json::object()}};
  if (!parameters.is_object()) refuse_value("tools", fmt::format("the parameters of '{}' are not an object", name));
  tool["type"] = "function";
}

Json read_tools(Fields& fields, std::set<std::string, std::less<>>& names, std::vector<std::string>& strict_tools) {
  const auto* value = fields.take("tools");
  if (value == nullptr) return Json::array();
  if (!value->is_array()) refuse_value("tools", "tools is not a list");
  if (value->size() > kToolsMax)
    refuse_value("tools", fmt::format("{} tools are given; at most {} are allowed", value->size(), kToolsMax));
  Json tools = *value;
  for (auto& tool : tools) settle_tool(tool, names, strict_tools);
  return tools;
}

ToolChoice read_tool_choice(Fields& fields, const std::set<std::string, std::less<>>& names) {
  const auto* value = fields.take("tool_choice");
  ToolChoice choice{.kind = names.empty() ? ToolChoice::Kind::kNone : ToolChoice::Kind::kAuto, .name = {}};
  if (value == nullptr || *value == "auto") return choice;
  if (*value == "none") return {.kind = ToolChoice::Kind::kNone, .name = {}};
  if (*value == "required") {
    choice.kind = ToolChoice::Kind::kRequired;
  } else {
    const bool is_function = value->is_object() && value->value("type", Json()) == "function" &&
                             value->contains("function") && (*value)["function"].is_object() &&
                             (*value)["function"].value("name", Json()).is_string();
    if (!is_function) refuse_value("tool_choice", "tool_choice is not none, auto, required, or a function with a name");
    choice = {.kind = ToolChoice::Kind::kNamed, .name = (*value)["function"]["name"].get<std::string>()};
  }
  if (names.empty()) refuse_value("tool_choice", "tool_choice needs tools");
  if (choice.kind == ToolChoice::Kind::kNamed && !names.contains(choice.name))
    refuse_value("tool_choice",
                 fmt::format("tool_choice names '{}', which is none of the tools", printable(choice.name)));
  return choice;
}

/// A limit of reasoning in tokens, as Qwen's, OpenRouter's and Anthropic's APIs name it; -1: none.
void read_budget(Fields& fields, std::string_view name, ChatBody& body) {
  if (const auto tokens = fields.integer(name, -1, INT32_MAX); tokens && *tokens >= 0)
    body.thinking_budget = static_cast<std::size_t>(*tokens);
}

std::optional<std::string> read_effort(Fields& fields, std::string_view name) {
  constexpr std::array<std::string_view, 6> kEfforts{"none", "minimal", "low", "medium", "high", "xhigh"};
  const auto effort = fields.text(name);
  if (effort && std::ranges::find(kEfforts, *effort) == kEfforts.end())
    refuse_value("reasoning_effort", "reasoning_effort is not none, minimal, low, medium, high or xhigh");
  return effort;
}

/// {"max_tokens": N, "effort": ...}
std::optional<std::string> read_reasoning(Fields& fields, ChatBody& body) {
  const auto* value = fields.take("reasoning");
  if (value == nullptr) return std::nullopt;
  if (!value->is_object()) refuse_value("reasoning", "reasoning is not an object");
  Fields inner(*value);
  read_budget(inner, "max_tokens", body);
  auto effort = read_effort(inner, "effort");
  body.include_reasoning = !inner.boolean("exclude", false);
  inner.ignore({"summary", "enabled"});
  inner.done();
  return effort;
}

/// {"type": "enabled", "budget_tokens": N}; nullopt: not said.
std::optional<bool> read_thinking(Fields& fields, ChatBody& body) {
  const auto* value = fields.take("thinking");
  if (value == nullptr) return std::nullopt;
  if (!value->is_object()) refuse_value("thinking", "thinking is not an object");
  Fields inner(*value);
  const auto type = inner.text("type").value_or("enabled");
  if (type != "enabled" && type != "disabled") refuse_value("thinking", "thinking.type is not enabled or disabled");
  read_budget(inner, "budget_tokens", body);
  inner.done();
  return type == "enabled";
}

/// Variables of the template, and limits of reasoning.
Json read_variables(Fields& fields, ChatBody& body) {
  constexpr std::array<std::string_view, 5> kReserved{"bos_token", "eos_token", "now", "messages", "tools"};
  Json variables = Json::object();
  auto effort = read_reasoning(fields, body);
  if (const auto given = read_effort(fields, "reasoning_effort")) effort = given;
  auto thinks = read_thinking(fields, body);
  read_budget(fields, "thinking_budget", body);
  if (fields.take("enable_thinking") != nullptr) thinks = fields.boolean("enable_thinking", true);
  if (effort) variables["reasoning_effort"] = *effort;
  if (!thinks && effort == "none") thinks = false;
  if (thinks) variables["enable_thinking"] = variables["thinking"] = *thinks;
  const auto* extra = fields.take("chat_template_kwargs");
  if (extra == nullptr) return variables;
  if (!extra->is_object()) refuse_value("chat_template_kwargs", "chat_template_kwargs is not an object");
  for (const auto& [name, value] : extra->items()) {
    if (std::ranges::find(kReserved, name) != kReserved.end())
      refuse_value("chat_template_kwargs", fmt::format("chat_template_kwargs cannot set {}", name));
    variables[name] = value;
  }
  return variables;
}

}  // namespace

bool is_callable_name(std::string_view name) {
  return !name.empty() && name.size() <= kToolNameBytesMax && std::ranges::all_of(name, [](char c) {
    return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_' || c == '-' ||
           c == '.';
  });
}

void read_conversation(Fields& fields, ChatBody& body) {
  Json conversation = read_variables(fields, body);
  conversation["messages"] = read_messages(fields);
  std::set<std::string, std::less<>> names;
  Json tools = read_tools(fields, names, body.strict_tools);
  body.tool_choice = read_tool_choice(fields, names);
  body.parallel_tool_calls = fields.boolean("parallel_tool_calls", true);
  if (body.tool_choice.kind != ToolChoice::Kind::kNone) {
    body.tools = tools.dump();
    conversation["tools"] = std::move(tools);
  }
  conversation["add_generation_prompt"] = fields.boolean("add_generation_prompt", true);
  body.conversation = conversation.dump();
}

}  // namespace forge::serve

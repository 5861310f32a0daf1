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

/// What is known of the messages so far.
struct History {
  std::set<std::string, std::less<>> ids;  ///< of calls
  bool has_cut_calls = false;              ///< the arguments of one are text that is no JSON
};

/// Parses the arguments of a tool call: OpenAI sends them as a string of JSON, chat templates expect the object. Those
/// of an answer that ended early are no JSON and stay text.
void settle_arguments(Json& function, const std::string& name, History& history) {
  auto& arguments = function["arguments"];
  if (arguments.is_string()) {
    const auto& text = arguments.get_ref<const std::string&>();
    auto parsed = text.find_first_not_of(" \t\n\r") == std::string::npos ? Json::object()
                                                                         : parse_inner(text, "a call's arguments");
    if (parsed.is_discarded()) {
      history.has_cut_calls = true;
      return;
    }
    arguments = std::move(parsed);
  }
  if (arguments.is_null()) arguments = Json::object();
  if (!arguments.is_object())
    refuse_message(fmt::format("the arguments of a call of '{}' are not a JSON object", printable(name)));
}

/// Clients send back all members of what they got, most of them null.
void erase_nulls(Json& object) {
  for (auto member = object.begin(); member != object.end();)
    member = member->is_null() ? object.erase(member) : std::next(member);
}

void settle_call(Json& call, History& history) {
  if (!call.is_object()) refuse_message("a tool call is not an object");
  erase_nulls(call);
  if (call.value("type", Json("function")) != "function")
    throw Refused{bad_request("not_supported", "a tool call is not of type function", "messages")};
  if (!call.contains("function") || !call["function"].is_object()) refuse_message("a tool call has no function");
  auto& function = call["function"];
  erase_nulls(function);
  if (!function.contains("name") || !function["name"].is_string() || function["name"].empty())
    refuse_message("a tool call's function has no name");
  settle_arguments(function, function["name"].get<std::string>(), history);
  call["type"] = "function";
  const auto id = call.find("id");
  if (id == call.end()) return;
  if (!id->is_string()) refuse_message("a tool call's id is not a string");
  history.ids.insert(id->get<std::string>());
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

void settle_message(Json& message, History& history) {
  if (!message.is_object() || !message.contains("role") || !message["role"].is_string())
    refuse_message("a message is not an object with a role");
  erase_nulls(message);
  settle_content(message);
  settle_reasoning(message);
  if (const auto calls = message.find("tool_calls"); calls != message.end()) {
    if (!calls->is_array()) refuse_message("a message's tool_calls is not a list");
    for (auto& call : *calls) settle_call(call, history);
    if (calls->empty()) message.erase(calls);
  }
  if (message["role"] != "tool") return;
  const auto id = message.find("tool_call_id");
  if (id == message.end()) return;
  if (!id->is_string()) refuse_message("a message's tool_call_id is not a string");
  if (!history.ids.contains(id->get_ref<const std::string&>()))
    refuse_message(
        fmt::format("tool_call_id '{}' is of no call before it", printable(id->get_ref<const std::string&>())));
}

Json read_messages(Fields& fields, bool& has_cut_calls) {
  const auto* value = fields.take("messages");
  if (value == nullptr) refuse_message("messages is missing");
  if (!value->is_array() || value->empty()) refuse_message("messages is not a list with at least one message");
  Json messages = *value;
  History history;
  for (std::size_t i = 0; i < messages.size(); ++i) try {
      settle_message(messages[i], history);
    } catch (Refused& refused) {
      refused.error.message.insert(0, fmt::format("messages[{}]: ", i));
      throw;
    }
  has_cut_calls = history.has_cut_calls;
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
  const auto type = parameters.value("type", Json("object"));
  if (type != "object" && !(type.is_array() && std::ranges::find(type, Json("object")) != type.end()))
    refuse_value("tools", fmt::format("the parameters of '{}' are not of type object", name));
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

/// The name in {"type": "function", "function": {"name": ...}}; nullopt: it is something else.
std::optional<std::string> function_name(const Json& value) {
  const bool is_function = value.is_object() && value.value("type", Json()) == "function" &&
                           value.contains("function") && value["function"].is_object() &&
                           value["function"].value("name", Json()).is_string();
  if (!is_function) return std::nullopt;
  return value["function"]["name"].get<std::string>();
}

/// {"type": "allowed_tools", "allowed_tools": {"mode": "auto", "tools": [...]}}: the others are taken out of `names`.
ToolChoice read_allowed_tools(const Json& value, std::set<std::string, std::less<>>& names) {
  Fields outer(value, "tool_choice.");
  outer.ignore({"type"});
  const auto* inner = outer.take("allowed_tools");
  outer.done();
  if (inner == nullptr || !inner->is_object())
    refuse_value("tool_choice", "tool_choice.allowed_tools is not an object");
  Fields fields(*inner, "tool_choice.allowed_tools.");
  const auto mode = fields.text("mode").value_or("auto");
  if (mode != "auto" && mode != "required")
    refuse_value("tool_choice", "tool_choice.allowed_tools.mode is not auto or required");
  const auto* tools = fields.take("tools");
  fields.done();
  if (tools == nullptr || !tools->is_array() || tools->empty())
    refuse_value("tool_choice", "tool_choice.allowed_tools.tools is not a list of tools");
  std::set<std::string, std::less<>> allowed;
  for (const auto& tool : *tools) {
    const auto name = function_name(tool);
    if (!name || !names.contains(*name))
      refuse_value("tool_choice", "tool_choice.allowed_tools has something else than names of the tools");
    allowed.insert(*name);
  }
  names = std::move(allowed);
  return {.kind = mode == "auto" ? ToolChoice::Kind::kAuto : ToolChoice::Kind::kRequired, .name = {}};
}

/// `names`: of the tools; of those that may be called, afterwards.
ToolChoice read_tool_choice(Fields& fields, std::set<std::string, std::less<>>& names) {
  const auto* value = fields.take("tool_choice");
  ToolChoice choice{.kind = names.empty() ? ToolChoice::Kind::kNone : ToolChoice::Kind::kAuto, .name = {}};
  if (value == nullptr || *value == "auto") return choice;
  if (*value == "none") return {.kind = ToolChoice::Kind::kNone, .name = {}};
  if (value->is_object() && value->value("type", Json()) == "allowed_tools") {
    choice = read_allowed_tools(*value, names);
  } else if (*value == "required") {
    choice.kind = ToolChoice::Kind::kRequired;
  } else {
    const auto name = function_name(*value);
    if (!name)
      refuse_value("tool_choice", "tool_choice is not none, auto, required, allowed_tools, or a function with a name");
    choice = {.kind = ToolChoice::Kind::kNamed, .name = *name};
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
  conversation["messages"] = read_messages(fields, body.has_cut_calls);
  std::set<std::string, std::less<>> names;
  Json tools = read_tools(fields, names, body.strict_tools);
  body.tool_choice = read_tool_choice(fields, names);
  std::erase_if(body.strict_tools, [&](const std::string& name) { return !names.contains(name); });
  std::erase_if(tools.get_ref<Json::array_t&>(),
                [&](const Json& tool) { return !names.contains(tool["function"]["name"].get<std::string>()); });
  body.parallel_tool_calls = fields.boolean("parallel_tool_calls", true);
  if (body.tool_choice.kind != ToolChoice::Kind::kNone) {
    body.tools = tools.dump();
    conversation["tools"] = std::move(tools);
  }
  conversation["add_generation_prompt"] = fields.boolean("add_generation_prompt", true);
  body.conversation = conversation.dump();
}

}  // namespace forge::serve

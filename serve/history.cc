#include "serve/history.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <vector>

#include "text/answer/call_grammar.h"

namespace forge::serve {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::string_view kResultOpen = "<tool_response>\n", kResultClose = "\n</tool_response>";

/// Nine letters and digits that depend on the id alone, so that calls and results stay together (FNV-1a).
std::string short_id(const std::string& id) {
  constexpr std::string_view kLetters = "0123456789abcdefghijklmnopqrstuvwxyz";
  constexpr std::size_t kLength = 9;
  const bool fits = id.size() == kLength && std::ranges::all_of(id, [](char c) {
                      return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
                    });
  if (fits) return id;
  std::uint64_t hash = 0xCBF29CE484222325;
  for (const char c : id) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001B3;
  std::string out;
  for (std::size_t i = 0; i < kLength; ++i, hash /= kLetters.size()) out += kLetters[hash % kLetters.size()];
  return out;
}

class Fitter {
 public:
  explicit Fitter(const text::AnswerFormat& format) : format_(format), form_(format.history) {}

  void fit(Json& conversation) const {
    auto& messages = conversation["messages"];
    for (auto& message : messages) fit_message(message);
    if (form_.shows_tools || !conversation.contains("tools")) return;
    add_note(messages, note(conversation["tools"]));
    conversation.erase("tools");
  }

 private:
  void fit_message(Json& message) const {
    const auto role = message["role"].get<std::string>();
    if (role == "developer" && !form_.knows_developer) message["role"] = "system";
    if (const auto thought = message.find("reasoning_content");
        thought != message.end() && !form_.reasoning.empty() && form_.reasoning != "reasoning_content") {
      auto text = std::move(*thought);
      message.erase(thought);
      message[form_.reasoning] = std::move(text);
    }
    if (message.contains("tool_calls")) fit_calls(message);
    if (role == "tool") fit_result(message);
  }

  void fit_calls(Json& message) const {
    const bool writes = !message["content"].get_ref<const std::string&>().empty();
    const bool cut = std::ranges::any_of(message["tool_calls"],
                                         [](const Json& call) { return call["function"]["arguments"].is_string(); });
    if (!form_.shows_calls || cut || (writes && !form_.content_beside_calls)) return calls_to_content(message);
    for (auto& call : message["tool_calls"]) {
      auto& arguments = call["function"]["arguments"];
      if (form_.arguments_as_text) arguments = text::spaced_json(arguments.dump());
      if (form_.short_ids) call["id"] = short_id(call.value("id", ""));
    }
    if (form_.null_content && !writes) message["content"] = nullptr;
  }

  void calls_to_content(Json& message) const {
    std::vector<text::WrittenCall> calls;
    for (const auto& call : message["tool_calls"])
      calls.push_back({.name = call["function"]["name"].get<std::string>(),
                       .arguments = call["function"]["arguments"].dump(),
                       .id = form_.short_ids ? short_id(call.value("id", "")) : std::string()});
    auto content = message["content"].get<std::string>();
    if (!content.empty()) content += '\n';
    message["content"] = content + text::calls_text(format_.layout, calls);
    message.erase("tool_calls");
  }

  void fit_result(Json& message) const {
    if (form_.short_ids && message.contains("tool_call_id"))
      message["tool_call_id"] = short_id(message["tool_call_id"].get<std::string>());
    if (form_.shows_results) return;
    message = {{"role", "user"},
               {"content", fmt::format("{}{}{}", kResultOpen, message["content"].get<std::string>(), kResultClose)}};
  }

  [[nodiscard]] std::string note(const Json& tools) const {
    const std::vector<text::WrittenCall> example{{.name = "NAME", .arguments = R"({"PARAMETER": "VALUE"})", .id = {}}};
    std::string out =
        "You can call tools. To call one, write its name and its arguments in exactly this form, with nothing after "
        "it:\n" +
        text::calls_text(format_.layout, example) + "\nIts result comes in the next message. The tools are:\n";
    for (const auto& tool : tools) out += text::spaced_json(tool["function"].dump()) + "\n";
    return out;
  }

  void add_note(Json& messages, const std::string& note) const {
    const bool system = messages[0]["role"] == "system";
    if (!system && form_.shows_system) {
      messages.insert(messages.begin(), Json{{"role", "system"}, {"content", note}});
      return;
    }
    // A template without system messages is told with the user's first one.
    const auto first = system && form_.shows_system
                           ? messages.begin()
                           : std::ranges::find_if(messages, [](const Json& m) { return m["role"] == "user"; });
    if (first == messages.end()) {
      messages.insert(messages.begin(), Json{{"role", "user"}, {"content", note}});
      return;
    }
    (*first)["content"] = system && form_.shows_system ? (*first)["content"].get<std::string>() + "\n\n" + note
                                                       : note + "\n" + (*first)["content"].get<std::string>();
  }

  const text::AnswerFormat& format_;
  const text::HistoryForm& form_;
};

}  // namespace

bool is_plain(const text::HistoryForm& form) {
  return form.shows_tools && form.shows_calls && form.shows_results && form.knows_developer &&
         !form.arguments_as_text && !form.null_content && form.content_beside_calls && !form.short_ids &&
         (form.reasoning.empty() || form.reasoning == "reasoning_content");
}

std::string fit_history(std::string_view conversation, const text::AnswerFormat& format) {
  auto json = Json::parse(conversation);
  Fitter(format).fit(json);
  return json.dump();
}

}  // namespace forge::serve

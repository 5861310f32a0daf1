// Conversations fitted to templates that print less, or want other forms, than OpenAI's messages.

#include "serve/history.h"

#include "tests/serve/scripted_chat.h"

using namespace forge::serve::test;

namespace {

/// A user's question, a call of the assistant with its reasoning, the result, and the weather tool.
Json agent_body(std::string_view id = "call_1") {
  auto body = weather_body();
  body["messages"].push_back({{"role", "assistant"},
                              {"content", nullptr},
                              {"reasoning_content", "Hm."},
                              {"tool_calls",
                               {{{"id", id},
                                 {"type", "function"},
                                 {"function", {{"name", "weather"}, {"arguments", "{\"city\":\"Oslo\"}"}}}}}}});
  body["messages"].push_back({{"role", "tool"}, {"tool_call_id", id}, {"content", "3 C"}});
  return body;
}

constexpr std::string_view kPlain =
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}";

}  // namespace

TEST_CASE("a template without tools: a note in the system message, and calls and results as text") {
  ScriptedChat chat(kPlain);
  const auto prompt = chat.prompt(agent_body());
  INFO(prompt);
  CHECK(prompt.starts_with("<|im_start|>system\nYou can call tools."));
  CHECK(prompt.find("{\"name\": \"weather\", \"parameters\": {\"type\": \"object\"") != std::string::npos);
  CHECK(prompt.find("<tool_call>\n{\"name\": \"NAME\", \"arguments\": {\"PARAMETER\": \"VALUE\"}}\n</tool_call>") !=
        std::string::npos);
  CHECK(
      prompt.ends_with("<|im_start|>assistant\n<tool_call>\n{\"name\": \"weather\", \"arguments\": {\"city\": "
                       "\"Oslo\"}}\n</tool_call><|im_end|>\n<|im_start|>user\n<tool_response>\n3 C\n"
                       "</tool_response><|im_end|>\n<|im_start|>assistant\n"));
  auto body = agent_body();
  body["messages"].insert(body["messages"].begin(), Json{{"role", "developer"}, {"content", "Be brief."}});
  CHECK(chat.prompt(body).starts_with("<|im_start|>system\nBe brief.\n\nYou can call tools."));
  // The model's answer in the described form is a call.
  const auto choice = chat.answer(weather_body(),
                                  "Wait.\n<tool_call>\n{\"name\": \"weather\", \"arguments\": {\"city\": \"Oslo\"}}\n"
                                  "</tool_call>")["choices"][0];
  CHECK((choice["message"]["content"] == "Wait." && choice["finish_reason"] == "tool_calls"));
  CHECK(choice["message"]["tool_calls"][0]["function"]["arguments"] == "{\"city\": \"Oslo\"}");
}

TEST_CASE("a template without a system message is told of tools with the user's first message") {
  const std::string no_system =
      "{% for m in messages %}{% if m.role == 'system' %}{{ raise_exception('no system') }}{% endif %}" +
      std::string(kPlain.substr(kPlain.find("<|im_start|>")));
  ScriptedChat chat(no_system);
  const auto prompt = chat.prompt(weather_body());
  CHECK(prompt.starts_with("<|im_start|>user\nYou can call tools."));
  CHECK(prompt.find("\nOslo?<|im_end|>") != std::string::npos);
}

TEST_CASE("arguments as text, a null content and reasoning of another name, where the template wants them") {
  ScriptedChat chat(
      "{% for t in tools or [] %}{{ t.function.name }}{% endfor %}{% for m in messages %}<|im_start|>{{ m.role }}\n"
      "{% if m.thinking %}<think>{{ m.thinking }}</think>{% endif %}"
      "{% if m.tool_calls and m.content is none %}{% for c in m.tool_calls %}{{ '<tool_call>' + c.function.name + '\n' "
      "+ "
      "c.function.arguments + '</tool_call>' }}{% endfor %}{% else %}{{ m.content }}{% endif %}<|im_end|>\n"
      "{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}");
  const auto prompt = chat.prompt(agent_body());
  INFO(prompt);
  CHECK(prompt.find("<|im_start|>assistant\n<think>Hm.</think><tool_call>weather\n{\"city\": \"Oslo\"}</tool_call>"
                    "<|im_end|>\n<|im_start|>tool\n3 C<|im_end|>\n") != std::string::npos);
}

TEST_CASE("ids of calls become nine letters where the template insists, equal for a call and its result") {
  ScriptedChat chat(
      "{% for t in tools or [] %}{{ t.function.name }}{% endfor %}{% for m in messages %}<|im_start|>{{ m.role }}\n"
      "{% if m.tool_calls %}{% for c in m.tool_calls %}{% if c.id|length != 9 %}{{ raise_exception('id') }}{% endif %}"
      "<tool_call>{\"name\": \"{{ c.function.name }}\", \"arguments\": {{ c.function.arguments|tojson }}, \"id\": "
      "\"{{ c.id }}\"}</tool_call>{% endfor %}{% else %}{{ m.content }} {{ m.tool_call_id }}{% endif %}<|im_end|>\n"
      "{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}");
  const auto prompt = chat.prompt(agent_body());
  INFO(prompt);
  const auto at = prompt.find("\"id\": \"");
  REQUIRE(at != std::string::npos);
  const auto id = prompt.substr(at + 7, 9);
  CHECK(prompt.find("3 C " + id + "<|im_end|>") != std::string::npos);
  auto without = agent_body();
  without["messages"][1]["tool_calls"][0]["id"] = nullptr;
  without["messages"][2].erase("tool_call_id");
  CHECK(chat.prompt(without).find("\"id\": \"") != std::string::npos);
  CHECK(chat.prompt(agent_body("abcDEF123")).find("\"id\": \"abcDEF123\"") != std::string::npos);
}

TEST_CASE("what the assistant wrote beside its calls stays, where the template prints calls beside nothing else") {
  const std::string head =
      "{% for t in tools or [] %}{{ t.function.name }}{% endfor %}{% for m in messages %}<|im_start|>{{ m.role }}\n";
  const std::string call =
      "{% for c in m.tool_calls %}<tool_call>{\"name\": \"{{ c.function.name }}\", \"arguments\": "
      "{{ c.function.arguments|tojson }}}</tool_call>{% endfor %}";
  const std::string tail = "<|im_end|>\n{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}";
  for (const auto* condition : {"m.tool_calls", "m.tool_calls and m.content is none"}) {
    ScriptedChat chat(head + "{% if " + condition + " %}" + call + "{% else %}{{ m.content }}{% endif %}" + tail);
    CAPTURE(condition);
    auto body = agent_body();
    const std::string printed =
        R"(<tool_call>{"name": "weather", "arguments": {"city": "Oslo"}}</tool_call><|im_end|>)";
    CHECK(chat.prompt(body).find("assistant\n" + printed) != std::string::npos);
    body["messages"][1]["content"] = "I look.";
    INFO(chat.prompt(body));
    CHECK(chat.prompt(body).find("assistant\nI look.\n" + printed) != std::string::npos);
  }
}

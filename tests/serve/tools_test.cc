// Tool calls and reasoning in chat answers, whole and streamed, on a model that says what the test wants.

#include <set>

#include "tests/serve/scripted_chat.h"

using namespace forge::serve::test;

namespace {

const std::string kTwoCalls =
    "<think>\nWhich city?\n</think>\n\nI look.\n<tool_call>\n{\"name\": \"weather\", \"arguments\": {\"city\": "
    "\"Oslo\"}}\n"
    "</tool_call>\n<tool_call>\n{\"name\": \"weather\", \"arguments\": {\"city\": \"Åre <3\"}}\n</tool_call>";

}  // namespace

TEST_CASE("a whole answer has reasoning, content and tool calls apart") {
  ScriptedChat chat;
  const auto answer = chat.answer(weather_body(), kTwoCalls);
  const auto& choice = answer["choices"][0];
  INFO(answer.dump());
  CHECK(choice["finish_reason"] == "tool_calls");
  CHECK(choice["message"]["content"] == "I look.");
  CHECK(choice["message"]["reasoning_content"] == "Which city?");
  const auto& calls = choice["message"]["tool_calls"];
  REQUIRE(calls.size() == 2);
  std::set<std::string> ids;
  for (const auto& call : calls) {
    CHECK((call["type"] == "function" && call["function"]["name"] == "weather"));
    CHECK(call["id"].get<std::string>().starts_with("call_"));
    ids.insert(call["id"].get<std::string>());
  }
  CHECK(ids.size() == 2);
  CHECK(Json::parse(calls[0]["function"]["arguments"].get<std::string>()) == Json{{"city", "Oslo"}});
  CHECK(Json::parse(calls[1]["function"]["arguments"].get<std::string>()) == Json{{"city", "Åre <3"}});
  CHECK(answer["usage"]["completion_tokens"] == chat.encode(kTwoCalls).size() + 1);
}

TEST_CASE("content is null beside calls when there is none, and without calls it is the text") {
  ScriptedChat chat;
  const std::string call = "<tool_call>{\"name\": \"weather\", \"arguments\": {}}</tool_call>";
  const auto alone = chat.answer(weather_body(), call)["choices"][0]["message"];
  CHECK((alone["content"].is_null() && alone["tool_calls"].size() == 1 && !alone.contains("reasoning_content")));
  const auto plain = chat.answer(weather_body(), "It is cold.")["choices"][0];
  CHECK((plain["message"]["content"] == "It is cold." && !plain["message"].contains("tool_calls")));
  CHECK(plain["finish_reason"] == "stop");
}

TEST_CASE("a stream brings the same message in pieces") {
  ScriptedChat chat;
  const auto events = chat.events(weather_body(), kTwoCalls);
  const auto message = joined(events);
  INFO(message.dump());
  CHECK(message["content"] == "I look.");
  CHECK(message["reasoning_content"] == "Which city?");
  CHECK(message["finish_reason"] == "tool_calls");
  REQUIRE(message["tool_calls"].size() == 2);
  CHECK(message["tool_calls"][0]["arguments"] == "{\"city\": \"Oslo\"}");
  CHECK(message["tool_calls"][1]["arguments"] == "{\"city\": \"Åre <3\"}");
  CHECK(message["tool_calls"][0]["id"] != message["tool_calls"][1]["id"]);
  // Pieces come as they are generated, not at the end: most tokens of a call have an event of their own.
  std::size_t pieces = 0;
  for (const auto& event : events) pieces += event["choices"][0]["delta"].contains("tool_calls") ? 1 : 0;
  CHECK(pieces > 20);
}

TEST_CASE("log-probabilities and usage count every token of an answer, also of its markers") {
  ScriptedChat chat;
  auto body = weather_body();
  body["logprobs"] = true;
  const auto tokens = chat.encode(kTwoCalls).size();
  const auto whole = chat.answer(body, kTwoCalls);
  CHECK(whole["choices"][0]["logprobs"]["content"].size() == tokens);
  body["stream_options"] = {{"include_usage", true}};
  body["stream"] = true;
  std::size_t count = 0;
  const auto events = chat.events(body, kTwoCalls);
  for (const auto& event : events)
    if (!event["choices"].empty() && !event["choices"][0]["logprobs"].is_null())
      count += event["choices"][0]["logprobs"]["content"].size();
  CHECK(count == tokens);
  CHECK(events.back()["usage"]["completion_tokens"] == tokens + 1);  // and the end of the turn
}

TEST_CASE("a call that the token limit cuts ends with length, and none of its text is content") {
  ScriptedChat chat;
  auto body = weather_body();
  body["max_tokens"] = 40;
  const auto cut = chat.answer(body, kTwoCalls.substr(kTwoCalls.find("<tool_call>")));
  const auto& choice = cut["choices"][0];
  INFO(cut.dump());
  CHECK(choice["finish_reason"] == "length");
  CHECK((choice["message"]["content"].is_null() || choice["message"]["content"] == ""));
  const auto malformed = chat.answer(weather_body(), "<tool_call>\n{name: weather}\n</tool_call>")["choices"][0];
  CHECK(malformed["finish_reason"] == "stop");
  CHECK(malformed["message"]["content"].get<std::string>().find("{name: weather}") != std::string::npos);
}

TEST_CASE("without tools, or with tool_choice none, nothing is a call, and reasoning is read all the same") {
  ScriptedChat chat;
  for (const bool none : {false, true}) {
    auto body = weather_body();
    if (none)
      body["tool_choice"] = "none";
    else
      body.erase("tools");
    CHECK(chat.prompt(body).find("weather") == std::string::npos);
    const auto choice = chat.answer(body, kTwoCalls)["choices"][0];
    CHECK((choice["finish_reason"] == "stop" && !choice["message"].contains("tool_calls")));
    CHECK(choice["message"]["reasoning_content"] == "Which city?");
    const auto content = choice["message"]["content"].get<std::string>();
    CHECK((content.starts_with("I look.") && content.find("<tool_call>") == std::string::npos));
  }
}

TEST_CASE("control tokens that are no markers of answers give no text") {
  ScriptedChat chat;
  CHECK(chat.answer(weather_body(), "a<|image|>b<|im_start|>c")["choices"][0]["message"]["content"] == "abc");
}

TEST_CASE("parallel_tool_calls false ends the answer after the first call") {
  ScriptedChat chat;
  auto body = weather_body();
  body["parallel_tool_calls"] = false;
  const auto first = kTwoCalls.substr(0, kTwoCalls.find("</tool_call>"));
  const auto answer = chat.answer(body, kTwoCalls);
  CHECK(answer["choices"][0]["message"]["tool_calls"].size() == 1);
  CHECK(answer["choices"][0]["finish_reason"] == "tool_calls");
  CHECK(answer["usage"]["completion_tokens"].get<std::size_t>() <= chat.encode(first).size());
  const auto message = joined(chat.events(body, kTwoCalls));
  CHECK((message["tool_calls"].size() == 1 && message["finish_reason"] == "tool_calls"));
  CHECK(message["tool_calls"][0]["arguments"] == "{\"city\": \"Oslo\"}");
}

TEST_CASE("include_reasoning false leaves reasoning out") {
  ScriptedChat chat;
  auto body = weather_body();
  body["include_reasoning"] = false;
  const auto message = chat.answer(body, kTwoCalls)["choices"][0]["message"];
  CHECK((!message.contains("reasoning_content") && message["content"] == "I look."));
  CHECK(joined(chat.events(body, kTwoCalls))["reasoning_content"] == "");
}

TEST_CASE("reasoning_format none leaves reasoning in the content") {
  ScriptedChat chat;
  auto body = weather_body();
  body["reasoning_format"] = "none";
  const auto message = chat.answer(body, "<think>Hm.</think>Yes.")["choices"][0]["message"];
  CHECK((message["content"] == "<think>Hm.</think>Yes." && !message.contains("reasoning_content")));
  body["reasoning_format"] = "x";
  CHECK(chat.refusal(body) == "invalid_value reasoning_format");
}

TEST_CASE("answers that clients send back are rendered as the model wrote them") {
  ScriptedChat chat;
  auto body = weather_body();
  const auto message = chat.answer(body, kTwoCalls)["choices"][0]["message"];
  const auto before = chat.prompt(body);
  body["messages"].push_back(message);
  for (const auto& call : message["tool_calls"])
    body["messages"].push_back(
        {{"role", "tool"}, {"tool_call_id", call["id"]}, {"name", "weather"}, {"content", "3 C"}});
  CHECK(chat.prompt(body) == before + kTwoCalls +
                                 "<|im_end|>\n<|im_start|>tool\n3 C<|im_end|>\n<|im_start|>tool\n3 C<|im_end|>\n"
                                 "<|im_start|>assistant\n");
  auto& sent = body["messages"][1];
  sent["content"] = nullptr;
  sent["reasoning"] = std::exchange(sent["reasoning_content"], nullptr);
  const auto again = chat.prompt(body);
  CHECK(again.find("None") == std::string::npos);
  CHECK(again.find("<think>\nWhich city?\n</think>") != std::string::npos);
  sent["content"] = {{{"type", "text"}, {"text", "I "}}, {{"type", "text"}, {"text", "look."}}};
  CHECK(chat.prompt(body).find("</think>\n\nI look.\n<tool_call>") != std::string::npos);
}

TEST_CASE("a call that was cut can be sent back, and is rendered as the model wrote it") {
  ScriptedChat chat;
  auto body = weather_body();
  body["max_tokens"] = 48;
  const auto said = kTwoCalls.substr(kTwoCalls.find("<tool_call>"));
  const auto message = chat.answer(body, said)["choices"][0]["message"];
  REQUIRE(message["tool_calls"].size() == 1);
  const auto arguments = message["tool_calls"][0]["function"]["arguments"].get<std::string>();
  INFO(message.dump());
  REQUIRE((!arguments.empty() && !Json::accept(arguments)));
  body["messages"].push_back(message);
  CHECK(has(chat.prompt(body), "<tool_call>\n{\"name\": \"weather\", \"arguments\": " + arguments));
  body["messages"][1]["tool_calls"][0]["function"]["arguments"] = "[1]";
  const auto refused = ask(chat.server, post("/apply-template", body.dump()));
  CHECK(has(refused, R"("message":"messages[1]: the arguments of a call of 'weather' are not a JSON object")"));
}

TEST_CASE("a strict tool's call is constrained once its marker is there, and other text is not") {
  ScriptedChat chat;
  auto body = weather_body();
  body["tools"][0]["function"]["strict"] = true;
  body["tools"][0]["function"]["parameters"]["additionalProperties"] = false;
  CHECK(chat.answer(body, "It is cold.")["choices"][0]["message"]["content"] == "It is cold.");
  const auto choice = chat.answer(body,
                                  "I look. <tool_call>\n{\"name\": \"weather\", \"arguments\": {\"city\": "
                                  "\"Oslo\"}}\n</tool_call>")["choices"][0];
  INFO(choice.dump());
  CHECK((choice["message"]["content"] == "I look." && choice["message"]["tool_calls"].size() == 1));
  body["max_tokens"] = 60;
  const auto wrong = chat.answer(body, "<tool_call>\n{\"name\": \"nix\", \"arguments\": {}}</tool_call>")["choices"][0];
  INFO(wrong.dump());
  REQUIRE(wrong["message"]["tool_calls"].size() == 1);
  CHECK(wrong["message"]["tool_calls"][0]["function"]["name"] == "weather");
}

TEST_CASE("a stop string inside a free call cuts it, and the finish reason does not say that the call is complete") {
  ScriptedChat chat;
  auto body = weather_body();
  const std::string call = "<tool_call>\n{\"name\": \"weather\", \"arguments\": {\"city\": \"Paris\"}}\n</tool_call>";
  for (const auto* stop : {"Par", "}", "\"arguments\"", "name"}) {
    body["stop"] = {stop};
    CAPTURE(stop);
    CHECK(chat.answer(body, "Wait. " + call)["choices"][0]["finish_reason"] == "stop");
    CHECK(joined(chat.events(body, "Wait. " + call))["finish_reason"] == "stop");
  }
  // Behind a complete call and before one it ends the answer as always.
  body["stop"] = {"Wait"};
  const auto after = chat.answer(body, call + "Wait. More.")["choices"][0];
  CHECK((after["finish_reason"] == "tool_calls" && after["message"]["tool_calls"].size() == 1));
  const auto before = chat.answer(body, "So. Wait. " + call)["choices"][0];
  CHECK((before["finish_reason"] == "stop" && before["message"]["content"] == "So. "));
  // So does a token id.
  body.erase("stop");
  body["stop_token_ids"] = {chat.encode("P")[0]};
  CHECK(chat.answer(body, call)["choices"][0]["finish_reason"] == "stop");
}

TEST_CASE("stops are not looked for inside calls that a constraint writes") {
  ScriptedChat chat;
  const std::string call = "<tool_call>\n{\"name\": \"weather\", \"arguments\": {\"city\": \"Paris\"}}\n</tool_call>";
  for (const bool forced : {true, false}) {
    CAPTURE(forced);
    auto body = weather_body();
    body["max_tokens"] = 200;
    if (forced)
      body["tool_choice"] = "required";
    else
      body["tools"][0]["function"]["strict"] = true;
    body["parallel_tool_calls"] = false;
    body["stop"] = {"Par", "}", "name"};
    if (forced) body["stop_token_ids"] = {chat.encode("P")[0]};
    const auto choice = chat.answer(body, call)["choices"][0];
    INFO(choice.dump());
    CHECK(choice["finish_reason"] == "tool_calls");
    CHECK(choice["message"]["tool_calls"][0]["function"]["arguments"] == "{\"city\": \"Paris\"}");
    const auto message = joined(chat.events(body, call));
    CHECK(
        (message["finish_reason"] == "tool_calls" && message["tool_calls"][0]["arguments"] == "{\"city\": \"Paris\"}"));
    if (forced) continue;
    body["stop"] = {"look"};  // text before a call that may come is the model's own
    const auto text = chat.answer(body, "I look. " + call)["choices"][0];
    CHECK((text["finish_reason"] == "stop" && text["message"]["content"] == "I "));
  }
}

TEST_CASE("usage tells the tokens of reasoning, with its markers") {
  ScriptedChat chat;
  const auto usage = [&](const std::string& text) {
    return chat.answer(weather_body(), text)["usage"]["completion_tokens_details"]["reasoning_tokens"];
  };
  CHECK(usage("<think>Hmm.</think>Yes.") == 6);
  CHECK(usage("Yes.") == 0);
  auto body = weather_body();
  body["stream_options"] = {{"include_usage", true}};
  body["stream"] = true;
  CHECK(chat.events(body, kTwoCalls).back()["usage"]["completion_tokens_details"]["reasoning_tokens"] ==
        chat.encode("<think>\nWhich city?\n</think>").size());
}

TEST_CASE("more samples than can run at once wait, and are those of single requests") {
  ScriptedChat chat;
  const auto ask_for = [&](std::size_t n, int seed, const std::string& stop) {
    Json body{{"prompt", "a"}, {"n", n}, {"seed", seed}, {"max_tokens", 6}, {"stop", {stop}}};
    return json_of(ask(chat.server, post("/v1/completions", body.dump())));
  };
  const auto all = ask_for(11, 5, "zzz");  // four at a time
  REQUIRE(all["choices"].size() == 11);
  std::size_t tokens = 0;
  for (int i = 0; i < 11; ++i) {
    const auto one = ask_for(1, 5 + i, "zzz");
    CHECK(all["choices"][i]["text"] == one["choices"][0]["text"]);
    CHECK(all["choices"][i]["index"] == i);
    tokens += one["usage"]["completion_tokens"].get<std::size_t>();
  }
  CHECK((all["usage"]["completion_tokens"] == tokens && all["usage"]["prompt_tokens"] == 1));
  CHECK(all["usage"]["prompt_tokens_details"]["cached_tokens"].get<int>() <= 1);
}

TEST_CASE("the arguments of a tool that is not strict are any object beside a strict one") {
  ScriptedChat chat;
  auto body = weather_body();
  body["tools"].push_back(body["tools"][0]);
  body["tools"][1]["function"]["name"] = "search";
  body["tools"][0]["function"]["strict"] = true;
  body["max_tokens"] = 90;
  body["parallel_tool_calls"] = false;
  const auto call = [&](const std::string& name, const std::string& arguments) {
    const auto text = "<tool_call>\n{\"name\": \"" + name + "\", \"arguments\": " + arguments + "}\n</tool_call>";
    const auto choice = chat.answer(body, "<think>A <tool_call>?</think>" + text)["choices"][0];
    INFO(choice.dump());
    CHECK(choice["message"]["reasoning_content"] == "A <tool_call>?");
    REQUIRE(choice["message"]["tool_calls"].size() == 1);
    return choice["message"]["tool_calls"][0]["function"];
  };
  const auto loose = call("search", "{\"city\": 5, \"x\": [null]}");
  CHECK((loose["name"] == "search" && loose["arguments"] == "{\"city\": 5, \"x\": [null]}"));
  const auto strict = call("weather", "{\"city\": 5}");
  CHECK((strict["name"] == "weather" && !strict["arguments"].get<std::string>().starts_with("{\"city\": 5")));
}

TEST_CASE("bad tools, choices and histories are refused with one line") {
  ScriptedChat chat;
  const auto with = [](auto change) {
    auto body = weather_body();
    body["max_tokens"] = 1;
    change(body);
    return body;
  };
  CHECK(chat.refusal(with([](auto&) {})) == "ok");
  CHECK(chat.refusal(with([](auto& b) { b["tools"].push_back(b["tools"][0]); })) == "invalid_value tools");
  CHECK(chat.refusal(with([](auto& b) { b["tools"][0]["function"].erase("name"); })) == "invalid_value tools");
  CHECK(chat.refusal(with([](auto& b) { b["tools"][0]["function"]["name"] = "a b"; })) == "invalid_value tools");
  CHECK(chat.refusal(with([](auto& b) { b["tools"][0]["function"]["parameters"] = 5; })) == "invalid_value tools");
  CHECK(chat.refusal(with([](auto& b) { b["tools"][0]["function"]["parameters"] = nullptr; })) == "ok");
  CHECK(chat.refusal(with([](auto& b) { b["tools"][0]["function"]["strict"] = 1; })) == "invalid_value tools");
  CHECK(chat.refusal(with([](auto& b) { b["tools"][0]["type"] = "web_search"; })) == "not_supported tools");
  CHECK(chat.refusal(with([](auto& b) { b["tools"][0] = 5; })) == "invalid_value tools");
  const auto choose = [&](Json choice) { return chat.refusal(with([&](auto& b) { b["tool_choice"] = choice; })); };
  CHECK(choose("auto") == "ok");
  CHECK(choose({{"type", "function"}, {"function", {{"name", "x"}}}}) == "invalid_value tool_choice");
  CHECK(choose("any") == "invalid_value tool_choice");
  CHECK(choose({{"type", "function"}}) == "invalid_value tool_choice");
  CHECK(chat.refusal(with([](auto& b) { b.erase("tools"), b["tool_choice"] = "required"; })) ==
        "invalid_value tool_choice");
  const auto history = [&](Json message) {
    return chat.refusal(with([&](auto& b) { b["messages"].push_back(message); }));
  };
  const auto called = [](Json arguments) {
    return Json{{"role", "assistant"},
                {"content", nullptr},
                {"tool_calls", {{{"id", "a"}, {"function", {{"name", "weather"}, {"arguments", arguments}}}}}}};
  };
  CHECK(history(called("{}")) == "ok");
  auto nulls = called("{}");
  nulls["tool_calls"][0].update({{"id", nullptr}, {"index", nullptr}, {"type", nullptr}});
  nulls["tool_calls"][0]["function"]["strict"] = nullptr;
  CHECK(history(nulls) == "ok");
  CHECK(history(called("")) == "ok");
  CHECK(history(called(Json::object())) == "ok");
  CHECK(history(called("{city")) == "ok");  // an answer that was cut
  CHECK(history(called("[1]")) == "invalid_value messages");
  CHECK(history({{"role", "assistant"}, {"tool_calls", {5}}}) == "invalid_value messages");
  CHECK(history({{"role", "assistant"}, {"tool_calls", {{{"id", "a"}, {"function", Json::object()}}}}}) ==
        "invalid_value messages");
  CHECK(history({{"role", "tool"}, {"tool_call_id", "nix"}, {"content", "3"}}) == "invalid_value messages");
  CHECK(history({{"role", "tool"}, {"tool_call_id", 5}, {"content", "3"}}) == "invalid_value messages");
}

TEST_CASE("a thinking budget ends reasoning after so many tokens, whoever opened it") {
  const std::string thought = "1234567890 and so on";
  for (const bool by_prompt : {false, true}) {
    auto source = std::string(kChatTemplate);
    const std::string header = "<|im_start|>assistant\n{% endif %}";
    if (by_prompt) source.replace(source.find(header), header.size(), "<|im_start|>assistant\n<think>\n{% endif %}");
    ScriptedChat chat(source);
    auto body = weather_body();
    body["max_tokens"] = 40;
    const std::string said = (by_prompt ? "" : "<think>") + thought;
    for (const auto& member : {Json{{"thinking_budget", 5}}, Json{{"reasoning", {{"max_tokens", 5}}}},
                               Json{{"thinking", {{"type", "enabled"}, {"budget_tokens", 5}}}}}) {
      auto limited = body;
      limited.update(member);
      const auto message = chat.answer(limited, said)["choices"][0]["message"];
      INFO(message.dump());
      CHECK(message["reasoning_content"] == "12345");
      CHECK(message["content"] != "");
    }
    auto enough = body;
    enough["thinking_budget"] = 30;
    CHECK(chat.answer(enough, said + "</think>It is cold.")["choices"][0]["message"]["content"] == "It is cold.");
    enough["thinking_budget"] = 0;
    const auto none = chat.answer(enough, said)["choices"][0]["message"];
    CHECK_FALSE(none.contains("reasoning_content"));
    enough["thinking_budget"] = -2;
    CHECK(chat.refusal(enough) == "invalid_value thinking_budget");
  }
}

// What tool_choice, response formats and the tools themselves make of an answer, on a model that says what the test
// wants.

#include "tests/serve/scripted_chat.h"

using namespace forge::serve::test;

TEST_CASE("tool_choice required and by name: what the model says is made a call that fits the schema") {
  ScriptedChat chat;
  auto body = weather_body();
  body["max_tokens"] = 200;
  for (const Json& choice : {Json("required"), Json{{"type", "function"}, {"function", {{"name", "weather"}}}}}) {
    body["tool_choice"] = choice;
    body["parallel_tool_calls"] = false;
    for (const bool thinks : {false, true}) {
      const std::string call =
          "<tool_call>\n{\"name\": \"weather\", \"arguments\": {\"city\": \"Oslo\"}}\n</tool_call>";
      const auto answer = chat.answer(body, (thinks ? "<think>Hm.</think>" : "") + call + "More.")["choices"][0];
      INFO(answer.dump());
      CHECK(answer["finish_reason"] == "tool_calls");
      REQUIRE(answer["message"]["tool_calls"].size() == 1);
      CHECK(answer["message"]["tool_calls"][0]["function"]["arguments"] == "{\"city\": \"Oslo\"}");
      CHECK(answer["message"]["content"].is_null());
      CHECK(answer["message"].contains("reasoning_content") == thinks);
    }
    // A model that wants to say something else is kept from it; what it thinks first is limited.
    body["thinking_budget"] = 2;
    const auto answer = chat.answer(body, "It is cold.")["choices"][0];
    INFO(answer.dump());
    CHECK(answer["message"]["content"].is_null());
    REQUIRE(answer["message"]["tool_calls"].size() == 1);
    CHECK(answer["message"]["tool_calls"][0]["function"]["name"] == "weather");
    body.erase("thinking_budget");
  }
}

TEST_CASE("allowed_tools: the model is told of these tools, and calls no other") {
  ScriptedChat chat;
  auto body = weather_body();
  body["tools"].push_back(Json::parse(R"({"type":"function","function":{"name":"clock"}})"));
  const auto choose = [&](const char* mode, std::vector<const char*> names) {
    Json tools = Json::array();
    for (const auto* name : names) tools.push_back({{"type", "function"}, {"function", {{"name", name}}}});
    body["tool_choice"] = {{"type", "allowed_tools"}, {"allowed_tools", {{"mode", mode}, {"tools", tools}}}};
  };
  choose("auto", {"clock"});
  CHECK((has(chat.prompt(body), "clock") && !has(chat.prompt(body), "weather")));
  CHECK(chat.answer(body, "Hi.")["choices"][0]["message"]["content"] == "Hi.");
  choose("required", {"clock"});
  body["max_tokens"] = 200;
  body["parallel_tool_calls"] = false;
  const auto choice = chat.answer(body, "<tool_call>\n{\"name\": \"weather\", ")["choices"][0];
  INFO(choice.dump());
  CHECK(choice["message"]["tool_calls"][0]["function"]["name"] == "clock");
  choose("auto", {"clock", "weather"});
  CHECK(has(chat.prompt(body), "weather"));
  for (const auto& [mode, name] : {std::pair{"auto", "nix"}, {"none", "clock"}}) {
    choose(mode, {name});
    CHECK(chat.refusal(body) == "invalid_value tool_choice");
  }
  choose("auto", {});
  CHECK(chat.refusal(body) == "invalid_value tool_choice");
  choose("auto", {"clock"});
  body["tool_choice"]["allowed_tools"]["x"] = 1;
  CHECK(chat.refusal(body) == "unknown_member tool_choice.allowed_tools.x");
}

TEST_CASE("a tool without parameters is called without arguments") {
  ScriptedChat chat;
  auto body = weather_body();
  body["max_tokens"] = 100;
  body["tool_choice"] = "required";
  body["parallel_tool_calls"] = false;
  for (const auto* parameters : {"null", R"({"type": "object", "properties": {}})", R"({"properties": {}})"}) {
    body["tools"] = Json::array({{{"type", "function"}, {"function", {{"name", "stop"}}}}});
    body["tools"][0]["function"]["parameters"] = Json::parse(parameters);
    const auto choice =
        chat.answer(body, "<tool_call>\n{\"name\": \"stop\", \"arguments\": {\"now\": 1}}\n</tool_call>")["choices"][0];
    INFO(choice.dump());
    REQUIRE(choice["message"]["tool_calls"].size() == 1);
    const auto& function = choice["message"]["tool_calls"][0]["function"];
    CHECK(Json::parse(function["arguments"].get<std::string>()) == Json::object());
  }
  body["tools"][0]["function"]["parameters"] = {{"type", "string"}};
  CHECK(chat.refusal(body) == "invalid_value tools");
}

TEST_CASE("with tools and a response format the model calls, or answers in that format") {
  ScriptedChat chat;
  auto body = weather_body();
  body["max_tokens"] = 60;
  body["response_format"] = Json::parse(
      R"({"type": "json_schema", "json_schema": {"name": "n", "schema": {"type": "object", "properties": {"sum":
          {"type": "integer"}}, "required": ["sum"], "additionalProperties": false}}})");
  const auto message = [&](const std::string& script) { return chat.answer(body, script)["choices"][0]["message"]; };
  const auto called =
      message("<tool_call>\n{\"name\": \"weather\", \"arguments\": {\"city\": \"Oslo\"}}\n</tool_call>");
  INFO(called.dump());
  CHECK(called["content"].is_null());
  REQUIRE(called["tool_calls"].size() == 1);
  CHECK(called["tool_calls"][0]["function"]["arguments"] == "{\"city\": \"Oslo\"}");
  const auto answered = message("<think>Hm.</think>{\"sum\": 7}");
  INFO(answered.dump());
  CHECK((answered["content"] == "{\"sum\": 7}" && !answered.contains("tool_calls")));
  CHECK(answered["reasoning_content"] == "Hm.");
  body["response_format"] = {{"type", "json_object"}};
  CHECK(message("{\"a\": [1]}")["content"] == "{\"a\": [1]}");
  body["tool_choice"] = "required";
  CHECK(chat.refusal(body) == "invalid_value tool_choice");
  body["tool_choice"] = "none";
  CHECK(message("{\"a\": [1]}")["content"] == "{\"a\": [1]}");
  body.erase("tool_choice");
  body.erase("response_format");
  body["guided_regex"] = "a+";
  CHECK(chat.refusal(body) == "not_supported guided_regex");
}

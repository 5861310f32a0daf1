// An agent with tools: many turns of calls and results, each of which sends the whole conversation again. The KV cache
// of what the last turn ended with is used again, so every token is processed once.

#include "tests/serve/scripted_chat.h"

using namespace forge::serve::test;

namespace {

constexpr std::size_t kTurns = 30;

/// A fixed tool server: the weather of a city.
std::string tool_result(const Json& call) {
  const auto arguments = Json::parse(call["function"]["arguments"].get<std::string>());
  return "It is " + std::to_string(arguments["city"].get<std::string>().size()) + " C in " +
         arguments["city"].get<std::string>();
}

struct Loop {
  std::size_t prompt = 0, cached = 0, generated = 0, fed = 0;
  std::vector<std::size_t> missed;  ///< of each turn but the first: tokens of the last turn that were not cached
};

/// Plays the turns. `reasoning`: what the model thinks before each call.
Loop play(ScriptedChat& chat, const std::string& reasoning) {
  Loop loop;
  auto body = weather_body();
  std::size_t last = 0;
  for (std::size_t turn = 0; turn < kTurns; ++turn) {
    const auto city = "City " + std::to_string(turn);
    const auto answer =
        chat.answer(body, reasoning + "I look.\n<tool_call>\n{\"name\": \"weather\", \"arguments\": {\"city\": \"" +
                              city + "\"}}\n</tool_call>");
    const auto& message = answer["choices"][0]["message"];
    REQUIRE(message["tool_calls"].size() == 1);
    const auto& call = message["tool_calls"][0];
    CHECK(tool_result(call) == "It is " + std::to_string(city.size()) + " C in " + city);
    const auto& usage = answer["usage"];
    const auto cached = usage["prompt_tokens_details"]["cached_tokens"].get<std::size_t>();
    if (turn > 0) loop.missed.push_back(last - std::min(last, cached));
    last = usage["prompt_tokens"].get<std::size_t>() + usage["completion_tokens"].get<std::size_t>();
    loop.prompt += usage["prompt_tokens"].get<std::size_t>();
    loop.cached += cached;
    loop.generated += usage["completion_tokens"].get<std::size_t>();
    body["messages"].push_back(message);
    body["messages"].push_back({{"role", "tool"}, {"tool_call_id", call["id"]}, {"content", tool_result(call)}});
  }
  loop.fed = chat.device.fed;
  return loop;
}

}  // namespace

TEST_CASE("thirty turns of an agent process each token once") {
  ScriptedChat chat;
  const auto loop = play(chat, "<think>\nWhich one is next?\n</think>\n\n");
  // The last token of an answer is not processed before the next turn.
  for (const auto missed : loop.missed) CHECK(missed == 1);
  CHECK(loop.fed == loop.prompt - loop.cached + loop.generated - kTurns);
  CHECK(loop.cached * 10 > loop.prompt * 9);
}

TEST_CASE("where a template drops reasoning from history, a turn's answer is processed again, and no more") {
  auto source = std::string(kChatTemplate);
  const std::string shown = "{% if m.reasoning_content %}", dropped = "{% if m.reasoning_content and loop.last %}";
  source.replace(source.find(shown), shown.size(), dropped);
  ScriptedChat chat(source);
  const std::string reasoning = "<think>\nWhich one is next, and where was I before that?\n</think>\n\n";
  const auto loop = play(chat, reasoning);
  const auto answer = chat.encode(reasoning).size() + 120;
  for (const auto missed : loop.missed) {
    CHECK(missed > chat.encode(reasoning).size());
    CHECK(missed < answer + 2 * kChatShape.block_tokens);
  }
}

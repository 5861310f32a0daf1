// Request bodies: each member is read into the right field, and each invalid body is refused with the right member and
// code.

#include "serve/protocol/request_json.h"

#include <fmt/format.h>

#include <catch2/catch.hpp>
#include <span>
#include <string>
#include <vector>

#include "serve/embeddings.h"

using namespace forge::serve;

namespace {

/// "CODE PARAM" of the refusal, or "ok".
template <class T>
std::string outcome(const Read<T>& read) {
  if (read) return "ok";
  CHECK(read.error().status == 400);
  CHECK(!read.error().message.empty());
  CHECK(read.error().category == ErrorCategory::kUser);
  CHECK_FALSE(read.error().recoverable());
  return read.error().code + " " + read.error().param;
}

std::string completion(const std::string& members) {
  return outcome(read_completion(R"({"prompt":"x",)" + members + "}"));
}
std::string chat(const std::string& members) {
  return outcome(read_chat(R"({"messages":[{"role":"user","content":"x"}],)" + members + "}"));
}

}  // namespace

TEST_CASE("the members of a completion are read into the right fields") {
  const auto body = read_completion(R"({"model":"m","prompt":["a",[1,2]],"max_tokens":7,"temperature":0.5,"top_p":0.9,
    "top_k":3,"min_p":0.1,"typical_p":0.8,"frequency_penalty":-1,"presence_penalty":1.5,"repetition_penalty":1.25,
    "seed":-1,"n":2,"priority":-3,"logprobs":4,"stop":["u","v"],"stop_token_ids":[9],"ignore_eos":true,"timeout":1.5,
    "logit_bias":{"5":-100,"6":1.5},"stream":true,"stream_options":{"include_usage":true},"user":"me","echo":false,
    "best_of":2,"suffix":null})");
  REQUIRE(body.has_value());
  CHECK(body->model == "m");
  REQUIRE(body->prompts.size() == 2);
  CHECK(std::get<std::string>(body->prompts[0]) == "a");
  CHECK(std::get<std::vector<std::int32_t>>(body->prompts[1]) == std::vector<std::int32_t>{1, 2});
  const auto& p = body->params;
  CHECK(p.max_tokens == 7);
  CHECK(p.sampling.temperature == 0.5F);
  CHECK(p.sampling.top_p == 0.9F);
  CHECK(p.sampling.top_k == 3);
  CHECK(p.sampling.min_p == 0.1F);
  CHECK(p.sampling.typical_p == 0.8F);
  CHECK(p.sampling.frequency_penalty == -1);
  CHECK(p.sampling.presence_penalty == 1.5F);
  CHECK(p.sampling.repeat_penalty == 1.25F);
  CHECK(p.seed == ~std::uint64_t{0});
  CHECK(p.samples == 2);
  CHECK(p.priority == -3);
  CHECK(p.logprobs);
  CHECK(p.top_logprobs == 4);
  CHECK(p.stops == std::vector<std::string>{"u", "v"});
  CHECK(p.stop_tokens == std::vector<std::int32_t>{9});
  CHECK(p.ignore_eos);
  CHECK(p.timeout == std::chrono::milliseconds(1500));
  REQUIRE(p.sampling.logit_bias.size() == 2);
  CHECK(p.sampling.logit_bias[0].token == 5);
  CHECK(p.sampling.logit_bias[0].bias == -100);
  CHECK(body->stream);
  CHECK(body->include_usage);
}

TEST_CASE("each dialect has its own defaults") {
  const auto completion = read_completion(R"({"prompt":[1,2]})");
  REQUIRE(completion.has_value());
  CHECK(completion->params.max_tokens == 16);
  CHECK(completion->params.sampling.temperature == 1);
  CHECK_FALSE(completion->params.seed.has_value());
  CHECK_FALSE(completion->stream);
  const auto generate = read_generate(R"({"prompt":"x"})");
  REQUIRE(generate.has_value());
  CHECK(generate->params.sampling.temperature == 0);
  CHECK(generate->params.max_tokens == 0);
  const auto chat =
      read_chat(R"({"messages":[{"role":"user","content":"x"}],"max_completion_tokens":5,"max_tokens":4})");
  REQUIRE(chat.has_value());
  CHECK(chat->params.max_tokens == 5);
}

TEST_CASE("the model file's settings apply where a request sets nothing") {
  const forge::session::SamplingDefaults file{
      .temperature = 0.25F, .top_k = 20, .top_p = 0.75F, .min_p = 0.125F, .repeat_penalty = 1.5F, .penalty_window = 8};
  for (const auto* open : {R"({"prompt":"x"})", R"({"prompt":"x","temperature":null,"top_k":null})"}) {
    auto read = read_generate(open);
    REQUIRE(read.has_value());
    use_defaults_of(file, read->params);
    const auto& sampling = read->params.sampling;
    CHECK(sampling.temperature == 0.25F);
    CHECK(sampling.top_k == 20);
    CHECK(sampling.top_p == 0.75F);
    CHECK(sampling.min_p == 0.125F);
    CHECK(sampling.repeat_penalty == 1.5F);
    CHECK(sampling.penalty_window == 8);
  }
  auto said = read_completion(R"({"prompt":"x","temperature":0,"top_k":0,"top_p":1,"min_p":0,"repetition_penalty":1})");
  REQUIRE(said.has_value());
  use_defaults_of(file, said->params);
  CHECK(said->params.sampling.temperature == 0);
  CHECK(said->params.sampling.top_k == 0);
  CHECK(said->params.sampling.top_p == 1);
  CHECK(said->params.sampling.min_p == 0);
  CHECK(said->params.sampling.repeat_penalty == 1);
  auto silent = read_completion(R"({"prompt":"x"})");
  REQUIRE(silent.has_value());
  use_defaults_of({}, silent->params);
  CHECK(silent->params.sampling.temperature == 1);
  CHECK(silent->params.sampling.penalty_window == 64);
}

TEST_CASE("a conversation is prepared for the template: parts joined, tool-call arguments parsed, variables set") {
  const auto body =
      read_chat(R"({"messages":[{"role":"user","content":[{"type":"text","text":"a"},{"type":"text","text":"b"}]},
    {"role":"assistant","tool_calls":[{"id":"1","type":"function","function":{"name":"f","arguments":"{\"x\":1}"}}]}],
    "tools":[{"function":{"name":"f","strict":true}}],"chat_template_kwargs":{"enable_thinking":false}})");
  REQUIRE(body.has_value());
  CHECK(body->conversation ==
        R"({"enable_thinking":false,"messages":[{"role":"user","content":"ab"},{"role":"assistant","tool_calls":)"
        R"([{"id":"1","type":"function","function":{"name":"f","arguments":{"x":1}}}],"content":""}],)"
        R"("tools":[{"function":{"name":"f","parameters":{"type":"object","properties":{}}},"type":"function"}],)"
        R"("add_generation_prompt":true})");
}

TEST_CASE("a body that is not a JSON object is refused") {
  for (const std::string text : {"", "{", "[1]", "1", "null", "{\"prompt\":\"\xff\"}", "{\"prompt\":\"x\"} x",
                                 "{'a':1}", "{\"prompt\":\"x\",\"seed\":1e999}", "{\"a\":NaN}"}) {
    INFO(text);
    CHECK(outcome(read_completion(text)) == "invalid_json ");
  }
  CHECK(outcome(read_completion(std::string_view("{\"prompt\":\"x\"}\0", 15))) == "invalid_json ");
  const std::string deep(200, '[');
  CHECK(outcome(read_completion("{\"prompt\":" + deep)) == "invalid_json ");
  CHECK(outcome(read_completion("{\"prompt\":" + std::string(1 << 20, '['))) == "invalid_json ");
}

TEST_CASE("tool-call arguments are JSON in a string, with the same depth limit as the body") {
  const auto with = [](std::string_view arguments) {
    return outcome(read_chat(fmt::format(
        R"({{"messages":[{{"role":"assistant","tool_calls":[{{"function":{{"name":"f","arguments":"{}"}}}}]}}]}})",
        arguments)));
  };
  CHECK(with("no JSON {") == "ok");  // an answer that was cut
  CHECK(with(R"({\"a\":)" + std::string(50, '[') + std::string(50, ']') + "}") == "ok");
  CHECK(with(R"({\"a\":)" + std::string(100'000, '[') + std::string(100'000, ']') + "}") == "invalid_json ");
  CHECK(with(R"({\"a\":)" + std::string(100'000, '[')) == "invalid_json ");
}

TEST_CASE("an object has at most 1024 members at any depth, counted separately for each object") {
  const auto object = [](int members, std::string_view quote) {
    std::string text = "{";
    for (int i = 0; i < members; ++i) text += fmt::format("{}{}{}{}:0", i == 0 ? "" : ",", quote, i, quote);
    return text + "}";
  };
  CHECK(completion("\"logit_bias\":" + object(1024, "\"")) == "ok");
  CHECK(completion("\"logit_bias\":" + object(1025, "\"")) == "invalid_json ");
  CHECK(outcome(read_completion(object(1025, "\""))) == "invalid_json ");
  const auto two = fmt::format(R"("metadata":{{"a":{0},"b":{0}}})", object(1000, "\""));
  CHECK(chat(two) == "ok");
  const auto call = fmt::format(
      R"({{"messages":[{{"role":"assistant","tool_calls":[{{"function":{{"name":"f","arguments":"{}"}}}}]}}]}})",
      object(1025, R"(\")"));
  CHECK(outcome(read_chat(call)) == "invalid_json ");
}

TEST_CASE("wrong types, invalid values and unknown members are refused by name") {
  for (const auto& [members, name] : std::initializer_list<std::pair<std::string, std::string>>{
           {R"("temperature":"1")", "temperature"},
           {R"("temperature":-0.1)", "temperature"},
           {R"("temperature":2.1)", "temperature"},
           {R"("top_p":1.01)", "top_p"},
           {R"("top_k":1.5)", "top_k"},
           {R"("top_k":-2)", "top_k"},
           {R"("n":0)", "n"},
           {R"("n":129)", "n"},
           {R"("max_tokens":0)", "max_tokens"},
           {R"("max_tokens":true)", "max_tokens"},
           {R"("max_tokens":99999999999)", "max_tokens"},
           {R"("seed":18446744073709551615)", "seed"},
           {R"("frequency_penalty":2.5)", "frequency_penalty"},
           {R"("repetition_penalty":0)", "repetition_penalty"},
           {R"("logprobs":21)", "logprobs"},
           {R"("priority":17)", "priority"},
           {R"("timeout":0)", "timeout"},
           {R"("stop":"")", "stop"},
           {R"("stop":[1])", "stop"},
           {R"("stop":{})", "stop"},
           {R"("stop_token_ids":[-1])", "stop_token_ids"},
           {R"("stop_token_ids":[2147483648])", "stop_token_ids"},
           {fmt::format(R"("stop_token_ids":[{}])", fmt::join(std::vector<int>(1025), ",")), "stop_token_ids"},
           {R"("logit_bias":[])", "logit_bias"},
           {R"("logit_bias":{"x":1})", "logit_bias"},
           {R"("logit_bias":{"-1":1})", "logit_bias"},
           {R"("logit_bias":{"1":101})", "logit_bias"},
           {R"("logit_bias":{"1":null})", "logit_bias"},
           {R"("stream":1)", "stream"},
           {R"("stream_options":{})", "stream_options"},
           {R"("model":5)", "model"}}) {
    INFO(members);
    CHECK(completion(members) == "invalid_value " + name);
  }
  CHECK(completion(R"("nix":1)") == "unknown_member nix");
  CHECK(completion(R"("stream":true,"stream_options":{"x":1})") == "unknown_member x");
  CHECK(completion(R"("echo":true)") == "not_supported echo");
  CHECK(completion(R"("n":2,"best_of":3)") == "not_supported best_of");
  CHECK(completion(R"("temperature":null)") == "ok");
  for (const auto* prompt : {"null", "5", "{}", "[1.5]", "[-1]", "[[\"a\"]]", "[\"a\",5]"})
    CHECK(outcome(read_completion(fmt::format(R"({{"prompt":{}}})", prompt))) == "invalid_value prompt");
  CHECK(outcome(read_generate(R"({"prompt":["a","b"]})")) == "invalid_value prompt");
  CHECK(outcome(read_generate(R"({"prompt":"a","n":2})")) == "invalid_value n");
}

TEST_CASE("conversations that no template can render are refused") {
  for (const auto* messages :
       {"[]", "5", "{}", "[5]", "[{}]", R"([{"role":5}])", R"([{"role":"user","content":5}])", "null"}) {
    INFO(messages);
    CHECK(outcome(read_chat(fmt::format(R"({{"messages":{}}})", messages))) == "invalid_value messages");
  }
  const auto* image = R"({"messages":[{"role":"user","content":[{"type":"image_url","image_url":{"url":"x"}}]}]})";
  CHECK(outcome(read_chat(image)) == "not_supported messages");
  CHECK(chat(R"("top_logprobs":2)") == "invalid_value top_logprobs");
  CHECK(chat(R"("logprobs":true,"top_logprobs":2)") == "ok");
  CHECK(chat(R"("response_format":{"type":"text"},"tool_choice":"auto","store":true,"metadata":{"a":"b"})") == "ok");
  CHECK(chat(R"("tool_choice":"required")") == "invalid_value tool_choice");
  CHECK(chat(R"("tools":5)") == "invalid_value tools");
  CHECK(chat(R"("chat_template_kwargs":{"messages":[]})") == "invalid_value chat_template_kwargs");
}

TEST_CASE("embedding inputs: one text, one list of ids, or several of either") {
  const auto texts = read_embeddings(R"({"model":"m","input":["a","b"],"encoding_format":"base64","dimensions":7,
      "timeout":2.5,"user":"u"})");
  REQUIRE(texts.has_value());
  CHECK((texts->model == "m" && texts->inputs == std::vector<Prompt>{"a", "b"} && texts->base64));
  CHECK((texts->dimensions == 7 && texts->timeout == std::chrono::milliseconds(2500)));
  const auto ids = read_embeddings(R"({"input":[[1,2],[3]],"encoding_format":"float"})");
  REQUIRE(ids.has_value());
  CHECK((ids->inputs.size() == 2 && std::get<1>(ids->inputs[0]) == std::vector<std::int32_t>{1, 2} && !ids->base64));
  CHECK(read_embeddings(R"({"input":[5,6]})")->inputs.size() == 1);
  CHECK(outcome(read_embeddings("{}")) == "invalid_value input");
  CHECK(outcome(read_embeddings(R"({"input":{}})")) == "invalid_value input");
  CHECK(outcome(read_embeddings(R"({"input":["a",5]})")) == "invalid_value input");
  CHECK(outcome(read_embeddings(R"({"input":"a","encoding_format":"f16"})")) == "invalid_value encoding_format");
  CHECK(outcome(read_embeddings(R"({"input":"a","dimensions":0})")) == "invalid_value dimensions");
  CHECK(outcome(read_embeddings(R"({"input":"a","prompt":"a"})")) == "unknown_member prompt");
}

TEST_CASE("a query and documents to rerank: texts, or objects with a text") {
  const auto body = read_rerank(R"({"model":"m","query":"q","documents":["a",{"text":"b"}],"top_n":1,
      "return_documents":true,"timeout":2.5,"user":"u"})");
  REQUIRE(body.has_value());
  CHECK((body->model == "m" && body->query == "q" && body->documents == std::vector<std::string>{"a", "b"}));
  CHECK((body->top_n == 1 && body->return_documents && body->timeout == std::chrono::milliseconds(2500)));
  const auto rest = [](const std::string& members) {
    return outcome(read_rerank(R"({"query":"q","documents":["a","b"],)" + members + "}"));
  };
  CHECK(read_rerank(R"({"query":"q","documents":["a","b"]})")->top_n == 2);
  CHECK_FALSE(read_rerank(R"({"query":"q","documents":["a","b"]})")->return_documents);
  CHECK(read_rerank(R"({"query":"q","documents":["a","b"],"top_n":9})")->top_n == 2);
  CHECK(rest(R"("top_n":0)") == "invalid_value top_n");
  CHECK(rest(R"("return_documents":1)") == "invalid_value return_documents");
  CHECK(rest(R"("rank_fields":["a"])") == "unknown_member rank_fields");
  CHECK(outcome(read_rerank(R"({"documents":["a"]})")) == "invalid_value query");
  CHECK(outcome(read_rerank(R"({"query":["q"],"documents":["a"]})")) == "invalid_value query");
  for (const char* documents : {"null", "[]", "\"a\"", "[5]", "[{}]"})
    CHECK(outcome(read_rerank(fmt::format(R"({{"query":"q","documents":{}}})", documents))) ==
          "invalid_value documents");
  CHECK(outcome(read_rerank(R"({"query":"q","documents":[{"text":5}]})")) == "invalid_value text");
  CHECK(outcome(read_rerank(R"({"query":"q","documents":[{"text":"a","title":"t"}]})")) == "unknown_member title");
}

TEST_CASE("base64 of zero to four bytes") {
  const unsigned char bytes[] = {0xFB, 0xEF, 0xFF, 0x00};
  constexpr const char* kTexts[] = {"", "+w==", "++8=", "++//", "++//AA=="};
  for (std::size_t n = 0; n <= 4; ++n) CHECK(base64(std::span(bytes).first(n)) == kTexts[n]);
}

TEST_CASE("text and ids of the tokenizer routes") {
  const auto text = read_tokenize(R"({"content":"a","add_special":false})");
  REQUIRE(text.has_value());
  CHECK(text->text == "a");
  CHECK_FALSE(text->add_special);
  CHECK(text->parse_special);
  CHECK(outcome(read_tokenize(R"({"content":5})")) == "invalid_value content");
  CHECK(outcome(read_tokenize("{}")) == "invalid_value content");
  CHECK(read_detokenize(R"({"tokens":[3,0]})").value() == std::vector<std::int32_t>{3, 0});
  CHECK(outcome(read_detokenize(R"({"tokens":"3"})")) == "invalid_value tokens");
  CHECK(outcome(read_detokenize("{}")) == "invalid_value tokens");
}

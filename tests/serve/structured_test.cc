// Structured output: the members of a body that constrain its text, each refusal, and what becomes of them.

#include "serve/structured.h"

#include <fmt/format.h>

#include <catch2/catch.hpp>
#include <string>

#include "serve/protocol/request_json.h"
#include "tests/support/gguf_writer.h"

namespace forge::serve {
namespace {

using text::constraint::ConstraintSyntax;

/// "SYNTAX TEXT of MEMBER", "none", or "CODE PARAM" of the refusal; the same for all routes that generate text.
std::string structured(const std::string& members) {
  const auto shown = [](const auto& body) -> std::string {
    if (!body) return body.error().code + " " + body.error().param;
    const auto& output = body->params.structured;
    if (!output) return "none";
    constexpr const char* kNames[] = {"regex", "gbnf", "schema"};
    return fmt::format("{} {} of {}", kNames[static_cast<int>(output->source.syntax)], output->source.text,
                       output->member);
  };
  const auto chat = shown(read_chat(R"({"messages":[{"role":"user","content":"x"}],)" + members + "}"));
  CHECK(shown(read_completion(R"({"prompt":"x",)" + members + "}")) == chat);
  CHECK(shown(read_generate(R"({"prompt":"x",)" + members + "}")) == chat);
  return chat;
}

struct ByteVocabulary {
  static std::string image() {
    tests::GgufWriter w("llama");
    std::vector<std::string> tokens{"<unk>", "<s>", "</s>", "<think>", "</think>"};
    std::vector<std::int32_t> types{2, 3, 3, 3, 3};
    for (unsigned byte = 0; byte < 256; ++byte) {
      tokens.push_back(fmt::format("<0x{:02X}>", byte));
      types.push_back(6);
    }
    w.add("tokenizer.ggml.model", "llama").add("tokenizer.ggml.tokens", tokens);
    w.add("tokenizer.ggml.eos_token_id", std::uint32_t{2});
    return w.add("tokenizer.ggml.token_type", types).bytes();
  }
  std::string file = image();
  loader::Gguf gguf = loader::Gguf::from(std::as_bytes(std::span(file)));
  std::unique_ptr<text::Tokenizer> tokenizer = text::Tokenizer::open(gguf);
  static std::int32_t of(char byte) { return 5 + static_cast<unsigned char>(byte); }
};

bool allows(runtime::TokenConstraint& constraint, std::int32_t token) {
  const auto mask = constraint.mask();
  const auto id = static_cast<std::size_t>(token);
  return mask.empty() || (mask[id / 32] >> id % 32 & 1U) != 0;
}

}  // namespace

TEST_CASE("each member that constrains the text is read") {
  CHECK(structured(R"("n":1)") == "none");
  CHECK(structured(R"("response_format":{"type":"text"})") == "none");
  CHECK(structured(R"("response_format":null,"grammar":null)") == "none");
  const std::string any = R"(schema {"type":"object"} of )";
  CHECK(structured(R"("response_format":{"type":"json_object"})") == any + "response_format");
  CHECK(structured(R"("response_format":{"type":"json_schema","json_schema":{"name":"n","strict":true,"description":"d",
      "schema":{"type":"array","b":1,"a":2}}})") == R"(schema {"type":"array","b":1,"a":2} of response_format)");
  CHECK(structured(R"("response_format":{"type":"json_schema","json_schema":{"name":"n"}})") ==
        any + "response_format");
  CHECK(structured(R"("response_format":{"type":"json_object","schema":{"a":1}})") ==
        R"(schema {"a":1} of response_format)");
  CHECK(structured(R"("guided_json":{"a":1})") == R"(schema {"a":1} of guided_json)");
  CHECK(structured(R"("guided_json":"{\"a\":1}")") == R"(schema {"a":1} of guided_json)");
  CHECK(structured(R"("json_schema":true)") == "schema true of json_schema");
  CHECK(structured(R"("guided_regex":"a+")") == "regex a+ of guided_regex");
  CHECK(structured(R"("guided_grammar":"root ::= \"a\"")") == R"(gbnf root ::= "a" of guided_grammar)");
  CHECK(structured(R"("grammar":"root ::= \"a\"")") == R"(gbnf root ::= "a" of grammar)");
  CHECK(structured(R"("guided_choice":["yes","n.o","ä|"])") ==
        R"(gbnf root ::= "yes" | "n.o" | "ä|" of guided_choice)");
  CHECK(structured(R"("guided_choice":["","a\"\\\n"])") == R"(gbnf root ::= "" | "a\x22\x5C\x0A" of guided_choice)");
  CHECK(structured(R"("structured_outputs":{"regex":"a"})") == "regex a of structured_outputs");
  CHECK(structured(R"("structured_outputs":{"json":{"a":1}})") == R"(schema {"a":1} of structured_outputs)");
  CHECK(structured(R"("structured_outputs":{"choice":["a"]})") == R"(gbnf root ::= "a" of structured_outputs)");
  CHECK(structured(R"("structured_outputs":{"grammar":"g"})") == "gbnf g of structured_outputs");
  CHECK(structured(R"("structured_outputs":{"json_object":true})") == any + "structured_outputs");
}

TEST_CASE("constraints of the wrong kind, and two at once, are refused by name") {
  for (const auto* value :
       {"5", "[]", R"({"type":"xml"})", "{}", R"({"type":"json_schema"})", R"({"type":"json_schema","json_schema":5})",
        R"({"type":"json_object","schema":5})", R"({"type":"json_schema","json_schema":{"schema":[]}})"})
    CHECK(structured(fmt::format(R"("response_format":{})", value)) == "invalid_value response_format");
  CHECK(structured(R"("response_format":{"type":"text","x":1})") == "unknown_member response_format.x");
  for (const auto* inner : {R"("strict":"yes")", R"("name":1)", R"("description":[])"})
    CHECK(structured(R"("response_format":{"type":"json_schema","json_schema":{)" + std::string(inner) + "}}")
              .starts_with("invalid_value response_format.json_schema."));
  CHECK(structured(R"("response_format":{"type":"json_schema","json_schema":{"schema":{}},"schema":{}})") ==
        "invalid_value response_format");
  CHECK(structured(R"("guided_regex":5)") == "invalid_value guided_regex");
  CHECK(structured(R"("guided_regex":"")") == "invalid_value guided_regex");
  CHECK(structured(R"("guided_json":5)") == "invalid_value guided_json");
  CHECK(structured(R"("json_schema":[])") == "invalid_value json_schema");
  CHECK(structured(R"("grammar":{})") == "invalid_value grammar");
  CHECK(structured(R"("guided_grammar":"")") == "invalid_value guided_grammar");
  for (const auto* value : {"[]", "5", "[1]", R"("a")"})
    CHECK(structured(fmt::format(R"("guided_choice":{})", value)) == "invalid_value guided_choice");
  CHECK(structured(R"("structured_outputs":5)") == "invalid_value structured_outputs");
  CHECK(structured(R"("structured_outputs":{"x":1})") == "unknown_member structured_outputs.x");
  CHECK(structured(R"("structured_outputs":{"regex":"a","choice":["a"]})") == "invalid_value structured_outputs");
  CHECK(structured(R"("guided_regex":"a","grammar":"b")") == "invalid_value grammar");
  CHECK(structured(R"("response_format":{"type":"json_object"},"guided_json":{})") == "invalid_value guided_json");
  CHECK(structured(R"("response_format":{"type":"text"},"guided_regex":"a")") == "regex a of guided_regex");
}

TEST_CASE("a constraint that is too complex is a bad request, before and while its text comes") {
  text::constraint::RegularPool pool(text::constraint::RegularPool::kBytesMax, 100);
  try {
    pool.spend(101);
    FAIL("no error");
  } catch (const Error& error) {
    const auto late = error_of(engine::FinishReason::kError, error.line());
    for (const auto& told : {error_of(error), late})
      CHECK((told.status == 400 && told.code == "constraint_too_complex" && !told.recoverable()));
  }
  CHECK(error_of(Error(ErrorCode::kMemory, "the weights do not fit")).status == 500);
  const auto busy = error_of(Error(ErrorCode::kMemory, "constraints of other requests take 1100 MiB"));
  CHECK((busy.status == 503 && busy.code == "busy" && busy.recoverable() && busy.retry_after_s == 1));
  CHECK(error_of(engine::FinishReason::kError, "error[memory]: creating a stream").status == 500);
}

TEST_CASE("members of other servers: what changes nothing is accepted, the rest is refused by name") {
  CHECK(
      structured(R"("guided_decoding_backend":"xgrammar","cache_prompt":true,"min_tokens":0,"skip_special_tokens":true,
                      "use_beam_search":false,"length_penalty":1.0,"mirostat":0,"top_n_sigma":-1,"bad_words":[],
                      "guided_whitespace_pattern":null,"prompt_logprobs":null)") == "none");
  for (const auto* member :
       {R"("min_tokens":2)", R"("skip_special_tokens":false)", R"("guided_whitespace_pattern":" ?")",
        R"("use_beam_search":true)", R"("mirostat":2)", R"("bad_words":["a"])"}) {
    const std::string text(member);
    CHECK(structured(text) == "not_supported " + text.substr(1, text.find('"', 1) - 1));
  }
  const auto inner = [](std::string_view members) {
    return structured(fmt::format(R"("structured_outputs":{{"regex":"a",{}}})", members));
  };
  CHECK(inner(R"("disable_fallback":true,"disable_any_whitespace":false,"whitespace_pattern":null,
                 "disable_additional_properties":false)") == "regex a of structured_outputs");
  CHECK(inner(R"("disable_any_whitespace":true)") == "not_supported structured_outputs.disable_any_whitespace");
  CHECK(inner(R"("whitespace_pattern":" ")") == "not_supported structured_outputs.whitespace_pattern");
  CHECK(inner(R"("structural_tag":{})") == "not_supported structured_outputs.structural_tag");
  CHECK(inner(R"("disable_additional_properties":true)") ==
        "not_supported structured_outputs.disable_additional_properties");
}

TEST_CASE("a thousand long choices, and an empty one") {
  const ByteVocabulary vocabulary;
  StructuredAnswers answers(*vocabulary.tokenizer, 261);
  std::string list = R"([""])";
  for (int i = 0; i < 1000; ++i)
    list.insert(list.size() - 1, fmt::format(R"(,"{}. {}")", i, std::string(120, i % 2 == 0 ? '.' : ' ')));
  const auto body = read_generate(R"({"prompt":"x","guided_choice":)" + list + "}");
  REQUIRE(body.has_value());
  const auto make = answers.start(*body->params.structured, {}, std::nullopt);
  REQUIRE(make.has_value());
  const auto one = (*make)();
  CHECK((allows(*one, 2) && allows(*one, ByteVocabulary::of('9')) && !allows(*one, ByteVocabulary::of('.'))));
}

TEST_CASE("a request's constraint: compiled once, refused in one line, and behind the reasoning of a chat") {
  const ByteVocabulary vocabulary;
  const auto of = ByteVocabulary::of;
  StructuredAnswers answers(*vocabulary.tokenizer, 261);
  const auto format =
      session::answer_format_of(*vocabulary.tokenizer,
                                "{% for m in messages %}{% if m.role == 'assistant' %}<think>{{ m.reasoning_content }}"
                                "</think>{% endif %}{{ m['content'] }}{% endfor %}");
  const StructuredOutput yes_or_no{{ConstraintSyntax::kRegex, "yes|no"}, "guided_choice"};
  const auto make = answers.start(yes_or_no, format, std::nullopt);
  REQUIRE(make.has_value());
  const auto one = (*make)();
  CHECK((allows(*one, of('y')) && allows(*one, of('n')) && !allows(*one, of('o')) && !allows(*one, 2)));
  CHECK((one->accept(of('n')) && !one->accept(of('e')) && !one->ended()));
  CHECK(one->forced(8) == std::vector<std::int32_t>{of('o')});  // and then the end, so no token can go on
  CHECK((one->accept(of('o')) && one->ended() && allows(*one, 2)));
  const auto other = (*make)();
  CHECK(other->accept(of('y')));
  // What is forced to the end of a text that may go on leaves its last token out: it may become a longer one.
  const auto longer = (*answers.start({{ConstraintSyntax::kRegex, "ab(c)?"}, "guided_regex"}, format, std::nullopt))();
  CHECK(longer->forced(8) == std::vector<std::int32_t>{of('a')});
  CHECK((longer->accept(of('a')) && longer->accept(of('b')) && !longer->ended() && allows(*longer, of('c'))));
  CHECK((longer->accept(of('c')) && longer->ended() && !allows(*longer, of('c')) && allows(*longer, 2)));

  const auto refused = answers.start({{ConstraintSyntax::kRegex, "(a"}, "guided_regex"}, format, std::nullopt);
  REQUIRE(!refused.has_value());
  CHECK((refused.error().status == 400 && refused.error().param == "guided_regex"));
  CHECK(refused.error().message.find('\n') == std::string::npos);

  // A prompt that opened the reasoning, one that closed it, and one that leaves it to the model.
  const auto opened = (*answers.start(yes_or_no, format, "x<think>"))();
  CHECK((allows(*opened, of('z')) && !allows(*opened, 2)));
  CHECK((opened->accept(of('z')) && opened->accept(4) && !allows(*opened, of('z')) && opened->accept(of('y'))));
  const auto closed = (*answers.start(yes_or_no, format, "x<think></think>\n"))();
  CHECK((!allows(*closed, of('z')) && !allows(*closed, 3) && allows(*closed, of('y'))));
  const auto free = (*answers.start(yes_or_no, format, "x"))();
  CHECK((!allows(*free, of('z')) && allows(*free, 3) && allows(*free, of('y'))));
  CHECK((free->accept(3) && allows(*free, of('z')) && free->accept(4) && !allows(*free, of('z'))));
}

}  // namespace forge::serve

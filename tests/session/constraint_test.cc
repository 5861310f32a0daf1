// Constraints between text and engine: compiled once, spelled as the model would, begun behind a marker, taken back.

#include <atomic>
#include <catch2/catch.hpp>
#include <string>
#include <thread>
#include <vector>

#include "session/constraint/constraints.h"
#include "session/constraint/reasoning_gate.h"
#include "support/error.h"
#include "tests/session/small_vocabulary.h"
#include "tests/support/error_of.h"

namespace forge::session {
namespace {

using tests::SmallVocabulary;
using text::constraint::ConstraintSyntax;
using Ids = std::vector<std::int32_t>;

constexpr std::size_t kColumns = 300;  // logits have more columns than the vocabulary has tokens

ConstraintSource regex(std::string text) {
  return {ConstraintSyntax::kRegex, std::move(text)};
}

bool allows(runtime::TokenConstraint& constraint, std::int32_t token) {
  const auto mask = constraint.mask();
  if (mask.empty()) return true;
  CHECK(mask.size() == (kColumns + 31) / 32);
  const auto id = static_cast<std::size_t>(token);
  return (mask[id / 32] >> id % 32 & 1U) != 0;
}

/// Appends `text` byte by byte, each of which the mask must allow.
void type(runtime::TokenConstraint& constraint, const std::string& text) {
  for (const char byte : text) {
    INFO(text << " at " << byte);
    CHECK(allows(constraint, SmallVocabulary::byte(byte)));
    CHECK(constraint.accept(SmallVocabulary::byte(byte)));
  }
}

}  // namespace

TEST_CASE("a source is compiled once while it is kept, and the longest unused is forgotten first") {
  const SmallVocabulary vocabulary;
  Constraints measured(*vocabulary.tokenizer, kColumns);
  const auto bytes = measured.compile(regex("a+"))->memory_bytes() + 2;
  Constraints constraints(*vocabulary.tokenizer, kColumns, 2 * bytes + bytes / 2);
  const auto first = constraints.compile(regex("a+"));
  CHECK(constraints.compile(regex("a+")) == first);
  (void)constraints.compile(regex("b+"));
  CHECK((constraints.compilations() == 2 && constraints.kept() == 2));
  (void)constraints.compile(regex("a+"));
  (void)constraints.compile(regex("c+"));  // takes the place of b+
  CHECK((constraints.compilations() == 3 && constraints.kept() == 2));
  CHECK(constraints.compile(regex("a+")) == first);
  CHECK(constraints.compilations() == 3);
  (void)constraints.compile(regex("b+"));
  CHECK((constraints.compilations() == 4 && constraints.kept() == 2));
  for (int i = 0; i < 3; ++i)  // a refusal is kept for a while
    CHECK(tests::code_of([&] { (void)constraints.compile(regex("(")); }) == ErrorCode::kUsage);
  CHECK((constraints.compilations() == 5 && constraints.kept() == 2));
  (void)constraints.compile(regex("d+"));
  CHECK((constraints.compilations() == 6 && constraints.kept() <= 2));
  Constraints forgets(*vocabulary.tokenizer, kColumns, Constraints::kBytesMax, {}, std::chrono::milliseconds(0));
  for (int i = 0; i < 3; ++i) CHECK(tests::code_of([&] { (void)forgets.compile(regex("(")); }) == ErrorCode::kUsage);
  CHECK(forgets.compilations() == 3);
  const auto started = constraints.start(first);  // also what is no longer kept
  CHECK(allows(*started, SmallVocabulary::byte('a')));
  Constraints small(*vocabulary.tokenizer, kColumns, 1);
  for (const auto* text : {"a", "b"}) CHECK((small.compile(regex(text)) != nullptr && small.kept() == 1));
}

TEST_CASE("new sources are refused while those of other requests take too much") {
  const SmallVocabulary vocabulary;
  Constraints measured(*vocabulary.tokenizer, kColumns);
  const auto bytes = measured.compile(regex("a+"))->memory_bytes() + 2;
  Constraints constraints(*vocabulary.tokenizer, kColumns, bytes);
  std::vector<std::shared_ptr<CompiledConstraint>> held;  // as by queued requests
  const auto refusal = [&](const std::string& text) {
    return tests::error_of([&] { held.push_back(constraints.compile(regex(text))); }, ErrorCode::kMemory);
  };
  for (char c = 'a'; held.size() <= Constraints::kBusyFactor; ++c) held.push_back(constraints.compile(regex({c, '+'})));
  const auto kept = held.size();
  CHECK_THAT(refusal("z+"), Catch::Contains("constraints of other requests take"));
  held.push_back(constraints.compile(held.back()->source()));  // what is known costs nothing
  CHECK(held.back() == held[kept - 1]);
  held.resize(kept - 2);
  CHECK(constraints.compile(regex("z+")) != nullptr);
}

TEST_CASE("threads that want one source share one compilation, and states of it do not disturb each other") {
  const SmallVocabulary vocabulary;
  Constraints constraints(*vocabulary.tokenizer, kColumns);
  std::atomic<int> wrong{0};
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t)
    threads.emplace_back([&, t] {
      for (int i = 0; i < 20; ++i) {
        const auto constraint = constraints.start(constraints.compile(regex("(ab|cd){1,40}")));
        for (int j = 0; j < 10 + t; ++j)
          for (const char byte : std::string(t % 2 == 0 ? "ab" : "cd")) {
            const auto mask = constraint->mask();
            const auto id = static_cast<std::size_t>(SmallVocabulary::byte(byte));
            if ((mask[id / 32] >> id % 32 & 1U) == 0 || !constraint->accept(static_cast<std::int32_t>(id))) ++wrong;
          }
      }
    });
  for (auto& thread : threads) thread.join();
  CHECK(wrong == 0);
  CHECK(constraints.compilations() == 1);
}

TEST_CASE("forced text is spelled by the tokenizer, and its last token is left to the model where the text goes on") {
  const SmallVocabulary vocabulary;
  Constraints constraints(*vocabulary.tokenizer, kColumns);
  const auto constraint = constraints.start(constraints.compile(regex(R"(\{"name": "[a-z]{2}", "age": 1\})")));
  const auto forced = constraint->forced(64);
  CHECK(vocabulary.text(forced) == "{\"name\":");  // ' "' may go on
  CHECK(forced == Ids{vocabulary.token("{\""), vocabulary.token("name"), vocabulary.token("\":")});
  CHECK(constraint->forced(2) == Ids{forced[0], forced[1]});
  for (const auto token : forced) CHECK(constraint->accept(token));
  type(*constraint, " \"ab");
  const auto rest = constraint->forced(64);  // to the end of all text
  CHECK(vocabulary.text(rest) == "\", \"age\": 1}");
  CHECK(!constraint->ended());
  for (const auto token : rest) CHECK(constraint->accept(token));
  CHECK((constraint->ended() && constraint->forced(64).empty()));
  CHECK((allows(*constraint, SmallVocabulary::kEnd) && !allows(*constraint, SmallVocabulary::byte('}'))));
  CHECK(constraint->accept(SmallVocabulary::kEnd));
  CHECK((constraint->ended() && !constraint->accept(SmallVocabulary::kEnd)));
  constraint->roll_back(2);
  CHECK((!constraint->ended() && allows(*constraint, rest.back()) && !allows(*constraint, SmallVocabulary::kEnd)));
}

TEST_CASE("where the text may end it may go on, and nothing is forced or ended") {
  const SmallVocabulary vocabulary;
  Constraints constraints(*vocabulary.tokenizer, kColumns);
  const auto constraint = constraints.start(constraints.compile(regex("a(bc)?")));
  type(*constraint, "a");
  CHECK((!constraint->ended() && constraint->forced(9).empty()));
  CHECK((allows(*constraint, SmallVocabulary::kEnd) && allows(*constraint, SmallVocabulary::byte('b'))));
  type(*constraint, "bc");
  CHECK(constraint->ended());
  // The forced text ends where the text may end: what follows may belong to its last token.
  const auto open = constraints.start(constraints.compile(regex("name(s)?")));
  CHECK(open->forced(9).empty());
  const auto closed = constraints.start(constraints.compile(regex("name")));
  CHECK(closed->forced(9) == Ids{vocabulary.token("name")});
}

TEST_CASE("a gate opens behind its marker, keeps the end shut before it, and is taken back") {
  const SmallVocabulary vocabulary;
  Constraints constraints(*vocabulary.tokenizer, kColumns);
  const auto compiled = constraints.compile(regex("yes|no"));
  const ConstraintGate reasoning{.markers = {"</think>"}, .opener = {}};
  const auto gated = constraints.start(compiled, &reasoning);
  for (int round = 0; round < 2; ++round) {
    CHECK((!allows(*gated, SmallVocabulary::kEnd) && !gated->accept(SmallVocabulary::kEnd)));
    type(*gated, "hm </thin");
    CHECK((gated->forced(9).empty() && !gated->ended() && allows(*gated, SmallVocabulary::byte('z'))));
    if (round == 0)
      type(*gated, "k>");  // spelled by other tokens than its own
    else
      CHECK(gated->accept(SmallVocabulary::kThinkEnd));
    CHECK((!allows(*gated, SmallVocabulary::byte('z')) && allows(*gated, SmallVocabulary::byte('y'))));
    CHECK(!gated->accept(SmallVocabulary::byte('z')));
    type(*gated, "n");
    CHECK(gated->forced(9) == Ids{SmallVocabulary::byte('o')});
    type(*gated, "o");
    CHECK(gated->ended());
    gated->roll_back(2);
    CHECK((!gated->ended() && allows(*gated, SmallVocabulary::byte('y'))));
    gated->roll_back(round == 0 ? 1 : 0);
    if (round == 0) {
      CHECK(allows(*gated, SmallVocabulary::byte('z')));
      gated->roll_back(10);
    }
  }

  // A call that may come: the text may also end without one.
  const ConstraintGate call{.markers = {"[CALL]", "<call>"}, .opener = {}, .may_end = true};
  const auto lazy = constraints.start(compiled, &call);
  type(*lazy, "so [CALL");
  CHECK((allows(*lazy, SmallVocabulary::kEnd) && lazy->mask().empty()));
  type(*lazy, "]");
  CHECK((!allows(*lazy, SmallVocabulary::kEnd) && allows(*lazy, SmallVocabulary::byte('n'))));
}

TEST_CASE("text behind a marker in the same token counts, without white space where that is no beginning") {
  const SmallVocabulary vocabulary;
  Constraints constraints(*vocabulary.tokenizer, kColumns);
  const auto after = [&](const char* marker, const char* pattern) {
    const ConstraintGate gate{.markers = {marker}, .opener = {}};
    auto gated = constraints.start(constraints.compile(regex(pattern)), &gate);
    CHECK(gated->accept(vocabulary.token("abc")));
    return gated;
  };
  auto gated = after("ab", "cd");  // the token abc holds the marker ab and the c
  CHECK((allows(*gated, SmallVocabulary::byte('d')) && !allows(*gated, SmallVocabulary::byte('c'))));
  gated->roll_back(1);
  CHECK(allows(*gated, SmallVocabulary::byte('x')));
  gated = after("ab", "x");  // c is no beginning
  CHECK((allows(*gated, SmallVocabulary::byte('x')) && !allows(*gated, SmallVocabulary::byte('d'))));
}

TEST_CASE("a model may open its reasoning or leave it out, and prompts decide it for the model") {
  const SmallVocabulary vocabulary;
  Constraints constraints(*vocabulary.tokenizer, kColumns);
  text::AnswerFormat format;
  CHECK(!reasoning_gate(format, "x").has_value());
  format.think_open = "<think>";
  format.think_close = "</think>";
  CHECK(!reasoning_gate(format, "x<think>\n\n</think>\n\n").has_value());
  CHECK(reasoning_gate(format, "<think>old</think> x<think>\n")->opener.empty());
  // What a message says of the marker opens nothing.
  CHECK(reasoning_gate(format, "What is <think>? assistant:\n")->opener == "<think>");
  const auto free = reasoning_gate(format, "<think>old</think> x");
  REQUIRE((free && free->opener == "<think>"));
  const auto compiled = constraints.compile(regex("yes"));
  auto gated = constraints.start(compiled, &*free);
  CHECK((allows(*gated, SmallVocabulary::kThink) && allows(*gated, SmallVocabulary::byte('y'))));
  CHECK((!allows(*gated, SmallVocabulary::kThinkEnd) && !allows(*gated, SmallVocabulary::kEnd)));
  CHECK(gated->accept(SmallVocabulary::kThink));
  type(*gated, "hm");
  CHECK(gated->accept(SmallVocabulary::kThinkEnd));
  type(*gated, "yes");
  CHECK(gated->ended());
  gated->roll_back(7);
  type(*gated, "yes");
  CHECK(gated->ended());
  format.channels = true;
  CHECK(reasoning_gate(format, "x")->markers.front() == "<|channel|>final<|message|>");
}

}  // namespace forge::session

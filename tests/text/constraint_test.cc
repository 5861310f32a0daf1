// Masks of tokens against a check of every token by itself, forced text, and taking back.

#include <catch2/catch.hpp>
#include <string>
#include <vector>

#include "tests/support/error_of.h"
#include "tests/text/splitmix.h"
#include "text/constraint/constraint.h"
#include "text/constraint/regex_syntax.h"

using namespace forge;
using namespace forge::tests;
using namespace forge::text::constraint;

namespace {

/// The end token, a control token, every byte, two tokens of one text, and random texts of all bands.
const std::vector<std::string>& tokens() {
  static const auto all = [] {
    std::vector<std::string> texts{"</s>", ""};
    for (int byte = 0; byte < 256; ++byte) texts.emplace_back(1, static_cast<char>(byte));
    texts.insert(texts.end(), {"ab", "ab", std::string(30, 'a'), std::string(12, 'b'), "é1", "\xA9!"});
    SplitMix random{7};
    for (int i = 0; i < 700; ++i) {
      std::string text;
      for (auto n = random.below(12) + 1; n > 0; --n) text += "ab01-,"[random.below(6)];
      texts.push_back(text);
    }
    return texts;
  }();
  return all;
}

std::shared_ptr<const TokenTrie> trie() {
  static const auto one = std::make_shared<const TokenTrie>(tokens(), std::vector<std::int32_t>{0});
  return one;
}

Constraint constraint_of(std::string_view pattern) {
  return Constraint(compile({ConstraintSyntax::kRegex, std::string(pattern)}, trie()));
}

bool has(std::span<const std::uint32_t> mask, std::size_t token) {
  return (mask[token / 32] >> token % 32 & 1U) != 0;
}

}  // namespace

TEST_CASE("a mask holds exactly the tokens that lead to an allowed text", "[constraint]") {
  for (const std::string_view pattern : {"[ab]{1,40}(,[01]+)*", "(ab|01-)*", "a{20,9000}", ".{3,10}", "(é|a)*1?",
                                         "(a|b)*a(a|b){5}", "(-?[01]{1,3},){2,50}"}) {
    INFO(pattern);
    auto constraint = constraint_of(pattern);
    RegularPool pool;  // its own automaton, without horizons
    auto state = parse_regex(pool, pattern);
    SplitMix random{pattern.size()};
    std::size_t wrong = 0;
    for (int step = 0; step < 12; ++step) {
      const auto span = constraint.mask();
      const std::vector<std::uint32_t> mask(span.begin(), span.end());
      std::vector<std::pair<std::int32_t, Expr>> next;
      for (std::size_t i = 1; i < tokens().size(); ++i) {
        auto after = state;
        for (const char c : tokens()[i]) after = pool.derivative(after, static_cast<std::uint8_t>(c));
        const bool allowed = !tokens()[i].empty() && !pool.is_empty(after);
        wrong += has(mask, i) != allowed;
        if (allowed) next.emplace_back(static_cast<std::int32_t>(i), after);
      }
      wrong += has(mask, 0) != pool.nullable(state) || constraint.can_end() != pool.nullable(state);
      if (next.empty()) break;
      const auto [token, after] = next[random.below(next.size())];
      wrong += !constraint.accept(token);
      state = after;
    }
    CHECK(wrong == 0);
  }
}

TEST_CASE("forced text, refused tokens, the end and taking back", "[constraint]") {
  auto constraint = constraint_of("\\{\"name\": (true|trick|[0-9])\\}");
  CHECK(constraint.forced() == "{\"name\": ");
  CHECK(constraint.forced(4) == "{\"na");
  for (const auto id : trie()->spelled("{\"name\": ")) CHECK(constraint.accept(id));
  const auto at = constraint.accepted();
  CHECK(constraint.forced().empty());
  CHECK(constraint.accept('t' + 2));
  CHECK(constraint.forced() == "r");
  CHECK_FALSE(constraint.accept('x' + 2));
  CHECK_FALSE(constraint.accept(0));
  CHECK_FALSE(constraint.accept(1));
  CHECK_FALSE(constraint.accept(-1));
  CHECK_FALSE(constraint.accept(1 << 20));
  constraint.roll_back(constraint.accepted() - at);
  CHECK(constraint.accept('7' + 2));
  CHECK(constraint.forced() == "}");
  CHECK(constraint.accept('}' + 2));
  CHECK(constraint.can_end());
  CHECK(constraint.accept(0));
  CHECK_FALSE(constraint.can_end());
  for (const auto word : constraint.mask()) CHECK(word == 0);
  constraint.roll_back(constraint.accepted());
  CHECK(constraint.forced(1) == "{");

  CHECK(error_of([] { const auto none = constraint_of("[]"); }, ErrorCode::kUsage) ==
        "error[usage]: the constraint allows no text");
}

// What hostile constraints cost: steps, nesting and memory are bounded, and what is too complex is an error and no
// wait. Where a bound is missing, these tests do not end or use up the stack.

#include <fmt/core.h>
#include <catch2/catch.hpp>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "tests/support/error_of.h"
#include "tests/text/byte_trie.h"
#include "text/constraint/constraint.h"
#include "text/constraint/gbnf.h"
#include "text/constraint/regex_syntax.h"

using namespace forge;
using namespace forge::tests;
using namespace forge::text::constraint;

namespace {

/// The end token, every byte, and a few longer tokens.
std::shared_ptr<const TokenTrie> bounds_trie() {
  static const auto trie = byte_trie({"abab", "xx", "\", \"", "aaaaaaaaaaaa", " a b a b a b a b a b a b"});
  return trie;
}

/// The usual limit of steps takes a sanitizer half a minute.
std::string too_complex(const ConstraintSource& source) {
  const ConstraintLimits limits{.steps = RegularPool::kWorkMax / 10};
  return error_of([&] { (void)compile(source, bounds_trie(), limits); }, ErrorCode::kMemory);
}

/// Generates `text` with its masks, as far as the constraint can be computed; the error that ends it, or nothing.
std::string generate(Constraint& constraint, const std::string& text) {
  try {
    for (const char c : text) {
      const auto id = static_cast<std::uint8_t>(c) + 1;
      const auto mask = constraint.mask();
      REQUIRE(allows(mask, static_cast<std::size_t>(id)));
      REQUIRE(constraint.accept(id));
    }
    (void)constraint.forced();
  } catch (const Error& error) {
    CHECK(error.code() == ErrorCode::kMemory);
    return error.line();
  }
  return {};
}

}  // namespace

TEST_CASE("ambiguous grammars get masks or an error in a bounded number of steps", "[bounds]") {
  const auto compiled = compile({ConstraintSyntax::kGbnf,
                                 "root ::= \"a\" root root | \"a\" | \"b\" root \"a\" root | root2\n"
                                 "root2 ::= [a-z ] root2 | [a-z ] root2 root2 | \"x\"\n"},
                                bounds_trie());
  Constraint constraint(compiled);
  const auto error = generate(constraint, "aaabab abababaabaabbab aba b a bba bbab ab abab x x x xababab ab");
  INFO(error);
  CHECK((error.empty() || error.find("too complex") != std::string::npos));
  Constraint other(compiled);
  CHECK(generate(other, "ab").empty());
}

TEST_CASE("long concatenations of intersections do not use up the stack", "[bounds]") {
  nlohmann::json schema{{"type", "array"}, {"items", false}, {"minItems", 19'900}};
  schema["$defs"]["x"] = {{"type", "string"}, {"pattern", "^(a|b)*a(a|b){10}$"}, {"minLength", 12}};
  for (int i = 0; i < 19'900; ++i) schema["prefixItems"].push_back({{"$ref", "#/$defs/x"}});
  Constraint constraint(compile({ConstraintSyntax::kJsonSchema, schema.dump()}, bounds_trie()));
  CHECK(generate(constraint, "[\"abaaaaaaaaaabab\", \"").empty());
  // Free text behind a long literal, as in calls with tags.
  const std::string name(200'000, 'n');
  const nlohmann::json pieces{name, {{"until", "</p>"}}, name};
  Constraint call(compile({ConstraintSyntax::kCalls, pieces.dump()}, bounds_trie()));
  CHECK(generate(call, "nnn").empty());
}

TEST_CASE("work is counted, and a pool that is spent says so", "[bounds]") {
  RegularPool pool(RegularPool::kBytesMax, 10'000);
  const auto expr = parse_regex(pool, "(a|b)*a(a|b){12}");
  const auto other = parse_regex(pool, "(a|b)*b(a|b){11}");
  pool.begin_work();
  CHECK(pool.work() == 0);
  CHECK_FALSE(pool.is_spent());
  const auto both = pool.and_({expr, other, pool.not_(parse_regex(pool, "(a|b)*ab(a|b)*"))});
  CHECK_THAT(error_of([&] { (void)pool.is_empty(pool.and_({both, pool.not_(pool.repeat(other, 3, 3))})); },
                      ErrorCode::kMemory),
             Catch::Contains("too complex"));
  CHECK(pool.is_spent());
  // Expressions inside expressions.
  RegularPool deep;
  auto nested = deep.literal("a");
  for (int i = 0; i < 100'000; ++i)
    nested =
        deep.repeat(deep.or_({deep.concat(nested, deep.literal("b")), deep.literal(i % 2 == 0 ? "c" : "d")}), 2, 3);
  CHECK_THAT(error_of([&] { (void)deep.derivative(nested, 'a'); }, ErrorCode::kMemory), Catch::Contains("too deep"));
  CHECK(deep.is_spent());
}

TEST_CASE("compiling is bounded", "[bounds]") {
  nlohmann::json patterns{{"type", "string"}}, all{{"type", "string"}};
  for (int i = 0; i < 60; ++i) {
    const auto pattern = fmt::format("a.{{3}}{:02}", i);
    patterns["oneOf"].push_back({{"pattern", pattern}});
    all["allOf"].push_back({{"pattern", pattern}});
  }
  for (const auto& schema : {patterns, all})
    CHECK_THAT(too_complex({ConstraintSyntax::kJsonSchema, schema.dump()}), Catch::Contains("too complex"));
  std::string chain = "root ::= r0\n";
  for (int i = 0; i < 12'000; ++i) chain += fmt::format("r{} ::= \"x\" r{}\n", i, i + 1);
  RegularPool pool;
  const auto language = parse_gbnf(pool, chain + "r12000 ::= \"y\"\n");
  CHECK_FALSE(pool.is_empty(language.start));
  CHECK(pool.work() < 500'000);
}

TEST_CASE("captured names take memory by their bytes and not by their beginnings", "[bounds]") {
  const auto compiled =
      compile({ConstraintSyntax::kJsonSchema,
               R"({"type": "object", "minProperties": 2, "propertyNames": {"pattern": "^a{1500}b?$"}})"},
              bounds_trie());
  Constraint constraint(compiled);
  const auto before = compiled->memory_bytes();
  for (const char c : "{\"" + std::string(1400, 'a')) REQUIRE(constraint.accept(static_cast<std::uint8_t>(c) + 1));
  CHECK(compiled->memory_bytes() - before < 1 << 20);
  CHECK(generate(constraint, std::string(100, 'a') + "\": 1, \"").empty());
  // The second name may not be the first.
  for (int i = 0; i < 1500; ++i) REQUIRE(constraint.accept('a' + 1));
  CHECK_FALSE(constraint.accept('"' + 1));
  CHECK(generate(constraint, "b\": 2}").empty());
  CHECK(constraint.can_end());
}

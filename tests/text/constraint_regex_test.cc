// The syntax of regular expressions, and the reference collection's expressions through token masks.

#include <catch2/catch.hpp>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "tests/support/error_of.h"
#include "tests/support/skip.h"
#include "text/constraint/constraint.h"
#include "text/constraint/regex_syntax.h"

using namespace forge;
using namespace forge::tests;
using namespace forge::text::constraint;

namespace {

bool matches(std::string_view pattern, std::string_view text, RegexMatch match = RegexMatch::kWhole) {
  RegularPool pool;
  auto expr = parse_regex(pool, pattern, match);
  for (const char c : text) expr = pool.derivative(expr, static_cast<std::uint8_t>(c));
  return pool.nullable(expr);
}

bool finds(std::string_view pattern, std::string_view text) {
  return matches(pattern, text, RegexMatch::kSearch);
}

std::string refusal(std::string_view pattern) {
  return error_of(
      [&] {
        RegularPool pool;
        const auto expr = parse_regex(pool, pattern);
        FAIL(pattern << " was taken: " << expr);
      },
      ErrorCode::kUsage);
}

struct Case {
  std::string_view pattern;
  std::vector<std::string_view> accept, reject;
};

}  // namespace

TEST_CASE("the syntax of ECMA-262", "[regex]") {
  const std::vector<Case> cases{
      {"", {""}, {"a"}},
      {"a|", {"", "a"}, {"aa"}},
      {"(?:ab|c)+?", {"ab", "cab"}, {"", "a"}},
      {"(?<year>\\d{4})", {"2024"}, {"202", "20245", "２０２４"}},
      {"a{2}b{1,}c{0,2}d{0}", {"aab", "aabbcc"}, {"ab", "aabccc", "aabd"}},
      {"[a-c-]+", {"a-c", "-"}, {"d", ""}},
      {"[]", {}, {"", "a"}},
      {"[^]", {"a", "\n", "é"}, {"", "ab"}},
      {"[^a]", {"b", "東", "\n"}, {"a", "\xFF"}},
      {"[\\w-.]+", {"a-.", "_9"}, {"+"}},
      {"[\\b]", {"\b"}, {"b"}},
      {"\\x41\\u0042\\u{1F600}\\uD83D\\uDE00\\cJ\\0", {std::string_view("AB😀😀\n\0", 12)}, {"AB"}},
      {"\\.\\/\\-\\\"\\$", {"./-\"$"}, {"a/-\"$"}},
      {".", {"a", "é", "😀"}, {"\n", "\r", "\xE2\x80\xA8", ""}},
      {"\\s\\S", {" a", "\xC2\xA0x"}, {"a ", "  ", "\xEF\xBB\xBF.", " \xEF\xBB\xBF", " \x1C", "\x1Cx", " \xC2\x85"}},
      {"[\\s][^\\s]", {" a", "\xC2\xA0x"}, {"a ", "  ", "\xEF\xBB\xBF.", " \xEF\xBB\xBF", " \x1C", "\x1Cx"}},
      {"a.b",
       {"axb"},
       {"a\nb", "a\rb",
        "a\xE2\x80\xA8"
        "b"}},
      {"\\D\\W", {"a ", "é-"}, {"1 ", "aa"}},
      {"\\p{L}+", {"aéΩ東"}, {"1", ""}},
      {"\\p{Lu}\\p{Lowercase_Letter}\\P{gc=N}", {"Aéx"}, {"aaa", "Aa1"}},
      {"]}", {"]}"}, {"]"}},
      {"((a*)*)*", {"", "aaaa"}, {"b"}},
      {"(a?){3}", {"", "a", "aaa"}, {"aaaa"}},
  };
  for (const auto& [pattern, accept, reject] : cases) {
    INFO(pattern);
    for (const auto text : accept) CHECK(matches(pattern, text));
    for (const auto text : reject) CHECK_FALSE(matches(pattern, text));
  }
}

TEST_CASE("anchors hold wherever they stand", "[regex]") {
  const std::vector<Case> cases{
      {"^abc$", {"abc"}, {"xabc", "abcx", ""}},
      {"abc", {"abc", "xabc", "abcx", "abcabc"}, {"ab", ""}},
      {"^a|b$", {"a", "ax", "xb", "b"}, {"xa", "bx", ""}},
      {"(^a|b)c", {"ac", "acx", "xbcx"}, {"xac", "c"}},
      {"(a|b$)", {"xax", "xb"}, {"bx", ""}},
      {"^$", {""}, {"a", "\n"}},
      {"$^", {""}, {"a"}},
      {"a^b", {}, {"ab", "a", "b", ""}},
      {"a*^b", {"b", "bx"}, {"ab", "xb"}},
      {"(^|,)a($|,)", {"a", "x,a", "a,x", ",a,"}, {"xa", "ax", "xax"}},
      {"^(\\/?((\\.{2})|([a-z0-9\\-]*))($|\\/))*$", {"", "a/b", "/a/../b/", ".."}, {"...", "a/.", "A"}},
      {"^(a$|b)+$", {"a", "b", "ba", "bbba"}, {"ab", "aa", ""}},
      {"^(a$|b){2,3}$", {"ba", "bb", "bba", "bbb"}, {"ab", "bbbb", "a", "b"}},
      {"^(a$|b){2,}$", {"ba", "bb", "bbbba"}, {"ab", "a", "b"}},
      {"^(a$|b){2}$", {"ba", "bb"}, {"b", "a", "bbb"}},
      {"^(a|^){3,9}$", {"", "a", "aaaa"}, {"b", "aaaaaaaaaa"}},
      {"^((^|x)a)*$", {"", "a", "axa", "xaxa"}, {"aa", "xaa"}},
      {"^", {"", "a"}, {}},
      {"x?$", {"", "a", "ax"}, {}},
  };
  for (const auto& [pattern, accept, reject] : cases) {
    INFO(pattern);
    for (const auto text : accept) CHECK(finds(pattern, text));
    for (const auto text : reject) CHECK_FALSE(finds(pattern, text));
  }
  CHECK(matches("^ab$", "ab"));
  CHECK(matches("^a|b$", "a"));
  CHECK_FALSE(matches("a$b", "ab"));
}

TEST_CASE("look-ahead at the beginning of the text", "[regex]") {
  const std::vector<Case> cases{
      {"^(?!.*\\s)[^]*$", {"ab"}, {"a b", "a\xEF\xBB\xBF", "a\x1C"}},
      {"^(?!a)[ab]+$", {"b", "ba"}, {"", "a", "ab"}},
      {"^(?=.*\\d)(?=.*[a-z])\\w{3,}$", {"ab1", "1ab2"}, {"abc", "123", "a1"}},
      {"^(?!a$|b{2}$)[ab]*", {"", "b", "ab", "bbb"}, {"a", "bb"}},
      {"^(?!^[-+.]*$)[+-]?0*\\d*\\.?\\d*$", {"1", "-1.5", ".5", "007"}, {"", "-", "+.", "1.2.3"}},
      {"^(?!\\.)(?!.*\\.\\.)([A-Za-z0-9_'+\\-\\.]*)[A-Za-z0-9_+-]@([A-Za-z0-9][A-Za-z0-9\\-]*\\.)+[A-Za-z]{2,}$",
       {"a@b.co", "a.b+c@d-e.f.org"},
       {".a@b.co", "a..b@c.de", "a@b", "a.@b.co", "a@b..co"}},
  };
  for (const auto& [pattern, accept, reject] : cases) {
    INFO(pattern);
    for (const auto text : accept) CHECK(matches(pattern, text));
    for (const auto text : reject) CHECK_FALSE(matches(pattern, text));
  }
  CHECK(finds("^(?!a)b?", "cab"));
  CHECK_FALSE(finds("^(?!a)b?", "ac"));
  CHECK_FALSE(finds("^(?=ab)", "ba"));
  CHECK_THAT(refusal("^(?!a)b|c"), Catch::Contains("look-ahead beside alternatives"));
  CHECK_THAT(refusal("^b(?!a)"), Catch::Contains("look-ahead is not supported"));
  CHECK_THAT(refusal("^(?!a(?=b))c"), Catch::Contains("look-ahead is not supported"));
}

TEST_CASE("bad and unsupported syntax is refused where it is", "[regex]") {
  CHECK(refusal("(ab") == "error[usage]: regular expression, byte 3: a group ( is not closed");
  CHECK(refusal("*a") == "error[usage]: regular expression, byte 0: nothing to repeat");
  const std::vector<std::pair<std::string, std::string>> cases{
      {"ab)", "a ) without its ("},
      {"[a", "a class [ is not closed"},
      {"[b-a]", "a range of characters is out of order"},
      {"a**", "nothing to repeat"},
      {"^*", "nothing to repeat"},
      {"a{2,1}", "the counts of a quantifier are out of order"},
      {"a{2", "a quantifier { is not closed"},
      {"a{,2}", "a { that begins no quantifier"},
      {"a{99999999999}", "the count of a quantifier is too large"},
      {"{", "a { that begins no quantifier"},
      {"a\\", "a backslash at the end"},
      {"\\q", "unknown escape \\q"},
      {"\\1", "the back-reference \\1 is not supported"},
      {"(?<n>a)\\k<n>", "the back-reference \\k is not supported"},
      {"(?=a)", "look-ahead is not supported"},
      {"(?!a)", "look-ahead is not supported"},
      {"(?<=a)", "look-behind is not supported"},
      {"(?<!a)", "look-behind is not supported"},
      {"a\\b", "the word boundary \\b is not supported"},
      {"\\B", "the word boundary \\B is not supported"},
      {"(?i:a)", "inline flags are not supported"},
      {"(?<1>a)", "a bad name of a group"},
      {"\\p{Script=Greek}", "\\p{Script=Greek} is not supported"},
      {"\\pL", "\\p needs the name of a property in braces"},
      {"\\u12", "4 hexadecimal digits are missing"},
      {"\\u{110000}", "a code point above 10FFFF"},
      {"\\uD800", "half of a surrogate pair"},
      {"\\c1", "\\c needs a letter"},
      {"\\07", "octal escapes are not supported"},
      {"\xFF", "not valid UTF-8"},
      {std::string(300, '('), "more than 200 groups inside groups"},
      {std::string(kRegexBytesMax + 1, 'a'), "the limit is"},
  };
  for (const auto& [pattern, why] : cases) {
    INFO(pattern.substr(0, 40));
    CHECK(refusal(pattern).find(why) != std::string::npos);
  }
}

TEST_CASE("hostile sizes are cheap or refused", "[regex]") {
  RegularPool pool;
  auto expr = parse_regex(pool, "[a-z]{1,20000}");
  CHECK(pool.size() < 100);
  std::string words;
  for (int i = 0; i < 10000; ++i) words += "word" + std::to_string(i * 7919 % 10007) + "|";
  expr = parse_regex(pool, words);
  for (const char c : {'w', 'o', 'r', 'd', '1'}) expr = pool.derivative(expr, static_cast<std::uint8_t>(c));
  CHECK(pool.nullable(expr));
  CHECK(pool.size() < 60000);

  std::string deep(200, '('), optional, anchored = "b";
  deep += "a";
  for (int i = 0; i < 200; ++i) deep += ")*";
  CHECK(matches(deep, "aaa"));
  for (int i = 0; i < 2000; ++i) optional += "a?";
  CHECK(matches(optional, "aaaa"));
  for (int i = 0; i < 30; ++i) anchored = "(" + anchored + "|^a$){1,8}";
  CHECK(finds(anchored, "bbb"));
  // Two long literals that differ at their ends only.
  const std::string half(5000, 'a');
  CHECK(matches(half + "b|" + half + "c", half + "c"));
  CHECK(matches("(" + half + ")*", half + half));
}

TEST_CASE("the reference collection's expressions and grammars are exact through masks", "[regex][reference]") {
  const auto path = reference_file("agents/grammars.json");
  if (path.empty()) return;
  // Every byte is a token, and so are some longer texts.
  std::vector<std::string> tokens(1);
  for (int byte = 0; byte < 256; ++byte) tokens.emplace_back(1, static_cast<char>(byte));
  for (const char* more : {"20", "ab", "a\"", "é", "😀", "555", ") ", "01-"}) tokens.emplace_back(more);
  const auto trie = std::make_shared<const TokenTrie>(tokens, std::vector<std::int32_t>{0});
  std::ifstream in(path);
  const auto entries = nlohmann::json::parse(in);
  std::size_t seen = 0;
  for (const auto& entry : entries) {
    INFO(entry["name"]);
    ++seen;
    const bool is_regex = entry["kind"] == "regex";
    const ConstraintSource source{is_regex ? ConstraintSyntax::kRegex : ConstraintSyntax::kGbnf,
                                  entry["grammar"].get<std::string>()};
    if (entry["refusal"] != "no") {
      CHECK(error_of([&] { (void)compile(source, trie); }, ErrorCode::kUsage).starts_with("error[usage]: "));
      continue;
    }
    const auto compiled = compile(source, trie);
    const auto accepted = [&](const std::string& text) {
      Constraint constraint(compiled);
      for (const auto id : trie->spelled(text)) {
        const bool allowed = (constraint.mask()[static_cast<std::size_t>(id) / 32] >> id % 32 & 1U) != 0;
        CHECK(constraint.accept(id) == allowed);
        if (!allowed) return false;
      }
      CHECK((constraint.mask()[0] & 1U) == static_cast<std::uint32_t>(constraint.can_end()));
      return constraint.can_end();
    };
    for (const auto& text : entry["accept"]) CHECK(accepted(text.get<std::string>()));
    for (const auto& text : entry["reject"]) CHECK_FALSE(accepted(text.get<std::string>()));
  }
  CHECK(seen >= 25);
}

TEST_CASE("an expression that is read again costs nothing, and a search for it is another", "[regex]") {
  RegularPool pool;
  const std::string_view pattern = "(0[1-9]|1[0-2])-[0-9]{2}";
  const auto whole = parse_regex(pool, pattern), found = parse_regex(pool, pattern, RegexMatch::kSearch);
  const auto nodes = pool.size();
  const auto bytes = pool.memory_bytes();
  pool.begin_work();
  CHECK(parse_regex(pool, pattern) == whole);
  CHECK(parse_regex(pool, pattern, RegexMatch::kSearch) == found);
  CHECK(pool.work() == 0);
  CHECK((pool.size() == nodes && pool.memory_bytes() == bytes));
  CHECK((matches(pattern, "07-31") && !matches(pattern, "on 07-31") && finds(pattern, "on 07-31")));
  CHECK(whole != found);
  CHECK_THROWS_AS(parse_regex(pool, "("), Error);  // what is refused is not remembered
  CHECK_THROWS_AS(parse_regex(pool, "("), Error);
}

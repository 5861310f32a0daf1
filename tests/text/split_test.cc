// Pre-tokenizers: known cuts of each, the expressions in their published form where forge has another, and texts made
// to take quadratic time. Ids of Hugging Face's library for most of them are in vocab_test.cc.

#include "text/pretokenizer/split.h"

#include <rapidcheck.h>

#include <algorithm>
#include <catch2/catch.hpp>
#include <string>

#include "tests/support/error_of.h"
#include "tests/support/sanitizers.h"
#include "tests/text/cuts.h"
#include "text/tokenizer/unicode.h"

using namespace forge;
using namespace forge::tests;
using namespace forge::text;

namespace {

// The published forms of the expressions that expressions.h has in another form.
#define FORGE_CONTRACTIONS "(?:'[sS]|'[tT]|'[rR][eE]|'[vV][eE]|'[mM]|'[lL][lL]|'[dD])"
#define FORGE_PREFIX R"([^\r\n\p{L}\p{N}]?)"
#define FORGE_SPACES R"(|\s*[\r\n]+|\s+(?!\S)|\s+)"
#define FORGE_CASED(u, l, ending) FORGE_PREFIX u "*" l "+" ending "|" FORGE_PREFIX u "+" l "*" ending
#define FORGE_U R"([\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}])"
#define FORGE_L R"([\p{Ll}\p{Lm}\p{Lo}\p{M}])"
#define FORGE_SIMPLE_U R"((?:(?=\p{L})[^a-z]))"
#define FORGE_SIMPLE_L R"((?:(?=\p{L})[^A-Z]))"
constexpr const char* kCased3 =
    FORGE_CASED(FORGE_U, FORGE_L, FORGE_CONTRACTIONS "?") R"(|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*)" FORGE_SPACES;
constexpr const char* kIdeographs = R"([\x{800}-\x{9FA5}\x{AC00}-\x{D7FF}]+)";
// DeepSeek's expression lists its cased letters; these are the ones that tricky_text contains.
constexpr const char* kDeepseekLetters = R"(\s?[A-Za-zéßЖǅ]+)";
constexpr const char* kDeepseekPunct = R"(\s?[!-/:-~！-／：-～‘-‟\x{3000}-\x{3002}]+)";
constexpr const char* kAsian =
    R"([\x{4E00}-\x{9FFF}\x{3400}-\x{4DBF}\x{F900}-\x{FAFF}\x{3040}-\x{30FF}\x{FF65}-\x{FF9F}\x{2F00}-\x{2FDF}\x{E40}-\x{E7F}\x{E80}-\x{EFF}\x{1780}-\x{17FF}\x{1000}-\x{109F}\x{AA60}-\x{AA7F}\x{A9E0}-\x{A9FF}\x{AC00}-\x{D7AF}\x{1100}-\x{11FF}]+)";
constexpr const char* kDeepseekV3 =
    R"([!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*)" FORGE_SPACES;
constexpr const char* kKimi = R"(\p{sc:Han}+|)" FORGE_CASED(
    R"((?:(?!\p{sc:Han})[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]))", R"((?:(?!\p{sc:Han})[\p{Ll}\p{Lm}\p{Lo}\p{M}]))",
    FORGE_CONTRACTIONS "?") R"(|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*)" FORGE_SPACES;
constexpr const char* kJais2 = FORGE_CONTRACTIONS
    R"(|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s{512}(?!\S)|\s{256}(?!\S)|\s{128}(?!\S))"
    R"(|\s{64}(?!\S)|\s{32}(?!\S)|\s{16}(?!\S)|\s{8}(?!\S)|\s{4}(?!\S)|\s{1,2}(?!\S)|\s{1})";
constexpr const char* kExaoneMoe = FORGE_CONTRACTIONS
    R"(|[^\r\n\p{L}\p{N}]?(?:\p{L}\p{M}*(?: \p{L}\p{M}*)*)+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]?|\s*[\r\n]|\s+(?!\S)|\s+)";
// \b as in Oniguruma, expressed by Unicode categories.
constexpr const char* kDigitGroups = R"(\p{Nd}{1,3}(?=(?:\p{Nd}{3})*(?<=\p{Nd})(?![\p{L}\p{M}\p{N}\p{Pc}])))";
constexpr const char* kGpt4o = FORGE_CASED(
    FORGE_SIMPLE_U, FORGE_SIMPLE_L, FORGE_CONTRACTIONS "?") R"(|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*)" FORGE_SPACES;
constexpr const char* kTekken =
    FORGE_CASED(FORGE_SIMPLE_U, FORGE_SIMPLE_L, "") R"(|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*)" FORGE_SPACES;

struct Published {
  const char* name;
  std::vector<const char*> expressions;  // applied one after the other
  bool cuts_before_triples = false;      // SuperBPE's last, which has no width: (?=(\d{3})+(?!\d))
};

const std::vector<Published>& published() {
  static const std::vector<Published> all{
      {"gpt-4o", {kGpt4o}},
      {"tekken", {kTekken}},
      {"kimi-k2", {kKimi}},
      {"granite-embed-multi-97m", {kCased3}},
      {"tiny_aya", {kDigitGroups, kCased3}},
      {"jais-2", {kJais2}},
      {"exaone-moe", {kExaoneMoe}},
      {"afmoe", {R"(\p{N}{1,3}(?=(?:\p{N}{3})*(?!\p{N})))", kAsian, kDeepseekV3}},
      {"deepseek-llm", {R"([\r\n])", kDeepseekLetters, kDeepseekPunct, R"(\s+\z)", kIdeographs, R"(\p{N}+)"}},
      {"superbpe", {R"(\p{N}+)"}, true},
  };
  return all;
}

/// Each piece cut into the matches of `expression` and the text between them.
Pieces cut_by_regex(const Pieces& pieces, const Regex& expression) {
  Pieces out;
  for (const auto& piece : pieces) {
    std::size_t at = 0;
    for (auto match = expression.find(piece, 0); match.begin != std::string::npos; match = expression.find(piece, at)) {
      if (match.begin > at) out.push_back(piece.substr(at, match.begin - at));
      out.push_back(piece.substr(match.begin, match.end - match.begin));
      at = match.end;
    }
    if (at < piece.size()) out.push_back(piece.substr(at));
  }
  return out;
}

/// Each piece cut at every place where (?=(\d{3})+(?!\d)) matches.
Pieces cut_before_triples(const Pieces& pieces) {
  static const Regex ends_in_triples(R"(\A(?:\p{Nd}{3})+(?!\p{Nd}))");
  Pieces out;
  for (const auto& piece : pieces) {
    std::size_t begin = 0;
    for (std::size_t at = 1; at < piece.size(); ++at) {
      if ((static_cast<unsigned char>(piece[at]) & 0xC0) == 0x80) continue;
      if (ends_in_triples.find(std::string_view(piece).substr(at), 0).begin != 0) continue;
      out.push_back(piece.substr(begin, at - begin));
      begin = at;
    }
    out.push_back(piece.substr(begin));
  }
  return out;
}

/// Text of characters on both sides of every class border of the expressions, so that the borders meet often.
std::string tricky_text() {
  static const std::vector<std::string> alphabet{" ",          " ",
                                                 "\n",         "\r",
                                                 "\t",         "\v",
                                                 "a",          "b",
                                                 "Z",          "s",
                                                 "S",          "t",
                                                 "'",          "'s",
                                                 "'LL",        "re",
                                                 "v",          "e",
                                                 "1",          "2",
                                                 "9",          "½",
                                                 "Ⅷ",          "٣",
                                                 ".",          ",",
                                                 "$",          "`",
                                                 "/",          "^",
                                                 "-",          "é",
                                                 "ß",          "Ж",
                                                 "日",         "ा",
                                                 "́",           "\u00A0",
                                                 "\u2003",     "\u3000",
                                                 "\u200D",     "🦙",
                                                 "€",          "\x01",
                                                 "\x7F",       "\u0085",
                                                 "ǅ",          "ʰ",
                                                 "\U000E0001", "か",
                                                 "。",         "！",
                                                 "(",          "|",
                                                 "“",          "가",
                                                 "ª",          "…",
                                                 "\u2028",     "  ",
                                                 "    ",       "<sentinel:7>",
                                                 "IMGIMGABZ",  "_",
                                                 "ㄅ",         "々",
                                                 "〇",         "ไ",
                                                 "123456",     "ALL",
                                                 "ﾊ",          "\u180E"};
  std::string text;
  for (const auto i : *rc::gen::container<std::vector<std::size_t>>(rc::gen::inRange<std::size_t>(0, alphabet.size())))
    text += alphabet[i];
  return text;
}

std::string repeated(std::string_view unit, std::size_t bytes) {
  std::string text;
  text.reserve(bytes + unit.size());
  while (text.size() < bytes) text += unit;
  return text;
}

/// Texts on which some expression, written carelessly, scans the rest of a run at every character of it.
std::vector<std::string> hostile_texts(std::size_t bytes) {
  std::vector<std::string> all;
  for (const auto unit :
       {" ", "\n", " \n", "a", "A", "1", "1½", ".", "'", "\u0301", "日", "\u00A0", "\x01", " a", "<sentinel:1"})
    for (const auto end : {"", "x", "\n", "_", "日"}) all.push_back(repeated(unit, bytes) + end);
  for (const std::string run : {" ", "1", "A", "\u0301"})
    for (const auto end : {"x", "1", " ", "\n"}) all.push_back(repeated(repeated(run, 3000) + end, bytes));
  return all;
}

}  // namespace

TEST_CASE("expressions that forge has in another form cut as the published ones do") {
  for (const auto& one : published()) {
    INFO(one.name);
    const WordSplitter words = splitter(one.name);
    std::vector<Regex> expressions;
    for (const char* expression : one.expressions) expressions.emplace_back(expression);
    CHECK(rc::check(one.name, [&] {
      const std::string text = tricky_text();
      Pieces wanted = text.empty() ? Pieces{} : Pieces{text};
      for (const auto& expression : expressions) wanted = cut_by_regex(wanted, expression);
      RC_ASSERT(cut(words, text) == (one.cuts_before_triples ? cut_before_triples(wanted) : wanted));
    }));
  }
}

TEST_CASE("machine code and PCRE2's interpreter cut alike, and no byte is lost") {
  CHECK_FALSE(Regex("a", Regex::Engine::kInterpreter).is_machine_code());
  for (const auto name : distinct_names()) {
    INFO(name);
    const WordSplitter fastest = splitter(name), interpreted = splitter(name, Regex::Engine::kInterpreter);
    CHECK(rc::check(std::string(name), [&] {
      const std::string text = tricky_text();
      const Pieces pieces = cut(fastest, text);
      RC_ASSERT(cut(interpreted, text) == pieces);
      RC_ASSERT(joined(pieces, "") == text);
      RC_ASSERT(std::ranges::none_of(pieces, &std::string::empty));
    }));
  }
}

TEST_CASE("long runs take linear time and little memory, with machine code and without") {
  // Quadratic time would be hours: the test is that it ends.
  const auto texts = hostile_texts(sized(1 << 18));
  for (const auto name : distinct_names()) {
    INFO(name);
    const WordSplitter words = splitter(name);
    for (const auto& text : texts) {
      std::size_t at = 0;
      bool gap = false;
      words.split(text, [&](std::string_view word) {
        gap = gap || word.empty() || word.data() != text.data() + at;
        at += word.size();
      });
      CHECK_FALSE(gap);
      CHECK(at == text.size());
    }
  }
  for (const auto name :
       {"gpt-2", "llama-bpe", "jais-2", "deepseek-llm", "afmoe", "tiny_aya", "superbpe", "exaone-moe"})
    for (const auto unit : {" ", "1", "a", "\u0301"}) {
      const std::string text = repeated(unit, sized(1 << 18)) + "x";
      INFO(name << " " << unit);
      CHECK(cut(splitter(name, Regex::Engine::kInterpreter), text) == cut_by_name(name, text));
    }
}

TEST_CASE("ten megabytes of spaces, digits or letters are cut where the expressions say") {
  constexpr std::size_t kBytes = sized(10'000'000);
  const std::string spaces(kBytes, ' '), digits(kBytes, '1'), letters(kBytes, 'a');
  for (const auto engine : {Regex::Engine::kFastest, Regex::Engine::kInterpreter}) {
    CHECK(cut(splitter("gpt-2", engine), spaces + "x") == Pieces{spaces.substr(1), " x"});
    CHECK(cut(splitter("llama-bpe", engine), spaces + "\n" + letters) == Pieces{spaces + "\n", letters});
    CHECK(cut(splitter("deepseek-llm", engine), "x" + spaces) == Pieces{"x", spaces});
    CHECK(cut(splitter("deepseek-llm", engine), spaces + "日") == Pieces{spaces, "日"});
    CHECK(cut(splitter("superbpe", engine), "ab" + digits).size() == 2 + kBytes / 3);
    CHECK(cut(splitter("exaone-moe", engine), letters + " " + letters) == Pieces{letters + " " + letters});
  }
  const Pieces groups = cut_by_name("afmoe", digits);
  CHECK(groups.size() == 1 + kBytes / 3);
  CHECK(groups.front() == "1");
  CHECK(groups.back() == "111");
  CHECK(cut_by_name("tiny_aya", digits + "_x").front() == "111");  // no run that is cut from its right end
  CHECK(cut_by_name("tiny_aya", digits).front() == "1");
  CHECK(cut_by_name("jais-2", spaces).front().size() == 512);
}

TEST_CASE("surrogates are cut like other characters without a category, and come back") {
  const std::string text = "a\xED\xA0\x80z \xED\xBF\xBF.\xED\x9F\xBF";  // U+D800, U+DFFF; U+D7FF is unassigned
  CHECK(cut_by_name("gpt-2", text) == Pieces{"a", "\xED\xA0\x80", "z", " \xED\xBF\xBF.\xED\x9F\xBF"});
  CHECK(cut_by_name("deepseek-v3", "\xED\xA0\x80z1") == Pieces{"\xED\xA0\x80z", "1"});
}

TEST_CASE("an expression that PCRE2 rejects is an internal error that shows it") {
  CHECK(tests::error_of([] { const Regex broken(R"((\p{L})"); }, ErrorCode::kInternal).find(R"((\p{L})") !=
        std::string::npos);
}

TEST_CASE("invalid UTF-8 is replaced byte by byte; overlong forms are spelled out") {
  const auto repaired = [](std::string_view text) {
    std::string storage;
    return std::string(repair_utf8(text, storage));
  };
  using namespace std::string_literals;
  CHECK(repaired("plain ascii and é 日 🦙") == "plain ascii and é 日 🦙");
  CHECK(repaired("\xFF") == "\uFFFD");
  CHECK(repaired("a\x80"
                 "b") ==
        "a\uFFFD"
        "b");
  CHECK(repaired("\xE6\x97") == "\uFFFD\uFFFD");  // the first two of three bytes
  CHECK(repaired("\xC1\xA1") == "a");
  CHECK(repaired("\xC0\x80") == "\0"s);
  CHECK(repaired("\xED\xA0\x80") == "\xED\xA0\x80");  // a surrogate stays
  CHECK(repaired("\xF7\xBF\xBF\xBF") == "\uFFFD");    // beyond U+10FFFF
  CHECK(repaired("\xF8\x88\x80\x80\x80") == "\uFFFD\uFFFD\uFFFD\uFFFD\uFFFD");
}

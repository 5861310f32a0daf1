// The hand-written pre-tokenizer splitters against the regular expressions that they replace. PCRE2 runs those
// expressions on the same text, so any difference of a splitter is a difference to the original tokenizer.

#define PCRE2_CODE_UNIT_WIDTH 8
#include "text/pretokenizer/split.h"

#include <pcre2.h>
#include <rapidcheck.h>

#include <catch2/catch.hpp>
#include <memory>
#include <string>

#include "text/tokenizer/unicode.h"

using namespace forge::text;

namespace {

using Pieces = std::vector<std::string>;

/// The position after the character at `at`. An empty match is skipped by one character.
std::size_t after_character(const std::string& text, std::size_t at) {
  return at + std::min(sequence_bytes(text[at]), text.size() - at);
}

/// Cuts each piece into the matches of `pattern` and the text between them.
Pieces cut_by_regex(const Pieces& pieces, const char* pattern) {
  int error = 0;
  PCRE2_SIZE error_at = 0;
  const std::unique_ptr<pcre2_code, decltype(&pcre2_code_free)> code(
      pcre2_compile(reinterpret_cast<PCRE2_SPTR>(pattern), PCRE2_ZERO_TERMINATED, PCRE2_UTF | PCRE2_UCP, &error,
                    &error_at, nullptr),
      pcre2_code_free);
  REQUIRE(code != nullptr);
  const std::unique_ptr<pcre2_match_data, decltype(&pcre2_match_data_free)> match(
      pcre2_match_data_create_from_pattern(code.get(), nullptr), pcre2_match_data_free);
  Pieces out;
  for (const auto& piece : pieces) {
    std::size_t at = 0, begin = 0;  // where the next search begins, and where the text not yet in `out` begins
    while (at < piece.size() && pcre2_match(code.get(), reinterpret_cast<PCRE2_SPTR>(piece.data()), piece.size(), at, 0,
                                            match.get(), nullptr) > 0) {
      const PCRE2_SIZE* range = pcre2_get_ovector_pointer(match.get());
      if (range[0] > begin) out.push_back(piece.substr(begin, range[0] - begin));
      if (range[1] > range[0]) out.push_back(piece.substr(range[0], range[1] - range[0]));
      begin = range[1];
      at = std::max(begin, range[0] == range[1] ? after_character(piece, begin) : begin);
    }
    if (begin < piece.size()) out.push_back(piece.substr(begin));
  }
  return out;
}

Pieces cut_by_name(std::string_view name, std::string_view text) {
  Pieces out;
  split_words(find_pre_tokenizer(name)->stages, text, [&](std::string_view word) { out.emplace_back(word); });
  return out;
}

#define FORGE_CONTRACTIONS "(?:'[sS]|'[tT]|'[rR][eE]|'[vV][eE]|'[mM]|'[lL][lL]|'[dD])"
#define FORGE_SPACES R"(|\s*[\r\n]+|\s+(?!\S)|\s+)"
constexpr const char* kGpt2 = R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";
constexpr const char* kLlama3 =
    FORGE_CONTRACTIONS R"(|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*)" FORGE_SPACES;
constexpr const char* kQwen2 =
    FORGE_CONTRACTIONS R"(|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*)" FORGE_SPACES;
constexpr const char* kQwen35 =
    FORGE_CONTRACTIONS R"(|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*)" FORGE_SPACES;
constexpr const char* kSeedCoder =
    FORGE_CONTRACTIONS R"(|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}\r\n]+)" FORGE_SPACES;
constexpr const char* kUfakzeka = R"([^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*)" FORGE_SPACES;
constexpr const char* kMiniCpm5 =
    FORGE_CONTRACTIONS R"(|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}+| ?[^\s\p{L}\p{N}]+[\r\n]*)" FORGE_SPACES;
// llama.cpp's form of GPT-4o's cased words: upper = letters except a-z, lower = letters except A-Z.
#define FORGE_UPPER R"((?:(?=\p{L})[^a-z]))"
#define FORGE_LOWER R"((?:(?=\p{L})[^A-Z]))"
#define FORGE_PREFIX R"([^\r\n\p{L}\p{N}]?)"
constexpr const char* kGpt4o =
    FORGE_PREFIX FORGE_UPPER "*" FORGE_LOWER "+" FORGE_CONTRACTIONS "?|" FORGE_PREFIX FORGE_UPPER "+" FORGE_LOWER
                             "*" FORGE_CONTRACTIONS R"(?|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*)" FORGE_SPACES;
constexpr const char* kTekken = FORGE_PREFIX FORGE_UPPER "*" FORGE_LOWER "+|" FORGE_PREFIX FORGE_UPPER "+" FORGE_LOWER
                                                         R"(*|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*)" FORGE_SPACES;

#define FORGE_IDEOGRAPHS R"([\x{800}-\x{9FA5}\x{AC00}-\x{D7FF}]+)"
constexpr const char* kBloom = R"( ?[^(\s|.,!?…。，、।۔،)]+)";
// DeepSeek's expression lists its cased letters; these are the ones that tricky_text contains.
constexpr const char* kDeepseekLetters = R"(\s?[A-Za-zéßЖǅ]+)";
constexpr const char* kDeepseekPunct = R"(\s?[!-/:-~！-／：-～‘-‟\x{3000}-\x{3002}]+)";
constexpr const char* kDeepseekV3 =
    R"([!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*)" FORGE_SPACES;

#define FORGE_BREAKS R"(|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]?|\s*[\r\n]|\s+(?!\S)|\s+)"
constexpr const char* kSpark =
    R"([!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+|[\r\n]|\s+(?!\S)|\s+)";
constexpr const char* kAsian =
    R"([\x{4E00}-\x{9FFF}\x{3400}-\x{4DBF}\x{F900}-\x{FAFF}\x{3040}-\x{30FF}\x{FF65}-\x{FF9F}\x{2F00}-\x{2FDF}\x{E40}-\x{E7F}\x{E80}-\x{EFF}\x{1780}-\x{17FF}\x{1000}-\x{109F}\x{AA60}-\x{AA7F}\x{A9E0}-\x{A9FF}\x{AC00}-\x{D7AF}\x{1100}-\x{11FF}]+)";
#define FORGE_U R"([\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}])"
#define FORGE_L R"([\p{Ll}\p{Lm}\p{Lo}\p{M}])"
#define FORGE_CASED(u, l) \
  FORGE_PREFIX u "*" l "+" FORGE_CONTRACTIONS "?|" FORGE_PREFIX u "+" l "*" FORGE_CONTRACTIONS "?"
constexpr const char* kCased3 = FORGE_CASED(FORGE_U, FORGE_L) R"(|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*)" FORGE_SPACES;
constexpr const char* kCased1 = FORGE_CASED(FORGE_U, FORGE_L) R"(|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*)" FORGE_SPACES;
constexpr const char* kKimi = R"(\p{sc:Han}+|)" FORGE_CASED(
    R"((?:(?!\p{sc:Han})[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]))",
    R"((?:(?!\p{sc:Han})[\p{Ll}\p{Lm}\p{Lo}\p{M}]))") R"(|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*)" FORGE_SPACES;
constexpr const char* kYoutu =
    R"([가-힣ㄱ-ㆎ]+|[！…“”‘’—：；，\x{3001}-\x{303F}\x{FE30}-\x{FE4F}]+|[ㄅ-ㄯ]+|[一-龥\x{3040}-\x{30FF}]+)";
constexpr const char* kJais2 = FORGE_CONTRACTIONS
    R"(|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s{512}(?!\S)|\s{256}(?!\S)|\s{128}(?!\S))"
    R"(|\s{64}(?!\S)|\s{32}(?!\S)|\s{16}(?!\S)|\s{8}(?!\S)|\s{4}(?!\S)|\s{1,2}(?!\S)|\s{1})";
constexpr const char* kExaoneMoe =
    FORGE_CONTRACTIONS R"(|[^\r\n\p{L}\p{N}]?(?:\p{L}\p{M}*(?: \p{L}\p{M}*)*)+)" FORGE_BREAKS;
// \b as in Oniguruma, expressed by Unicode categories.
constexpr const char* kDigitGroups = R"(\p{Nd}{1,3}(?=(?:\p{Nd}{3})*(?<=\p{Nd})(?![\p{L}\p{M}\p{N}\p{Pc}])))";

struct SplitCase {
  const char* name;
  std::vector<const char*> patterns;  // applied one after the other
};

const std::vector<SplitCase>& cases() {
  static const std::vector<SplitCase> all{
      {"gpt-2", {kGpt2}},
      {"smollm", {R"(\p{N})", kGpt2}},
      {"llama-bpe", {kLlama3}},
      {"qwen2", {kQwen2}},
      {"qwen35", {kQwen35}},
      {"seed-coder", {kSeedCoder}},
      {"ufakzeka", {kUfakzeka}},
      {"minicpm5", {R"(\p{N}{1,3})", kMiniCpm5}},
      {"gpt-4o", {kGpt4o}},
      {"tekken", {kTekken}},
      {"bloom", {kBloom}},
      {"viking", {kBloom, R"(\p{N})"}},
      {"laguna", {R"([^\n]+|[\n]+)", kQwen2}},
      {"deepseek-llm", {R"([\r\n])", kDeepseekLetters, kDeepseekPunct, R"(\s+\z)", FORGE_IDEOGRAPHS, R"(\p{N}+)"}},
      {"deepseek-coder", {R"([\r\n])", R"(\s?\p{L}+)", R"(\s?\p{P}+)", FORGE_IDEOGRAPHS, R"(\p{N})"}},
      {"deepseek-v3", {R"(\p{N}{1,3})", R"([一-龥\x{3040}-\x{30FF}]+)", kDeepseekV3}},
      {"spark2_5", {R"(\p{N}{1,3})", R"([一-龥\x{3040}-\x{30FF}]+)", kSpark, R"(\p{N})"}},
      {"afmoe", {R"(\p{N}{1,3}(?=(?:\p{N}{3})*(?!\p{N})))", kAsian, kDeepseekV3}},
      {"kimi-k2", {kKimi}},
      {"youtu", {kYoutu, kCased1}},
      {"tiny_aya", {kDigitGroups, kCased3}},
      {"granite-embed-multi-97m", {kCased3}},
      {"jais-2", {kJais2}},
      {"exaone-moe", {kExaoneMoe}},
      {"chameleon",
       {"<sentinel:[0-9]+>", "(IMGIMG)((A|B|C|D|E|F|G|H|I){1,4})Z", R"(([\t\n]|    |  ))", R"(\p{N})",
        R"([\p{P}!-/:-@\[-`{-~])", kGpt2}},
      {"superbpe", {R"(\p{N}+)", R"((?=(?:\p{Nd}{3})+(?!\p{Nd})))"}},
      {"gemma4", {R"([^\n]+|[\n]+)"}},
      {"falcon", {R"([\p{P}\$\+<=>\^~\|`]+)", kGpt2, "[0-9][0-9][0-9]"}},
      {"default", {R"([\p{P}\$\+<=>\^~\|]+)", kGpt2, R"(\p{N}+)", "[0-9][0-9][0-9]"}},
  };
  return all;
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
                                                 "ﾊ"};
  std::string text;
  for (const auto i : *rc::gen::container<std::vector<std::size_t>>(rc::gen::inRange<std::size_t>(0, alphabet.size())))
    text += alphabet[i];
  return text;
}

}  // namespace

TEST_CASE("each splitter cuts as its regular expressions do") {
  for (const auto& one : cases()) {
    INFO(one.name);
    CHECK(rc::check(one.name, [&] {
      const std::string text = tricky_text();
      Pieces wanted = text.empty() ? Pieces{} : Pieces{text};
      for (const char* pattern : one.patterns) wanted = cut_by_regex(wanted, pattern);
      RC_ASSERT(cut_by_name(one.name, text) == wanted);
    }));
  }
}

TEST_CASE("every pre-tokenizer name of public files is known") {
  for (const auto name : {"gpt-2",      "llama-bpe",    "qwen2",          "qwen35",      "smollm",
                          "gpt-4o",     "deepseek-llm", "deepseek-coder", "deepseek-v3", "deepseek-r1-qwen",
                          "falcon",     "starcoder",    "refact",         "command-r",   "mpt",
                          "olmo",       "dbrx",         "stablelm2",      "chatglm-bpe", "glm4",
                          "viking",     "jais",         "tekken",         "smaug-bpe",   "poro-chat",
                          "exaone",     "minerva-7b",   "bloom",          "codeshell",   "default",
                          "kimi-k2",    "superbpe",     "gemma4",         "afmoe",       "tiny_aya",
                          "youtu",      "exaone-moe",   "jais-2",         "spark2_5",    "chameleon",
                          "cohere2moe", "sarvam-moe"})
    CHECK(find_pre_tokenizer(name) != nullptr);
}

TEST_CASE("known results") {
  CHECK(cut_by_name("gpt-2", "I've  2024 x\n\n y") == Pieces{"I", "'ve", " ", " 2024", " x", "\n\n", " y"});
  CHECK(cut_by_name("smollm", "a 123") == Pieces{"a", " ", "1", "2", "3"});
  CHECK(cut_by_name("llama-bpe", "x 12345!\n\nY") == Pieces{"x", " ", "123", "45", "!\n\n", "Y"});
  CHECK(cut_by_name("gpt-4o", "camelCaseTHEThe I'LL") == Pieces{"camel", "Case", "THEThe", " I'LL"});
}

TEST_CASE("an unknown name has no splitter; the default exists") {
  CHECK(find_pre_tokenizer("no such thing") == nullptr);
  CHECK(default_pre_tokenizer().name == "default");
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

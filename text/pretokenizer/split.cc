// The scanners of GPT-2, Llama 3, GPT-4o and their relatives, and the table of all pre-tokenizer names.
//
// How a scanner follows its regular expression: the alternatives are tried in the order in which the expression lists
// them, and the first one that matches wins. The first one or two characters tell whether an alternative matches; where
// an expression would backtrack further, the scanner's comment says how it does without.
#include "text/pretokenizer/split.h"

#include <algorithm>
#include <array>

#include "text/pretokenizer/split_scan.h"
#include "text/tokenizer/unicode.h"

namespace forge::text {

// 's|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+
std::size_t gpt2_words(std::string_view text, std::size_t at) {
  if (const std::size_t bytes = contraction_bytes<false>(text, at)) return at + bytes;
  const std::size_t body = at + (text[at] == ' ' ? 1 : 0);
  const CharInfo c = char_at(text, body);
  if (c.letter()) return run_end(text, body, [](const CharInfo& s) { return s.letter(); });
  if (c.number()) return run_end(text, body, [](const CharInfo& s) { return s.number(); });
  if (c.bytes != 0 && !c.space())
    return run_end(text, body, [](const CharInfo& s) { return (s.classes & (kSpace | kLetter | kNumber)) == 0; });
  return spaces_end(text, at);
}

namespace {

/// How a relative of Llama 3's expression differs from it. The defaults are Llama 3.
struct WordRules {
  std::uint32_t digits_max = 3;         ///< digits a piece: \p{N}{1,digits_max}
  bool contractions = true;             ///< begins with the contractions 's, 't, ...
  std::uint8_t word_classes = kLetter;  ///< classes that words consist of
  bool punct_takes_newlines = true;     ///< line breaks after punctuation belong to its piece
  bool power_of_two_spaces = false;     ///< \s{512}(?!\S)|...|\s{1} in place of \s+(?!\S)|\s+
};

// Llama 3's expression:
// (?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+
template <WordRules kRules>
std::size_t llama3(std::string_view text, std::size_t at) {
  if (kRules.contractions)
    if (const std::size_t bytes = contraction_bytes<true>(text, at)) return at + bytes;
  const auto in_word = [](const CharInfo& s) { return (s.classes & kRules.word_classes) != 0; };
  const CharInfo c = char_at(text, at);
  if (in_word(c)) return run_end(text, at, in_word);
  if (c.number()) {
    std::uint32_t digits = 0;
    return run_end(text, at, [&](const CharInfo& s) { return s.number() && digits++ < kRules.digits_max; });
  }
  if (!c.newline() && in_word(char_at(text, at + c.bytes))) return run_end(text, at + c.bytes, in_word);
  const auto is_other = [](const CharInfo& s) {
    return (s.classes & (kSpace | kLetter | kNumber | kRules.word_classes)) == 0;
  };
  const std::size_t body = at + (text[at] == ' ' ? 1 : 0);
  if (const CharInfo b = char_at(text, body); b.bytes != 0 && is_other(b)) {
    const std::size_t end = run_end(text, body, is_other);
    return kRules.punct_takes_newlines ? run_end(text, end, [](const CharInfo& s) { return s.newline(); }) : end;
  }
  if (kRules.power_of_two_spaces) {
    // In the middle of a run of spaces there can be no line break ahead: \s*[\r\n]+ would have taken it already. The
    // check keeps a long run from being scanned to its end at every cut.
    const CharInfo before = char_before(text, at);
    if (before.space() && !before.newline() && !c.newline()) return power_of_two_spaces_end(text, at);
  }
  if (const std::size_t end = line_breaks_end(text, at); end > at) return end;
  return kRules.power_of_two_spaces ? power_of_two_spaces_end(text, at) : spaces_end(text, at);
}

bool ascii_lower(const CharInfo& s) {
  return s.code >= 'a' && s.code <= 'z';
}
bool ascii_upper(const CharInfo& s) {
  return s.code >= 'A' && s.code <= 'Z';
}

/// The end of U*L+ or else of U+L* at `at`, which must be a letter. U is every letter except a-z, L every letter except
/// A-Z, so letters outside ASCII are in both classes. U* first takes all it can; if no L follows, it gives back the
/// letters after the last one that is in both classes, which then serves as the L+ (shared_end).
std::size_t cased_word_end(std::string_view text, std::size_t at) {
  std::size_t end = at, shared_end = 0;
  CharInfo c = char_at(text, end);
  for (; c.letter() && !ascii_lower(c); c = char_at(text, end)) {
    end += c.bytes;
    if (!ascii_upper(c)) shared_end = end;
  }
  if (c.letter()) return run_end(text, end, [](const CharInfo& s) { return s.letter() && !ascii_upper(s); });
  return shared_end != 0 ? shared_end : end;
}

// GPT-4o's expression (Tekken: without contractions, one digit a piece):
// [^\r\n\p{L}\p{N}]?U*L+(contraction)?|[^\r\n\p{L}\p{N}]?U+L*(contraction)?|\p{N}{1,n}| ?[^\s\p{L}\p{N}]+[\r\n/]*
//   |\s*[\r\n]+|\s+(?!\S)|\s+
template <bool kContractions, std::uint32_t kDigits>
std::size_t cased(std::string_view text, std::size_t at) {
  const CharInfo c = char_at(text, at);
  const bool prefix = !c.letter() && !c.number() && !c.newline();
  const std::size_t word = prefix ? at + c.bytes : at;
  if (char_at(text, word).letter()) {
    const std::size_t end = cased_word_end(text, word);
    return kContractions && end < text.size() ? end + contraction_bytes<true>(text, end) : end;
  }
  if (c.number()) {
    std::uint32_t digits = 0;
    return run_end(text, at, [&](const CharInfo& s) { return s.number() && digits++ < kDigits; });
  }
  const auto is_other = [](const CharInfo& s) { return (s.classes & (kSpace | kLetter | kNumber)) == 0; };
  const std::size_t body = at + (text[at] == ' ' ? 1 : 0);
  if (const CharInfo b = char_at(text, body); b.bytes != 0 && is_other(b))
    return run_end(text, run_end(text, body, is_other), [](const CharInfo& s) { return s.newline() || s.code == '/'; });
  if (const std::size_t end = line_breaks_end(text, at); end > at) return end;
  return spaces_end(text, at);
}

// [0-9][0-9][0-9]
std::size_t three_ascii_digits(std::string_view text, std::size_t at) {
  if (text.size() - at < 3) return 0;
  for (std::size_t i = 0; i < 3; ++i)
    if (text[at + i] < '0' || text[at + i] > '9') return 0;
  return 3;
}

// [\p{P}\$\+<=>\^~\|]+, for Falcon with the back-quote added
template <bool kBackQuote>
std::size_t punctuation(std::string_view text, std::size_t at) {
  static constexpr std::string_view kExtra = "$+<=>^~|";
  const auto in = [](const CharInfo& s) {
    return (s.classes & kPunct) != 0 || (s.code < 128 && kExtra.find(static_cast<char>(s.code)) != kExtra.npos) ||
           (kBackQuote && s.code == '`');
  };
  return run_end(text, at, in) - at;
}

//  ?[^(\s|.,!?…。，、।۔،)]+
std::size_t bloom_word(std::string_view text, std::size_t at) {
  static constexpr std::array<std::uint32_t, 14> kTerminators{'(',    ')',    '|',    '.',    ',',   '!',   '?',
                                                              0x2026, 0x3002, 0xFF0C, 0x3001, 0x964, 0x6D4, 0x60C};
  const auto in = [](const CharInfo& s) {
    return !s.space() && std::ranges::find(kTerminators, s.code) == kTerminators.end();
  };
  const std::size_t body = at + (text[at] == ' ' ? 1 : 0);
  const std::size_t end = run_end(text, body, in);
  return end > body ? end - at : 0;
}

// [^\n]+|[\n]+
std::size_t lines(std::string_view text, std::size_t at) {
  const std::size_t end = text[at] == '\n' ? text.find_first_not_of('\n', at) : text.find('\n', at);
  return end == text.npos ? text.size() : end;
}

// The stages of each pre-tokenizer. Tables of other files are declared in split_scan.h.
constexpr std::array<Splitter, 1> kGpt2{gpt2_words};
constexpr std::array<Splitter, 2> kSmolLm{isolate<digits<1>>, gpt2_words};
constexpr std::array<Splitter, 4> kDefault{isolate<punctuation<false>>, gpt2_words, isolate<digits<UINT32_MAX>>,
                                           isolate<three_ascii_digits>};
constexpr std::array<Splitter, 3> kFalcon{isolate<punctuation<true>>, gpt2_words, isolate<three_ascii_digits>};
constexpr std::array<Splitter, 1> kLlama3{llama3<WordRules{}>};
constexpr std::array<Splitter, 1> kJais2{llama3<WordRules{.power_of_two_spaces = true}>};
constexpr std::array<Splitter, 1> kQwen2{llama3<WordRules{.digits_max = 1}>};
constexpr std::array<Splitter, 1> kQwen35{llama3<WordRules{.digits_max = 1, .word_classes = kLetter | kMark}>};
constexpr std::array<Splitter, 1> kSeedCoder{llama3<WordRules{.digits_max = 1, .punct_takes_newlines = false}>};
constexpr std::array<Splitter, 1> kUfakzeka{llama3<WordRules{.digits_max = 1, .contractions = false}>};
constexpr std::array<Splitter, 2> kMiniCpm5{isolate<digits<3>>, llama3<WordRules{.digits_max = UINT32_MAX}>};
constexpr std::array<Splitter, 1> kGpt4o{cased<true, 3>};
constexpr std::array<Splitter, 1> kTekken{cased<false, 1>};
constexpr std::array<Splitter, 1> kBloom{isolate<bloom_word>};
constexpr std::array<Splitter, 2> kViking{isolate<bloom_word>, isolate<digits<1>>};
constexpr std::array<Splitter, 1> kLines{lines};
constexpr std::array<Splitter, 2> kLaguna{lines, llama3<WordRules{.digits_max = 1}>};

// Columns: name, stages, ignore_merges, add_bos, spelling. The first row is the default.
constexpr PreTokenizer kPreTokenizers[] = {
    {"default", kDefault},
    {"falcon", kFalcon},
    {"gpt-2", kGpt2},
    {"phi-2", kGpt2},
    {"mpt", kGpt2},
    {"olmo", kGpt2},
    {"jais", kGpt2},
    {"trillion", kGpt2},
    {"granite-docling", kGpt2},
    {"exaone4", kGpt2},
    {"gigachat", kGpt2},
    {"mellum", kGpt2},
    {"a.x-4.0", kGpt2},
    {"modern-bert", kGpt2},
    {"jina-es", kGpt2},
    {"jina-de", kGpt2},
    {"jina-v1-en", kGpt2},
    {"jina-v2-es", kGpt2},
    {"jina-v2-de", kGpt2},
    {"jina-v2-code", kGpt2},
    {"roberta-bpe", kGpt2},
    {"smollm", kSmolLm},
    {"starcoder", kSmolLm},
    {"refact", kSmolLm},
    {"command-r", kSmolLm},
    {"codeshell", kSmolLm},
    {"exaone", kSmolLm},
    {"minerva", kSmolLm},
    {"minerva-7b", kSmolLm},
    {"mellum2", kSmolLm},
    {"llama-bpe", kLlama3, true, true},
    {"llama3", kLlama3, true, true},
    {"llama-v3", kLlama3, true, true},
    {"falcon3", kLlama3, true, true},
    {"falcon-h1", kLlama3, true, true},
    {"pixtral", kLlama3, true, true},
    {"midm-2.0", kLlama3, true, true},
    {"lfm2", kLlama3, true, true},
    {"jina-v5-nano", kLlama3, true, true},
    {"dbrx", kLlama3},
    {"smaug-bpe", kLlama3},
    {"chatglm-bpe", kLlama3},
    {"glm4", kLlama3, true},
    {"glm5", kLlama3, true},
    {"qwen2", kQwen2},
    {"deepseek-r1-qwen", kQwen2},
    {"stablelm2", kQwen2},
    {"megrez", kQwen2},
    {"hunyuan", kQwen2},
    {"solar-open", kQwen2},
    {"grok-2", kQwen2},
    {"kormo", kQwen2},
    {"f2llmv2", kQwen2},
    {"bailingmoe", kQwen2},
    {"bailingmoe2", kQwen2},
    {"llada-moe", kQwen2},
    {"qwen35", kQwen35},
    {"seed-coder", kSeedCoder},
    {"ufakzeka", kUfakzeka},
    {"minicpm5", kMiniCpm5, true},
    {"gpt-4o", kGpt4o},
    {"llama4", kGpt4o},
    {"kanana2", kGpt4o},
    {"minimax-m2", kGpt4o},
    {"talkie", kGpt4o},
    {"tekken", kTekken, true, true},
    {"bloom", kBloom},
    {"poro-chat", kBloom},
    {"gpt3-finnish", kBloom},
    {"viking", kViking},
    {"laguna", kLaguna},
    {"deepseek-llm", kDeepseekLlm},
    {"deepseek-coder", kDeepseekCoder},
    {"deepseek-v3", kDeepseekV3},
    {"hunyuan-dense", kDeepseekV3},
    {"joyai-llm", kDeepseekV3},
    {"hy_v4", kDeepseekV3},
    {"spark2_5", kSpark},
    {"afmoe", kAfmoe},
    {"kimi-k2", kKimiK2},
    {"youtu", kYoutu, true},
    {"tiny_aya", kTinyAya},
    {"cohere2moe", kTinyAya},
    {"granite-embed-multi-97m", kGraniteMulti, true},
    {"jais-2", kJais2},
    {"exaone-moe", kExaoneMoe},
    {"chameleon", kChameleon, false, true},
    {"superbpe", kSuperBpe},
    {"gemma4", kLines, false, false, Spelling::kMetaspace},
    {"granite-embed-multi-311m", kLines, false, false, Spelling::kMetaspace},
    {"sarvam-moe", kLines, false, false, Spelling::kMetaspace},
};

}  // namespace

const PreTokenizer* find_pre_tokenizer(std::string_view name) {
  for (const auto& row : kPreTokenizers)
    if (row.name == name) return &row;
  return nullptr;
}

const PreTokenizer& default_pre_tokenizer() {
  return kPreTokenizers[0];
}

}  // namespace forge::text

#include "loader/tok/split.h"

#include <array>

#include "loader/tok/unicode.h"

namespace forge::loader::tok {
namespace {

const std::array<std::uint8_t, 128>& kAscii = ascii_classes();

/// One character with its class; bytes == 0 past the end of the piece.
struct Seen {
  std::uint32_t code = 0;
  std::uint32_t bytes = 0;
  std::uint8_t is = 0;

  [[nodiscard]] bool letter() const { return (is & kLetter) != 0; }
  [[nodiscard]] bool number() const { return (is & kNumber) != 0; }
  [[nodiscard]] bool space() const { return (is & kSpace) != 0; }
  [[nodiscard]] bool newline() const { return bytes != 0 && (code == '\r' || code == '\n'); }
};

Seen see(std::string_view text, std::size_t at) {
  if (at >= text.size()) return {};
  const auto lead = static_cast<unsigned char>(text[at]);
  if (lead < 0x80) return {lead, 1, kAscii[lead]};
  const Char c = decode(text, at);
  return {c.code, c.bytes, char_class_slow(c.code)};
}

/// The end of the run of characters that `in` accepts, from `at`.
template <class In>
std::size_t run_end(std::string_view text, std::size_t at, In in) {
  for (Seen c = see(text, at); c.bytes != 0 && in(c); c = see(text, at)) at += c.bytes;
  return at;
}

char lower(char c) {
  return c >= 'A' && c <= 'Z' ? static_cast<char>(c + 32) : c;
}

/// Bytes of 's 't 're 've 'm 'll 'd at `at`, 0 when none is there.
template <bool kAnyCase>
std::size_t contraction_bytes(std::string_view text, std::size_t at) {
  if (text.size() - at < 2 || text[at] != '\'') return 0;
  const auto letter = [&](std::size_t i) {
    const char c = at + i < text.size() ? text[at + i] : '\0';
    return kAnyCase ? lower(c) : c;
  };
  const char first = letter(1), second = letter(2);
  if (first == 's' || first == 't' || first == 'm' || first == 'd') return 2;
  if ((first == 'r' && second == 'e') || (first == 'v' && second == 'e') || (first == 'l' && second == 'l')) return 3;
  return 0;
}

/// \s+(?!\S)|\s+ at `at`, which is a space: a run gives its last space to the word after it.
std::size_t spaces_end(std::string_view text, std::size_t at) {
  std::size_t end = at, last = at;
  for (Seen c = see(text, end); c.space(); c = see(text, end)) {
    last = end;
    end += c.bytes;
  }
  return end < text.size() && last > at ? last : end;
}

/// \s*[\r\n]+ at `at`: the end of the last line break in this run of spaces; `at` when it has none.
std::size_t line_breaks_end(std::string_view text, std::size_t at) {
  std::size_t end = at;
  for (Seen c = see(text, at); c.space(); c = see(text, at)) {
    at += c.bytes;
    if (c.newline()) end = at;
  }
  return end;
}

// 's|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+
std::size_t gpt2(std::string_view text, std::size_t at) {
  if (const std::size_t bytes = contraction_bytes<false>(text, at)) return at + bytes;
  const std::size_t body = at + (text[at] == ' ' ? 1 : 0);
  const Seen c = see(text, body);
  if (c.letter()) return run_end(text, body, [](const Seen& s) { return s.letter(); });
  if (c.number()) return run_end(text, body, [](const Seen& s) { return s.number(); });
  if (c.bytes != 0 && !c.space())
    return run_end(text, body, [](const Seen& s) { return (s.is & (kSpace | kLetter | kNumber)) == 0; });
  return spaces_end(text, at);
}

struct WordRules {
  std::uint32_t digits_max = 3;
  bool contractions = true;
  std::uint8_t letters = kLetter;  ///< what a word is made of
  bool breaks_after_punct = true;  ///< line breaks go with the punctuation before them
};

// (?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+
template <WordRules kRules>
std::size_t llama3(std::string_view text, std::size_t at) {
  if (kRules.contractions)
    if (const std::size_t bytes = contraction_bytes<true>(text, at)) return at + bytes;
  const auto in_word = [](const Seen& s) { return (s.is & kRules.letters) != 0; };
  const Seen c = see(text, at);
  if (in_word(c)) return run_end(text, at, in_word);
  if (c.number()) {
    std::uint32_t digits = 0;
    return run_end(text, at, [&](const Seen& s) { return s.number() && digits++ < kRules.digits_max; });
  }
  if (!c.newline() && in_word(see(text, at + c.bytes))) return run_end(text, at + c.bytes, in_word);
  const auto other = [](const Seen& s) { return (s.is & (kSpace | kLetter | kNumber | kRules.letters)) == 0; };
  const std::size_t body = at + (text[at] == ' ' ? 1 : 0);
  if (const Seen b = see(text, body); b.bytes != 0 && other(b)) {
    const std::size_t end = run_end(text, body, other);
    return kRules.breaks_after_punct ? run_end(text, end, [](const Seen& s) { return s.newline(); }) : end;
  }
  if (const std::size_t end = line_breaks_end(text, at); end > at) return end;
  return spaces_end(text, at);
}

bool ascii_lower(const Seen& s) {
  return s.code >= 'a' && s.code <= 'z';
}
bool ascii_upper(const Seen& s) {
  return s.code >= 'A' && s.code <= 'Z';
}

/// The end of U*L+ or else U+L* at `at`, which is a letter; U: letters but a-z, L: letters but A-Z. Letters outside
/// ASCII are both, so U* gives back what L+ needs.
std::size_t cased_word_end(std::string_view text, std::size_t at) {
  std::size_t end = at, both_end = 0;
  Seen c = see(text, end);
  for (; c.letter() && !ascii_lower(c); c = see(text, end)) {
    end += c.bytes;
    if (!ascii_upper(c)) both_end = end;
  }
  if (c.letter()) return run_end(text, end, [](const Seen& s) { return s.letter() && !ascii_upper(s); });
  return both_end != 0 ? both_end : end;
}

// [^\r\n\p{L}\p{N}]?U*L+(contraction)?|[^\r\n\p{L}\p{N}]?U+L*(contraction)?|\p{N}{1,n}| ?[^\s\p{L}\p{N}]+[\r\n/]*
// |\s*[\r\n]+|\s+(?!\S)|\s+
template <bool kContractions, std::uint32_t kDigits>
std::size_t cased(std::string_view text, std::size_t at) {
  const Seen c = see(text, at);
  const bool prefix = !c.letter() && !c.number() && !c.newline();
  const std::size_t word = prefix ? at + c.bytes : at;
  if (see(text, word).letter()) {
    const std::size_t end = cased_word_end(text, word);
    return kContractions && end < text.size() ? end + contraction_bytes<true>(text, end) : end;
  }
  if (c.number()) {
    std::uint32_t digits = 0;
    return run_end(text, at, [&](const Seen& s) { return s.number() && digits++ < kDigits; });
  }
  const auto other = [](const Seen& s) { return (s.is & (kSpace | kLetter | kNumber)) == 0; };
  const std::size_t body = at + (text[at] == ' ' ? 1 : 0);
  if (const Seen b = see(text, body); b.bytes != 0 && other(b))
    return run_end(text, run_end(text, body, other), [](const Seen& s) { return s.newline() || s.code == '/'; });
  if (const std::size_t end = line_breaks_end(text, at); end > at) return end;
  return spaces_end(text, at);
}

/// Cuts out every match and leaves what lies between as it is. kMatch: bytes matched at `at`, 0 when none.
template <std::size_t (*kMatch)(std::string_view, std::size_t)>
std::size_t isolate(std::string_view text, std::size_t at) {
  if (const std::size_t bytes = kMatch(text, at)) return at + bytes;
  do at += see(text, at).bytes;
  while (at < text.size() && kMatch(text, at) == 0);
  return at;
}

template <std::uint32_t kMax>
std::size_t digits(std::string_view text, std::size_t at) {
  std::uint32_t count = 0;
  return run_end(text, at, [&](const Seen& s) { return s.number() && count++ < kMax; }) - at;
}

std::size_t three_ascii_digits(std::string_view text, std::size_t at) {
  if (text.size() - at < 3) return 0;
  for (std::size_t i = 0; i < 3; ++i)
    if (text[at + i] < '0' || text[at + i] > '9') return 0;
  return 3;
}

// [\p{P}\$\+<=>\^~\|]+, and with the back-quote for Falcon
template <bool kBackQuote>
std::size_t punctuation(std::string_view text, std::size_t at) {
  static constexpr std::string_view kMore = "$+<=>^~|";
  const auto in = [](const Seen& s) {
    return (s.is & kPunct) != 0 || (s.code < 128 && kMore.find(static_cast<char>(s.code)) != kMore.npos) ||
           (kBackQuote && s.code == '`');
  };
  return run_end(text, at, in) - at;
}

constexpr std::array<Splitter, 1> kGpt2{gpt2};
constexpr std::array<Splitter, 2> kSmolLm{isolate<digits<1>>, gpt2};
constexpr std::array<Splitter, 4> kDefault{isolate<punctuation<false>>, gpt2, isolate<digits<UINT32_MAX>>,
                                           isolate<three_ascii_digits>};
constexpr std::array<Splitter, 3> kFalcon{isolate<punctuation<true>>, gpt2, isolate<three_ascii_digits>};
constexpr std::array<Splitter, 1> kLlama3{llama3<WordRules{}>};
constexpr std::array<Splitter, 1> kQwen2{llama3<WordRules{.digits_max = 1}>};
constexpr std::array<Splitter, 1> kQwen35{llama3<WordRules{.digits_max = 1, .letters = kLetter | kMark}>};
constexpr std::array<Splitter, 1> kSeedCoder{llama3<WordRules{.digits_max = 1, .breaks_after_punct = false}>};
constexpr std::array<Splitter, 1> kUfakzeka{llama3<WordRules{.digits_max = 1, .contractions = false}>};
constexpr std::array<Splitter, 2> kMiniCpm5{isolate<digits<3>>, llama3<WordRules{.digits_max = UINT32_MAX}>};
constexpr std::array<Splitter, 1> kGpt4o{cased<true, 3>};
constexpr std::array<Splitter, 1> kTekken{cased<false, 1>};

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
    {"smollm", kSmolLm},
    {"starcoder", kSmolLm},
    {"refact", kSmolLm},
    {"command-r", kSmolLm},
    {"codeshell", kSmolLm},
    {"exaone", kSmolLm},
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
    {"dbrx", kLlama3},
    {"smaug-bpe", kLlama3},
    {"chatglm-bpe", kLlama3},
    {"glm4", kLlama3},
    {"qwen2", kQwen2},
    {"deepseek-r1-qwen", kQwen2},
    {"stablelm2", kQwen2},
    {"megrez", kQwen2},
    {"hunyuan", kQwen2},
    {"solar-open", kQwen2},
    {"grok-2", kQwen2},
    {"kormo", kQwen2},
    {"qwen35", kQwen35},
    {"seed-coder", kSeedCoder},
    {"ufakzeka", kUfakzeka},
    {"minicpm5", kMiniCpm5, true},
    {"gpt-4o", kGpt4o},
    {"llama4", kGpt4o},
    {"kanana2", kGpt4o},
    {"minimax-m2", kGpt4o},
    {"tekken", kTekken, true, true},
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

}  // namespace forge::loader::tok

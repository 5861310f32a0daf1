// Scanners of models from 2024 on whose expressions use more of Unicode than letters and numbers: the case of letters,
// scripts, and digits counted from the right. The expressions are those of the models' tokenizer.json or, for Kimi, of
// its Python code; llama.cpp only approximates some of them.

#include <array>

#include "text/pretokenizer/split_scan.h"

namespace forge::text {
namespace {

/// \p{Han} (Unicode 15, Scripts.txt).
constexpr std::array<Range, 20> kHanScript{
    {{0x2E80, 0x2E99},   {0x2E9B, 0x2EF3},   {0x2F00, 0x2FD5},   {0x3005, 0x3005},   {0x3007, 0x3007},
     {0x3021, 0x3029},   {0x3038, 0x303B},   {0x3400, 0x4DBF},   {0x4E00, 0x9FFF},   {0xF900, 0xFA6D},
     {0xFA70, 0xFAD9},   {0x16FE2, 0x16FE3}, {0x16FF0, 0x16FF1}, {0x20000, 0x2A6DF}, {0x2A700, 0x2B739},
     {0x2B740, 0x2B81D}, {0x2B820, 0x2CEA1}, {0x2CEB0, 0x2EBE0}, {0x2F800, 0x2FA1D}, {0x30000, 0x323AF}}};
/// The character classes of Youtu's first expression: Hangul, full-width and CJK punctuation, Bopomofo.
constexpr std::array<Range, 2> kHangul{{{0x3131, 0x318E}, {0xAC00, 0xD7A3}}};
constexpr std::array<Range, 9> kCjkPunctuation{{{0x2014, 0x2014},
                                                {0x2018, 0x2019},
                                                {0x201C, 0x201D},
                                                {0x2026, 0x2026},
                                                {0x3001, 0x303F},
                                                {0xFE30, 0xFE4F},
                                                {0xFF01, 0xFF01},
                                                {0xFF0C, 0xFF0C},
                                                {0xFF1A, 0xFF1B}}};
constexpr std::array<Range, 1> kBopomofo{{{0x3105, 0x312F}}};

/// How a relative of GPT-4o's expression differs from it.
struct CasedRules {
  std::uint32_t digits_max = 3;     ///< digits a piece
  bool split_han = false;           ///< a run of Han is a piece of its own; other words contain none
  bool punct_takes_slashes = true;  ///< slashes after punctuation belong to its piece, as line breaks do
};

/// The classes U = [\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}] and L = [\p{Ll}\p{Lm}\p{Lo}\p{M}], both without Han if kSplitHan.
/// Modifier letters, other letters and marks (Lm, Lo, M) are in both.
template <bool kSplitHan>
bool upper(const CharInfo& s) {
  return ((s.letter() && (s.classes & kLower) == 0) || s.mark()) && !(kSplitHan && within<kHanScript>(s));
}
template <bool kSplitHan>
bool lower_case(const CharInfo& s) {
  return ((s.letter() && (s.classes & kUpper) == 0) || s.mark()) && !(kSplitHan && within<kHanScript>(s));
}

/// The end of U*L+ at `at`, or 0 if it does not match. U* first takes all it can; if no L follows, it gives back what
/// comes after the last character that is in both classes, which then serves as the L+ (shared_end).
template <bool kSplitHan>
std::size_t lower_word_end(std::string_view text, std::size_t at) {
  std::size_t end = at, shared_end = 0;
  CharInfo c = char_at(text, end);
  for (; upper<kSplitHan>(c); c = char_at(text, end)) {
    end += c.bytes;
    if (lower_case<kSplitHan>(c)) shared_end = end;
  }
  return lower_case<kSplitHan>(c) ? run_end(text, end, lower_case<kSplitHan>) : shared_end;
}

// GPT-4o's expression with full Unicode case classes:
// [^\r\n\p{L}\p{N}]?U*L+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|[^\r\n\p{L}\p{N}]?U+L*(?i:'s|...)?|\p{N}{1,n}
//   | ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+
template <CasedRules kRules>
std::size_t cased_words(std::string_view text, std::size_t at) {
  constexpr bool kHan = kRules.split_han;
  const CharInfo c = char_at(text, at);
  if (kHan && within<kHanScript>(c)) return run_end(text, at, within<kHanScript>);
  const std::size_t after = at + c.bytes;
  const bool prefix = !c.letter() && !c.number() && !c.newline();
  std::size_t end = prefix ? lower_word_end<kHan>(text, after) : 0;
  if (end == 0) end = lower_word_end<kHan>(text, at);
  // The second alternative, U+L*. No L can follow the run of U: U*L+ would have matched it.
  if (end == 0 && prefix && upper<kHan>(char_at(text, after))) end = run_end(text, after, upper<kHan>);
  if (end == 0 && upper<kHan>(c)) end = run_end(text, at, upper<kHan>);
  if (end != 0) return end < text.size() ? end + contraction_bytes<true>(text, end) : end;
  if (c.number()) {
    std::uint32_t digits = 0;
    return run_end(text, at, [&](const CharInfo& s) { return s.number() && digits++ < kRules.digits_max; });
  }
  const auto is_other = [](const CharInfo& s) { return (s.classes & (kSpace | kLetter | kNumber)) == 0; };
  const std::size_t body = at + (text[at] == ' ' ? 1 : 0);
  if (const CharInfo b = char_at(text, body); b.bytes != 0 && is_other(b))
    return run_end(text, run_end(text, body, is_other), [](const CharInfo& s) {
      return s.newline() || (kRules.punct_takes_slashes && s.code == '/' && s.bytes != 0);
    });
  if (const std::size_t breaks = line_breaks_end(text, at); breaks > at) return breaks;
  return spaces_end(text, at);
}

/// Youtu's first expression: a run of one of four disjoint script classes. The number of bytes matched.
std::size_t youtu_script_run(std::string_view text, std::size_t at) {
  const CharInfo c = char_at(text, at);
  if (within<kHangul>(c)) return run<within<kHangul>>(text, at);
  if (within<kCjkPunctuation>(c)) return run<within<kCjkPunctuation>>(text, at);
  if (within<kBopomofo>(c)) return run<within<kBopomofo>>(text, at);
  return run<within<kIdeographsAndKana>>(text, at);
}

bool decimal(const CharInfo& s) {
  return s.bytes != 0 && is_decimal_digit(s.code);
}
/// \b after a digit: `s` is not a word character.
bool at_word_boundary(const CharInfo& s) {
  return s.bytes == 0 || ((s.classes & (kLetter | kMark | kNumber)) == 0 && !is_connector(s.code));
}

// A stage for the look-ahead (?=(\d{3})+(?!\d)), which has no width: it cuts before every group of three digits,
// counted from the right end of a run. Text before the first cut of a run stays with what precedes it: "ab1234" becomes
// "ab1", "234".
std::size_t before_digit_triples(std::string_view text, std::size_t at) {
  std::size_t p = at;
  if (decimal(char_at(text, at)) && decimal(char_before(text, at))) {  // a piece began here, so groups of three follow
    for (int i = 0; i < 3; ++i) p += char_at(text, p).bytes;
    if (decimal(char_at(text, p))) return p;
  }
  while (p < text.size()) {
    if (!decimal(char_at(text, p))) {
      p += char_at(text, p).bytes;
      continue;
    }
    std::size_t count = 0;
    const std::size_t end = run_end(text, p, [&](const CharInfo& s) { return decimal(s) && ++count != 0; });
    if (count % 3 == 0 && p > at) return p;
    std::size_t head = count % 3 == 0 ? 3 : count % 3;
    if (count <= head) {
      p = end;
      continue;
    }
    while (head-- > 0) p += char_at(text, p).bytes;
    return p;
  }
  return p;
}

// EXAONE MoE's expression:
// (?i:'s|...)|[^\r\n\p{L}\p{N}]?(?:\p{L}\p{M}*(?: \p{L}\p{M}*)*)+|\p{N}
//   | ?[^\s\p{L}\p{N}]+[\r\n/]?|\s*[\r\n]|\s+(?!\S)|\s+
std::size_t exaone_moe(std::string_view text, std::size_t at) {
  if (const std::size_t bytes = contraction_bytes<true>(text, at)) return at + bytes;
  const CharInfo c = char_at(text, at);
  const bool prefix = !c.letter() && !c.number() && !c.newline();
  std::size_t end = prefix ? at + c.bytes : at;
  if (char_at(text, end).letter()) {
    while (true) {  // letters with their marks; a single space joins two words
      end = run_end(text, end + char_at(text, end).bytes, [](const CharInfo& s) { return s.mark(); });
      const CharInfo next = char_at(text, end);
      if (next.code == ' ' && char_at(text, end + 1).letter())
        ++end;
      else if (!next.letter())
        return end;
    }
  }
  if (c.number()) return at + c.bytes;
  const auto is_other = [](const CharInfo& s) { return (s.classes & (kSpace | kLetter | kNumber)) == 0; };
  const std::size_t body = at + (text[at] == ' ' ? 1 : 0);
  if (const CharInfo b = char_at(text, body); b.bytes != 0 && is_other(b)) {
    end = run_end(text, body, is_other);  // slashes are in this class, so only a line break is left of [\r\n/]?
    return end < text.size() && (text[end] == '\r' || text[end] == '\n') ? end + 1 : end;
  }
  if (const std::size_t breaks = line_breaks_end(text, at); breaks > at) return breaks;
  return spaces_end(text, at);
}

// Chameleon's expressions. They are applied one after another, and GPT-2's comes last.
// <sentinel:[0-9]+>
std::size_t sentinel(std::string_view text, std::size_t at) {
  static constexpr std::string_view kPrefix = "<sentinel:";
  if (!text.substr(at).starts_with(kPrefix)) return 0;
  const std::size_t digits = at + kPrefix.size();
  const std::size_t end = run_end(text, digits, [](const CharInfo& s) { return s.code >= '0' && s.code <= '9'; });
  return end > digits && end < text.size() && text[end] == '>' ? end + 1 - at : 0;
}
// (IMGIMG)((A|B|C|D|E|F|G|H|I){1,4})Z
std::size_t image(std::string_view text, std::size_t at) {
  static constexpr std::string_view kPrefix = "IMGIMG";
  if (!text.substr(at).starts_with(kPrefix)) return 0;
  const std::size_t letters = at + kPrefix.size();
  std::size_t end = letters;
  while (end < text.size() && end - letters < 4 && text[end] >= 'A' && text[end] <= 'I') ++end;
  return end > letters && end < text.size() && text[end] == 'Z' ? end + 1 - at : 0;
}
// [\t\n]| {4}| {2}
std::size_t chameleon_blank(std::string_view text, std::size_t at) {
  if (text[at] == '\t' || text[at] == '\n') return 1;
  return text.substr(at).starts_with("    ") ? 4 : text.substr(at).starts_with("  ") ? 2 : 0;
}
// [\p{P}!-/:-@\[-`{-~]
std::size_t one_punctuation(std::string_view text, std::size_t at) {
  const CharInfo c = char_at(text, at);
  return (c.classes & (c.code < 128 ? kPunct | kSymbol : kPunct)) != 0 ? c.bytes : 0;
}

}  // namespace

const std::array<Splitter, 1> kKimiK2{cased_words<CasedRules{.split_han = true, .punct_takes_slashes = false}>};
const std::array<Splitter, 2> kYoutu{isolate<youtu_script_run>, cased_words<CasedRules{.digits_max = 1}>};
const std::array<Splitter, 2> kTinyAya{digit_groups<decimal, at_word_boundary>, cased_words<CasedRules{}>};
const std::array<Splitter, 1> kGraniteMulti{cased_words<CasedRules{}>};
const std::array<Splitter, 1> kExaoneMoe{exaone_moe};
const std::array<Splitter, 6> kChameleon{isolate<sentinel>,  isolate<image>,           isolate<chameleon_blank>,
                                         isolate<digits<1>>, isolate<one_punctuation>, gpt2_words};
const std::array<Splitter, 2> kSuperBpe{isolate<digits<UINT32_MAX>>, before_digit_triples};

}  // namespace forge::text

// Pre-tokenizers of models from 2024 on that know more of Unicode than letters and numbers: the case of letters,
// scripts, digits counted from the right. Their expressions are those of the models' tokenizer.json or, for Kimi, of
// its Python code; llama.cpp has approximations of some.

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
/// Youtu's stretches: Hangul; full-width and CJK punctuation; Bopomofo.
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

struct CasedRules {
  std::uint32_t digits_max = 3;
  bool han_apart = false;         ///< runs of Han are words, and no other word has any
  bool slash_after_punct = true;  ///< as line breaks have it: it goes with the punctuation before it
};

/// U: [\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}], L: [\p{Ll}\p{Lm}\p{Lo}\p{M}], both without Han where that is apart.
template <bool kHanApart>
bool upper(const Seen& s) {
  return ((s.letter() && (s.is & kLower) == 0) || s.mark()) && !(kHanApart && within<kHanScript>(s));
}
template <bool kHanApart>
bool lower_case(const Seen& s) {
  return ((s.letter() && (s.is & kUpper) == 0) || s.mark()) && !(kHanApart && within<kHanScript>(s));
}

/// The end of U*L+ at `at`, 0 when it is not there: U* gives back what L+ needs, of what is in both.
template <bool kHanApart>
std::size_t lower_word_end(std::string_view text, std::size_t at) {
  std::size_t end = at, both_end = 0;
  Seen c = see(text, end);
  for (; upper<kHanApart>(c); c = see(text, end)) {
    end += c.bytes;
    if (lower_case<kHanApart>(c)) both_end = end;
  }
  return lower_case<kHanApart>(c) ? run_end(text, end, lower_case<kHanApart>) : both_end;
}

// [^\r\n\p{L}\p{N}]?U*L+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|[^\r\n\p{L}\p{N}]?U+L*(?i:'s|...)?|\p{N}{1,n}
// | ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+
template <CasedRules kRules>
std::size_t cased_words(std::string_view text, std::size_t at) {
  constexpr bool kHan = kRules.han_apart;
  const Seen c = see(text, at);
  if (kHan && within<kHanScript>(c)) return run_end(text, at, within<kHanScript>);
  const std::size_t after = at + c.bytes;
  const bool prefix = !c.letter() && !c.number() && !c.newline();
  std::size_t end = prefix ? lower_word_end<kHan>(text, after) : 0;
  if (end == 0) end = lower_word_end<kHan>(text, at);
  // No L can follow these: U*L+ would have taken it.
  if (end == 0 && prefix && upper<kHan>(see(text, after))) end = run_end(text, after, upper<kHan>);
  if (end == 0 && upper<kHan>(c)) end = run_end(text, at, upper<kHan>);
  if (end != 0) return end < text.size() ? end + contraction_bytes<true>(text, end) : end;
  if (c.number()) {
    std::uint32_t digits = 0;
    return run_end(text, at, [&](const Seen& s) { return s.number() && digits++ < kRules.digits_max; });
  }
  const auto other = [](const Seen& s) { return (s.is & (kSpace | kLetter | kNumber)) == 0; };
  const std::size_t body = at + (text[at] == ' ' ? 1 : 0);
  if (const Seen b = see(text, body); b.bytes != 0 && other(b))
    return run_end(text, run_end(text, body, other), [](const Seen& s) {
      return s.newline() || (kRules.slash_after_punct && s.code == '/' && s.bytes != 0);
    });
  if (const std::size_t breaks = line_breaks_end(text, at); breaks > at) return breaks;
  return spaces_end(text, at);
}

/// The four stretches of Youtu's first expression; no character is in two.
std::size_t youtu_script(std::string_view text, std::size_t at) {
  const Seen c = see(text, at);
  if (within<kHangul>(c)) return run<within<kHangul>>(text, at);
  if (within<kCjkPunctuation>(c)) return run<within<kCjkPunctuation>>(text, at);
  if (within<kBopomofo>(c)) return run<within<kBopomofo>>(text, at);
  return run<within<kIdeographsAndKana>>(text, at);
}

bool decimal(const Seen& s) {
  return s.bytes != 0 && is_decimal_digit(s.code);
}
/// \b after a digit: no character of a word follows.
bool word_ends(const Seen& s) {
  return s.bytes == 0 || ((s.is & (kLetter | kMark | kNumber)) == 0 && !is_connector(s.code));
}

// (?=(\d{3})+(?!\d)) cuts before it: each run of digits is cut into threes from the right, and what is before its first
// cut stays with what precedes it.
std::size_t before_threes(std::string_view text, std::size_t at) {
  std::size_t p = at;
  if (decimal(see(text, at)) && decimal(see_before(text, at))) {
    for (int i = 0; i < 3; ++i) p += see(text, p).bytes;
    if (decimal(see(text, p))) return p;
  }
  while (p < text.size()) {
    if (!decimal(see(text, p))) {
      p += see(text, p).bytes;
      continue;
    }
    std::size_t count = 0;
    const std::size_t end = run_end(text, p, [&](const Seen& s) { return decimal(s) && ++count != 0; });
    if (count % 3 == 0 && p > at) return p;
    std::size_t head = count % 3 == 0 ? 3 : count % 3;
    if (count <= head) {
      p = end;
      continue;
    }
    while (head-- > 0) p += see(text, p).bytes;
    return p;
  }
  return p;
}

// (?i:'s|...)|[^\r\n\p{L}\p{N}]?(?:\p{L}\p{M}*(?: \p{L}\p{M}*)*)+|\p{N}|
// ?[^\s\p{L}\p{N}]+[\r\n/]?|\s*[\r\n]|\s+(?!\S)|\s+
std::size_t exaone_moe(std::string_view text, std::size_t at) {
  if (const std::size_t bytes = contraction_bytes<true>(text, at)) return at + bytes;
  const Seen c = see(text, at);
  const bool prefix = !c.letter() && !c.number() && !c.newline();
  std::size_t end = prefix ? at + c.bytes : at;
  if (see(text, end).letter()) {
    while (true) {  // words of letters with marks, single spaces between them
      end = run_end(text, end + see(text, end).bytes, [](const Seen& s) { return s.mark(); });
      const Seen next = see(text, end);
      if (next.code == ' ' && see(text, end + 1).letter())
        ++end;
      else if (!next.letter())
        return end;
    }
  }
  if (c.number()) return at + c.bytes;
  const auto other = [](const Seen& s) { return (s.is & (kSpace | kLetter | kNumber)) == 0; };
  const std::size_t body = at + (text[at] == ' ' ? 1 : 0);
  if (const Seen b = see(text, body); b.bytes != 0 && other(b)) {
    end = run_end(text, body, other);  // slashes are among them
    return end < text.size() && (text[end] == '\r' || text[end] == '\n') ? end + 1 : end;
  }
  if (const std::size_t breaks = line_breaks_end(text, at); breaks > at) return breaks;
  return spaces_end(text, at);
}

// Chameleon's expressions, one after another, and GPT-2's at the end.
// <sentinel:[0-9]+>
std::size_t sentinel(std::string_view text, std::size_t at) {
  static constexpr std::string_view kFront = "<sentinel:";
  if (!text.substr(at).starts_with(kFront)) return 0;
  const std::size_t digits = at + kFront.size();
  const std::size_t end = run_end(text, digits, [](const Seen& s) { return s.code >= '0' && s.code <= '9'; });
  return end > digits && end < text.size() && text[end] == '>' ? end + 1 - at : 0;
}
// (IMGIMG)((A|B|C|D|E|F|G|H|I){1,4})Z
std::size_t image(std::string_view text, std::size_t at) {
  static constexpr std::string_view kFront = "IMGIMG";
  if (!text.substr(at).starts_with(kFront)) return 0;
  const std::size_t letters = at + kFront.size();
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
  const Seen c = see(text, at);
  return (c.is & (c.code < 128 ? kPunct | kSymbol : kPunct)) != 0 ? c.bytes : 0;
}

}  // namespace

const std::array<Splitter, 1> kKimiK2{cased_words<CasedRules{.han_apart = true, .slash_after_punct = false}>};
const std::array<Splitter, 2> kYoutu{isolate<youtu_script>, cased_words<CasedRules{.digits_max = 1}>};
const std::array<Splitter, 2> kTinyAya{digit_groups<decimal, word_ends>, cased_words<CasedRules{}>};
const std::array<Splitter, 1> kGraniteMulti{cased_words<CasedRules{}>};
const std::array<Splitter, 1> kExaoneMoe{exaone_moe};
const std::array<Splitter, 6> kChameleon{isolate<sentinel>,  isolate<image>,           isolate<chameleon_blank>,
                                         isolate<digits<1>>, isolate<one_punctuation>, gpt2_words};
const std::array<Splitter, 2> kSuperBpe{isolate<digits<UINT32_MAX>>, before_threes};

}  // namespace forge::text

#pragma once
// Building blocks for the scanners: classified characters, runs, and the sub-expressions that many pre-tokenizers
// share. A comment above each block gives the regular expression that it implements. Internal to text/pretokenizer.

#include <algorithm>
#include <array>
#include <cstdint>
#include <string_view>

#include "text/pretokenizer/split.h"
#include "text/tokenizer/unicode.h"

namespace forge::text {

inline const std::array<std::uint8_t, 128>& kAscii = ascii_classes();

/// One character with its classes; bytes == 0 beyond the end of the piece, and no class is set then.
struct CharInfo {
  std::uint32_t code = 0;
  std::uint32_t bytes = 0;   // of its UTF-8 form
  std::uint8_t classes = 0;  // kLetter | kNumber | ... of tokenizer/unicode.h

  [[nodiscard]] bool letter() const { return (classes & kLetter) != 0; }
  [[nodiscard]] bool mark() const { return (classes & kMark) != 0; }
  [[nodiscard]] bool number() const { return (classes & kNumber) != 0; }
  [[nodiscard]] bool space() const { return (classes & kSpace) != 0; }
  [[nodiscard]] bool newline() const { return bytes != 0 && (code == '\r' || code == '\n'); }
};

/// The character at byte `at`. ASCII characters are classified by a table look-up.
inline CharInfo char_at(std::string_view text, std::size_t at) {
  if (at >= text.size()) return {};
  const auto lead = static_cast<unsigned char>(text[at]);
  if (lead < 0x80) return {lead, 1, kAscii[lead]};
  const Char c = decode(text, at);
  return {c.code, c.bytes, char_class_slow(c.code)};
}

/// The end of the run of characters accepted by `in`, starting at `at`: the regular expression [...]*.
template <class In>
std::size_t run_end(std::string_view text, std::size_t at, In in) {
  for (CharInfo c = char_at(text, at); c.bytes != 0 && in(c); c = char_at(text, at)) at += c.bytes;
  return at;
}

/// ASCII only.
inline char lower(char c) {
  return c >= 'A' && c <= 'Z' ? static_cast<char>(c + 32) : c;
}

/// 's|'t|'re|'ve|'m|'ll|'d: the number of bytes matched at `at`, 0 if there is no contraction. kAnyCase: (?i:...).
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

/// \s+(?!\S)|\s+ at `at`, which must be a space. A run of spaces before a word leaves its last space to that word; a
/// run at the end of the text is taken whole: "a   b" is cut into "a", "  ", " b".
inline std::size_t spaces_end(std::string_view text, std::size_t at) {
  std::size_t end = at, last = at;
  for (CharInfo c = char_at(text, end); c.space(); c = char_at(text, end)) {
    last = end;
    end += c.bytes;
  }
  return end < text.size() && last > at ? last : end;
}

/// The character that ends at `at`; bytes == 0 at the start of the piece.
inline CharInfo char_before(std::string_view text, std::size_t at) {
  if (at == 0) return {};
  do --at;
  while (at > 0 && (static_cast<unsigned char>(text[at]) & 0xC0) == 0x80);
  return char_at(text, at);
}

/// \s*[\r\n]+ at `at`: the end of the last line break in this run of white space, or `at` if the run has none.
inline std::size_t line_breaks_end(std::string_view text, std::size_t at) {
  std::size_t end = at;
  for (CharInfo c = char_at(text, at); c.space(); c = char_at(text, at)) {
    at += c.bytes;
    if (c.newline()) end = at;
  }
  return end;
}

/// \s{512}(?!\S)|\s{256}(?!\S)|...|\s{4}(?!\S)|\s{1,2}(?!\S)|\s{1} at `at`: takes the largest power of two of spaces,
/// at most 512, that is not directly followed by a non-space; a single space otherwise. 7 spaces before a word are cut
/// into 4, 2, 1.
inline std::size_t power_of_two_spaces_end(std::string_view text, std::size_t at) {
  constexpr std::size_t kRunMax = 512;
  std::size_t end = at, chosen = at + char_at(text, at).bytes, count = 0, last_power_end = at;
  for (CharInfo c = char_at(text, end); c.space() && count <= kRunMax; c = char_at(text, end)) {
    if (last_power_end > at) chosen = last_power_end;  // that power is followed by a space
    last_power_end = at;
    end += c.bytes;
    ++count;
    if ((count & (count - 1)) == 0 && count <= kRunMax) last_power_end = end;
  }
  return last_power_end > at && end == text.size() ? last_power_end : chosen;
}

/// A stage that makes every match of kMatch a piece of its own and leaves the text between two matches as one piece,
/// like Hugging Face's Split with behavior "isolated". kMatch returns the number of bytes matched at `at`, 0 for no
/// match.
template <std::size_t (*kMatch)(std::string_view, std::size_t)>
std::size_t isolate(std::string_view text, std::size_t at) {
  if (const std::size_t bytes = kMatch(text, at)) return at + bytes;
  do at += char_at(text, at).bytes;
  while (at < text.size() && kMatch(text, at) == 0);
  return at;
}

/// \p{N}{1,kMax}: the number of bytes matched.
template <std::uint32_t kMax>
std::size_t digits(std::string_view text, std::size_t at) {
  std::uint32_t count = 0;
  return run_end(text, at, [&](const CharInfo& s) { return s.number() && count++ < kMax; }) - at;
}

/// A range of code points, both ends included.
struct Range {
  std::uint32_t first, last;
};

/// True if the character is in one of kRanges, which must be sorted and disjoint.
template <const auto& kRanges>
bool within(const CharInfo& s) {
  const auto above = std::ranges::upper_bound(kRanges, s.code, {}, &Range::first);
  return s.bytes != 0 && above != kRanges.begin() && s.code <= std::prev(above)->last;
}

/// [一-龥぀-ゟ゠-ヿ]: common CJK ideographs, Hiragana and Katakana.
inline constexpr std::array<Range, 2> kIdeographsAndKana{{{0x3040, 0x30FF}, {0x4E00, 0x9FA5}}};

/// [...]+ for the class kIn: the number of bytes matched.
template <bool (*kIn)(const CharInfo&)>
std::size_t run(std::string_view text, std::size_t at) {
  return run_end(text, at, kIn) - at;
}

/// A stage that cuts each run of digits (class kIn) into groups of three counted from the right: "1234567" becomes "1",
/// "234", "567". Text between runs stays whole. kMayCut(after) says whether a run followed by the character `after` is
/// cut at all; a run that is not stays inside the text around it.
///
/// The length of a run is counted once, at its first digit. Inside a run every cut is then three digits further, so a
/// run of n digits costs O(n), not O(n^2).
template <bool (*kIn)(const CharInfo&), bool (*kMayCut)(const CharInfo& after)>
std::size_t digit_groups(std::string_view text, std::size_t at) {
  struct Run {
    std::size_t end = 0, count = 0;
  };
  const auto count = [&](std::size_t from) {
    Run run;
    run.end = run_end(text, from, [&](const CharInfo& s) { return kIn(s) && ++run.count != 0; });
    return run;
  };
  const auto skip = [&](std::size_t from, std::size_t digits) {
    while (digits-- > 0) from += char_at(text, from).bytes;
    return from;
  };
  if (kIn(char_at(text, at))) {
    if (kIn(char_before(text, at))) return skip(at, 3);
    if (const Run first = count(at); kMayCut(char_at(text, first.end)))
      return skip(at, first.count % 3 != 0 ? first.count % 3 : 3);
  }
  while (at < text.size()) {
    if (!kIn(char_at(text, at))) {
      at += char_at(text, at).bytes;
      continue;
    }
    const Run next = count(at);
    if (kMayCut(char_at(text, next.end))) break;
    at = next.end;
  }
  return at;
}

// Tables of the model families whose scanners have a file of their own: split_deepseek.cc and split_unicode.cc.
extern const std::array<Splitter, 6> kDeepseekLlm;
extern const std::array<Splitter, 5> kDeepseekCoder;
extern const std::array<Splitter, 3> kDeepseekV3;
extern const std::array<Splitter, 4> kSpark;
extern const std::array<Splitter, 3> kAfmoe;
extern const std::array<Splitter, 1> kKimiK2;
extern const std::array<Splitter, 2> kYoutu;
extern const std::array<Splitter, 2> kTinyAya;
extern const std::array<Splitter, 1> kGraniteMulti;
extern const std::array<Splitter, 1> kExaoneMoe;
extern const std::array<Splitter, 6> kChameleon;
extern const std::array<Splitter, 2> kSuperBpe;

/// GPT-2's expression; also the last stage of other pre-tokenizers.
std::size_t gpt2_words(std::string_view text, std::size_t at);

}  // namespace forge::text

#pragma once
// Parts that splitters are made of. Each is a part of a regular expression, and says which.

#include <algorithm>
#include <array>
#include <cstdint>
#include <string_view>

#include "text/pretokenizer/split.h"
#include "text/tokenizer/unicode.h"

namespace forge::text {

inline const std::array<std::uint8_t, 128>& kAscii = ascii_classes();

/// One character with its class; bytes == 0 past the end of the piece.
struct Seen {
  std::uint32_t code = 0;
  std::uint32_t bytes = 0;
  std::uint8_t is = 0;

  [[nodiscard]] bool letter() const { return (is & kLetter) != 0; }
  [[nodiscard]] bool mark() const { return (is & kMark) != 0; }
  [[nodiscard]] bool number() const { return (is & kNumber) != 0; }
  [[nodiscard]] bool space() const { return (is & kSpace) != 0; }
  [[nodiscard]] bool newline() const { return bytes != 0 && (code == '\r' || code == '\n'); }
};

inline Seen see(std::string_view text, std::size_t at) {
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

inline char lower(char c) {
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
inline std::size_t spaces_end(std::string_view text, std::size_t at) {
  std::size_t end = at, last = at;
  for (Seen c = see(text, end); c.space(); c = see(text, end)) {
    last = end;
    end += c.bytes;
  }
  return end < text.size() && last > at ? last : end;
}

/// The character before `at`; bytes == 0 where the piece begins.
inline Seen see_before(std::string_view text, std::size_t at) {
  if (at == 0) return {};
  do --at;
  while (at > 0 && (static_cast<unsigned char>(text[at]) & 0xC0) == 0x80);
  return see(text, at);
}

/// \s*[\r\n]+ at `at`: the end of the last line break in this run of spaces; `at` when it has none.
inline std::size_t line_breaks_end(std::string_view text, std::size_t at) {
  std::size_t end = at;
  for (Seen c = see(text, at); c.space(); c = see(text, at)) {
    at += c.bytes;
    if (c.newline()) end = at;
  }
  return end;
}

/// \s{512}(?!\S)|\s{256}(?!\S)|...|\s{4}(?!\S)|\s{1,2}(?!\S)|\s{1}: the greatest power of two of spaces that leaves one
/// to the word after them.
inline std::size_t doubled_spaces_end(std::string_view text, std::size_t at) {
  constexpr std::size_t kMost = 512;
  std::size_t end = at, chosen = at + see(text, at).bytes, count = 0, last_power_end = at;
  for (Seen c = see(text, end); c.space() && count <= kMost; c = see(text, end)) {
    if (last_power_end > at) chosen = last_power_end;  // one more space follows that power
    last_power_end = at;
    end += c.bytes;
    ++count;
    if ((count & (count - 1)) == 0 && count <= kMost) last_power_end = end;
  }
  return last_power_end > at && end == text.size() ? last_power_end : chosen;
}

/// Cuts out every match and leaves what lies between as it is. kMatch: bytes matched at `at`, 0 when none.
template <std::size_t (*kMatch)(std::string_view, std::size_t)>
std::size_t isolate(std::string_view text, std::size_t at) {
  if (const std::size_t bytes = kMatch(text, at)) return at + bytes;
  do at += see(text, at).bytes;
  while (at < text.size() && kMatch(text, at) == 0);
  return at;
}

/// \p{N}{1,kMax}
template <std::uint32_t kMax>
std::size_t digits(std::string_view text, std::size_t at) {
  std::uint32_t count = 0;
  return run_end(text, at, [&](const Seen& s) { return s.number() && count++ < kMax; }) - at;
}

/// Code points, both ends included.
struct Range {
  std::uint32_t first, last;
};

/// `kRanges` are sorted and apart from each other.
template <const auto& kRanges>
bool within(const Seen& s) {
  const auto above = std::ranges::upper_bound(kRanges, s.code, {}, &Range::first);
  return s.bytes != 0 && above != kRanges.begin() && s.code <= std::prev(above)->last;
}

/// [一-龥぀-ゟ゠-ヿ]
inline constexpr std::array<Range, 2> kIdeographsAndKana{{{0x3040, 0x30FF}, {0x4E00, 0x9FA5}}};

/// [...]+
template <bool (*kIn)(const Seen&)>
std::size_t run(std::string_view text, std::size_t at) {
  return run_end(text, at, kIn) - at;
}

/// Digits of `kIn` in groups of three from the right, what lies between them as it is: a long run is counted once, at
/// its first digit. kEnds: whether a run may be cut that ends here.
template <bool (*kIn)(const Seen&), bool (*kEnds)(const Seen& after)>
std::size_t digit_groups(std::string_view text, std::size_t at) {
  struct Run {
    std::size_t end = 0, count = 0;
  };
  const auto count = [&](std::size_t from) {
    Run run;
    run.end = run_end(text, from, [&](const Seen& s) { return kIn(s) && ++run.count != 0; });
    return run;
  };
  const auto skip = [&](std::size_t from, std::size_t digits) {
    while (digits-- > 0) from += see(text, from).bytes;
    return from;
  };
  if (kIn(see(text, at))) {
    if (kIn(see_before(text, at))) return skip(at, 3);
    if (const Run first = count(at); kEnds(see(text, first.end)))
      return skip(at, first.count % 3 != 0 ? first.count % 3 : 3);
  }
  while (at < text.size()) {
    if (!kIn(see(text, at))) {
      at += see(text, at).bytes;
      continue;
    }
    const Run next = count(at);
    if (kEnds(see(text, next.end))) break;
    at = next.end;
  }
  return at;
}

// Splitters of whole families, each in a file of its own.
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

/// GPT-2's expression, which others end with.
std::size_t gpt2_words(std::string_view text, std::size_t at);

}  // namespace forge::text

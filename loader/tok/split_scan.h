#pragma once
// Parts that splitters are made of. Each is a part of a regular expression, and says which.

#include <array>
#include <cstdint>
#include <string_view>

#include "loader/tok/split.h"
#include "loader/tok/unicode.h"

namespace forge::loader::tok {

inline const std::array<std::uint8_t, 128>& kAscii = ascii_classes();

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

/// \s*[\r\n]+ at `at`: the end of the last line break in this run of spaces; `at` when it has none.
inline std::size_t line_breaks_end(std::string_view text, std::size_t at) {
  std::size_t end = at;
  for (Seen c = see(text, at); c.space(); c = see(text, at)) {
    at += c.bytes;
    if (c.newline()) end = at;
  }
  return end;
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

// Splitters of whole families, each in a file of its own.
extern const std::array<Splitter, 6> kDeepseekLlm;
extern const std::array<Splitter, 5> kDeepseekCoder;
extern const std::array<Splitter, 3> kDeepseekV3;

}  // namespace forge::loader::tok

#pragma once
// What the splitters know about text: UTF-8 and the general categories of Unicode 15 (utf8proc).

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace forge::text {

/// Bits of `char_class`; the letters in brackets are the general categories. A code point has one bit or none, except
/// that White_Space is its own property and goes with any category, and that letters of one case have two.
inline constexpr std::uint8_t kLetter = 1;   // L*
inline constexpr std::uint8_t kNumber = 2;   // N*
inline constexpr std::uint8_t kSpace = 4;    // the White_Space property
inline constexpr std::uint8_t kPunct = 8;    // P*
inline constexpr std::uint8_t kSymbol = 16;  // S*
inline constexpr std::uint8_t kMark = 32;    // M*
inline constexpr std::uint8_t kUpper = 64;   // Lu, Lt
inline constexpr std::uint8_t kLower = 128;  // Ll

[[nodiscard]] std::uint8_t char_class_slow(std::uint32_t code);
[[nodiscard]] const std::array<std::uint8_t, 128>& ascii_classes() noexcept;
[[nodiscard]] bool is_decimal_digit(std::uint32_t code);  ///< Nd
[[nodiscard]] bool is_connector(std::uint32_t code);      ///< Pc

/// One character of text that `repair_utf8` returned.
struct Char {
  std::uint32_t code = 0;
  std::uint32_t bytes = 0;
};

/// The character at `at`, at < text.size(); sequences are known to be whole.
inline Char decode(std::string_view text, std::size_t at) {
  const auto byte = [&](std::size_t i) { return static_cast<unsigned char>(text[at + i]); };
  const std::uint32_t lead = byte(0);
  if (lead < 0x80) return {lead, 1};
  if (lead < 0xE0) return {(lead & 0x1F) << 6 | (byte(1) & 0x3FU), 2};
  if (lead < 0xF0) return {(lead & 0x0F) << 12 | (byte(1) & 0x3FU) << 6 | (byte(2) & 0x3FU), 3};
  return {(lead & 0x07) << 18 | (byte(1) & 0x3FU) << 12 | (byte(2) & 0x3FU) << 6 | (byte(3) & 0x3FU), 4};
}

/// Bytes that a sequence with this first byte claims to have, 1 for bytes that begin none.
inline std::size_t sequence_bytes(char lead) {
  const auto c = static_cast<unsigned char>(lead);
  return c < 0xC0 ? 1 : c < 0xE0 ? 2 : c < 0xF0 ? 3 : 4;
}

void append_utf8(std::string& out, std::uint32_t code);

/// What stands for bytes that are no character.
inline constexpr std::uint32_t kReplacementCode = 0xFFFD;
inline constexpr std::string_view kReplacementText = "\xEF\xBF\xBD";

/// Bytes of the well-formed character (RFC 3629) at the start of `text`, or 0; then `wrong` is how many bytes one
/// U+FFFD stands for (the longest beginning of a character, at least one byte: Unicode 15, section 3.9, practice for
/// replacement). `text` is not empty.
[[nodiscard]] std::size_t well_formed_bytes(std::string_view text, std::size_t& wrong);

/// `text` itself when it is well-formed; otherwise a repaired copy in `storage`. Rules, chosen to give the ids that
/// llama.cpp gives: a byte that begins no whole sequence becomes U+FFFD; overlong forms become the character that they
/// spell; surrogates stay.
std::string_view repair_utf8(std::string_view text, std::string& storage);

/// The length of the longest prefix that holds no unfinished sequence at its end: what a stream may show. Bytes that
/// can no longer become a character count as finished.
std::size_t complete_utf8_prefix(std::string_view text);

}  // namespace forge::text

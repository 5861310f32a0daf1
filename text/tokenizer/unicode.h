#pragma once
// UTF-8 decoding and repair, and character classes by the general categories of Unicode 15 (utf8proc).

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace forge::text {

/// Bits of a character's class; the comments name the general categories. A code point has one of these bits or none,
/// with two exceptions: White_Space is a property of its own and combines with any category, and cased letters also
/// have kUpper or kLower.
inline constexpr std::uint8_t kLetter = 1;   // L*
inline constexpr std::uint8_t kNumber = 2;   // N*
inline constexpr std::uint8_t kSpace = 4;    // the White_Space property
inline constexpr std::uint8_t kPunct = 8;    // P*
inline constexpr std::uint8_t kSymbol = 16;  // S*
inline constexpr std::uint8_t kMark = 32;    // M*
inline constexpr std::uint8_t kUpper = 64;   // Lu, Lt
inline constexpr std::uint8_t kLower = 128;  // Ll

/// The class bits of a code point, by a utf8proc look-up. ascii_classes() is the table for ASCII.
[[nodiscard]] std::uint8_t char_class_slow(std::uint32_t code);
[[nodiscard]] const std::array<std::uint8_t, 128>& ascii_classes() noexcept;
[[nodiscard]] bool is_white_space(std::uint32_t code);  ///< the White_Space property

/// A decoded character of well-formed text (see repair_utf8).
struct Char {
  std::uint32_t code = 0;
  std::uint32_t bytes = 0;
};

/// The character at byte `at`, at < text.size(). Its sequence must be complete, which repair_utf8() guarantees.
inline Char decode(std::string_view text, std::size_t at) {
  const auto byte = [&](std::size_t i) { return static_cast<unsigned char>(text[at + i]); };
  const std::uint32_t lead = byte(0);
  if (lead < 0x80) return {lead, 1};
  if (lead < 0xE0) return {(lead & 0x1F) << 6 | (byte(1) & 0x3FU), 2};
  if (lead < 0xF0) return {(lead & 0x0F) << 12 | (byte(1) & 0x3FU) << 6 | (byte(2) & 0x3FU), 3};
  return {(lead & 0x07) << 18 | (byte(1) & 0x3FU) << 12 | (byte(2) & 0x3FU) << 6 | (byte(3) & 0x3FU), 4};
}

/// The sequence length that a first byte announces; 1 for bytes that cannot start a sequence.
inline std::size_t sequence_bytes(char lead) {
  const auto c = static_cast<unsigned char>(lead);
  return c < 0xC0 ? 1 : c < 0xE0 ? 2 : c < 0xF0 ? 3 : 4;
}

/// Appends the UTF-8 form of `code`.
void append_utf8(std::string& out, std::uint32_t code);

/// `text`, well-formed, with every character in its simple lower case.
[[nodiscard]] std::string lower_case(std::string_view text);

/// The replacement character, which stands for bytes that are not a character.
inline constexpr std::uint32_t kReplacementCode = 0xFFFD;
inline constexpr std::string_view kReplacementText = "\xEF\xBF\xBD";

/// The number of bytes of the well-formed character (RFC 3629) at the start of `text`, which must not be empty; 0 if
/// there is none. In that case `ill_formed` is the number of bytes that one U+FFFD replaces: the longest prefix of a
/// character, at least one byte (Unicode 15, section 3.9, "maximal subpart").
[[nodiscard]] std::size_t well_formed_bytes(std::string_view text, std::size_t& ill_formed);

/// `text` itself if it is well-formed, otherwise a repaired copy in `storage`. The rules give the same ids as
/// llama.cpp: a byte that starts no complete sequence becomes U+FFFD, an overlong form becomes the character that it
/// encodes, and surrogates stay.
std::string_view repair_utf8(std::string_view text, std::string& storage);

/// The length of the longest prefix of `text` that does not end in an incomplete sequence: what a stream may show
/// already. Bytes that can no longer become a character count as complete.
std::size_t complete_utf8_prefix(std::string_view text);

}  // namespace forge::text

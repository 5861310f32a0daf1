#include "text/tokenizer/byte_level.h"

#include "text/tokenizer/unicode.h"

namespace forge::text {
namespace {

constexpr std::uint32_t kShifted = 0x100;  // code point of the first byte that is not printable
constexpr std::uint32_t kShiftedCount = 68;

constexpr bool is_printable(std::uint32_t byte) {
  return (byte >= 0x21 && byte <= 0x7E) || (byte >= 0xA1 && byte <= 0xAC) || byte >= 0xAE;
}

/// Both directions of the mapping, built at compile time.
struct Alphabet {
  std::array<std::uint16_t, 256> code_of_byte{};
  std::array<std::uint8_t, kShiftedCount> byte_of_shifted{};
};

constexpr Alphabet kAlphabet = [] {
  Alphabet alphabet;
  std::uint32_t next = 0;
  for (std::uint32_t byte = 0; byte < 256; ++byte) {
    if (is_printable(byte)) {
      alphabet.code_of_byte.at(byte) = static_cast<std::uint16_t>(byte);
    } else {
      alphabet.byte_of_shifted.at(next) = static_cast<std::uint8_t>(byte);
      alphabet.code_of_byte.at(byte) = static_cast<std::uint16_t>(kShifted + next++);
    }
  }
  return alphabet;
}();
static_assert(kAlphabet.code_of_byte[' '] == 0x120 && kAlphabet.byte_of_shifted[kShiftedCount - 1] == 0xAD);

}  // namespace

void append_printable_bytes(std::string& out, std::string_view bytes) {
  for (const char c : bytes) {
    const std::uint32_t code = kAlphabet.code_of_byte[static_cast<unsigned char>(c)];
    if (code < 0x80) {
      out += static_cast<char>(code);
    } else {
      out += static_cast<char>(0xC0 | code >> 6);
      out += static_cast<char>(0x80 | (code & 0x3F));
    }
  }
}

std::string bytes_of_printable(std::string_view text) {
  std::string storage, out;
  text = repair_utf8(text, storage);
  for (std::size_t at = 0; at < text.size();) {
    const Char c = decode(text, at);
    if (c.code < 0x100 && is_printable(c.code)) {
      out += static_cast<char>(c.code);
    } else if (c.code >= kShifted && c.code < kShifted + kShiftedCount) {
      out += static_cast<char>(kAlphabet.byte_of_shifted.at(c.code - kShifted));
    } else {
      out += text.substr(at, c.bytes);
    }
    at += c.bytes;
  }
  return out;
}

}  // namespace forge::text

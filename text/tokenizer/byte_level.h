#pragma once
// GPT-2's alphabet for bytes, in which byte-level vocabularies spell their tokens: every byte becomes one printable
// character. 0x21-0x7E, 0xA1-0xAC and 0xAE-0xFF stand for themselves as code points; the other 68 bytes become U+0100,
// U+0101, ... in order, so a space (0x20) is U+0120 "Ġ" and a line feed (0x0A) is U+010A "Ċ". Source: "Language Models
// are Unsupervised Multitask Learners", encoder.py.

#include <array>
#include <cstdint>
#include <string>
#include <string_view>

namespace forge::text {

/// Appends `bytes` in that alphabet to `out`: one character a byte, each one or two bytes of UTF-8.
void append_printable_bytes(std::string& out, std::string_view bytes);
/// The reverse: the bytes that `text` spells. Characters outside the alphabet are copied as they are.
std::string bytes_of_printable(std::string_view text);

}  // namespace forge::text

#pragma once
// GPT-2's printable alphabet for bytes: 0x21-0x7E, 0xA1-0xAC and 0xAE-0xFF stand for themselves as code points, the
// other 68 are U+0100 onwards in order (source: "Language Models are Unsupervised Multitask Learners", encoder.py).

#include <array>
#include <cstdint>
#include <string>
#include <string_view>

namespace forge::text {

/// Appends `bytes`, one character a byte (one or two bytes of UTF-8 each).
void append_printable_bytes(std::string& out, std::string_view bytes);
/// The bytes that such text stands for. Characters outside the alphabet stand for themselves.
std::string bytes_of_printable(std::string_view text);

}  // namespace forge::text

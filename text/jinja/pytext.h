#pragma once
// Text as Python's str has it, on UTF-8: code points, str(), repr(), and searching in linear time.

#include <optional>
#include <string>
#include <string_view>

#include "text/jinja/value.h"

namespace forge::text::jinja {

/// Bytes of the code point that starts with `lead`, for valid UTF-8.
[[nodiscard]] inline std::size_t utf8_size(char lead) {
  const auto byte = static_cast<unsigned char>(lead);
  return byte < 0x80 ? 1 : byte < 0xe0 ? 2 : byte < 0xf0 ? 3 : 4;
}
/// Code points in `text`; empty unless it is valid UTF-8 (RFC 3629: no surrogates, shortest forms only).
[[nodiscard]] std::optional<std::size_t> utf8_length(std::string_view text);
/// Takes the first code point off valid, non-empty UTF-8.
char32_t take_utf8(std::string_view& text);
void append_utf8(std::string& out, char32_t code);
[[nodiscard]] std::u32string decode(std::string_view text);
[[nodiscard]] std::string encode(std::u32string_view codes);
/// Byte offset of code point `index` (at most the size).
[[nodiscard]] std::size_t byte_offset(const String& string, std::size_t index);
/// Code points [begin, end) of the string.
[[nodiscard]] std::string substring(const String& string, std::size_t begin, std::size_t end);

/// First occurrence at or after byte `from`, npos if none; linear time whatever the texts.
[[nodiscard]] std::size_t find_text(std::string_view text, std::string_view part, std::size_t from = 0);
/// Python's str.replace; `count` < 0 means all.
[[nodiscard]] std::string replace_text(std::string_view text, std::string_view old, std::string_view fresh,
                                       std::int64_t count, Budget& budget);
/// Strips white space, or the code points of `set`, from the ends asked for.
[[nodiscard]] std::string_view strip(std::string_view text, const std::string* set, bool left, bool right);
/// Python's str.splitlines(), every line end that Unicode knows.
[[nodiscard]] std::vector<std::string> split_lines(std::string_view text, bool keep_ends);
[[nodiscard]] std::string escape_html(std::string_view text);

/// Python's repr of a float: the shortest digits that read back.
[[nodiscard]] std::string float_repr(double value);
/// str(value), charged and bounded by the budget.
[[nodiscard]] std::string to_str(const Value& value, Budget& budget);
/// repr(value), charged and bounded by the budget.
[[nodiscard]] std::string to_repr(const Value& value, Budget& budget);
[[nodiscard]] std::string text_repr(std::string_view text);

}  // namespace forge::text::jinja

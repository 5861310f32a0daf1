#pragma once
// Strings as Python's str sees them, on UTF-8: code points, str() and repr(), and searching. All input must be valid
// UTF-8 unless a function says otherwise.

#include <optional>
#include <string>
#include <string_view>

#include "text/jinja/value.h"

namespace forge::text::jinja {

/// The number of bytes of the code point that starts with `lead`.
[[nodiscard]] inline std::size_t utf8_size(char lead) {
  const auto byte = static_cast<unsigned char>(lead);
  return byte < 0x80 ? 1 : byte < 0xe0 ? 2 : byte < 0xf0 ? 3 : 4;
}
/// The number of code points in `text`, which may be anything; empty unless it is valid UTF-8 (RFC 3629).
[[nodiscard]] std::optional<std::size_t> utf8_length(std::string_view text);
/// Removes and returns the first code point; `text` must not be empty.
char32_t take_utf8(std::string_view& text);
/// Conversion between UTF-8 and code points.
void append_utf8(std::string& out, char32_t code);
[[nodiscard]] std::u32string decode(std::string_view text);
[[nodiscard]] std::string encode(std::u32string_view codes);
/// The byte offset of code point `index`; the size if there are fewer. O(1) for ASCII strings, O(index) for others.
[[nodiscard]] std::size_t byte_offset(const String& string, std::size_t index);
/// The code points [begin, end) of the string.
[[nodiscard]] std::string substring(const String& string, std::size_t begin, std::size_t end);

/// The first occurrence of `part` at or after byte `from`; npos if there is none. Linear time for all inputs (glibc's
/// memmem), which std::string_view::find is not.
[[nodiscard]] std::size_t find_text(std::string_view text, std::string_view part, std::size_t from = 0);
/// Python's str.replace: replaces the first `count` occurrences of `old`; count < 0 means all.
[[nodiscard]] std::string replace_text(std::string_view text, std::string_view old, std::string_view replacement,
                                       std::int64_t count, Budget& budget);
/// Removes white space, or the code points of `set` if it is not null, from the chosen ends.
[[nodiscard]] std::string_view strip(std::string_view text, const std::string* set, bool left, bool right);
/// Python's str.splitlines(): splits at every line boundary that Unicode defines, CRLF counting as one.
[[nodiscard]] std::vector<std::string> split_lines(std::string_view text, bool keep_ends);
/// markupsafe's escape: & < > ' " become entities.
[[nodiscard]] std::string escape_html(std::string_view text);

/// Python's repr of a float: the shortest digits that read back, with ".0" or an exponent.
[[nodiscard]] std::string float_repr(double value);
/// str(value); charges the budget, which also bounds the length.
[[nodiscard]] std::string to_str(const Value& value, Budget& budget);
/// repr(value); charges the budget, which also bounds the length.
[[nodiscard]] std::string to_repr(const Value& value, Budget& budget);
/// repr of a string: quoted, with escapes as Python writes them.
[[nodiscard]] std::string text_repr(std::string_view text);

}  // namespace forge::text::jinja

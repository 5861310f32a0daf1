#include "support/json_text.h"

#include <cmath>

#include "support/error.h"

namespace forge {
namespace {

/// Bytes of the well-formed UTF-8 character at the start of `text`, 0 when there is none.
std::size_t utf8_length(std::string_view text) {
  const auto byte = [&](std::size_t i) { return static_cast<unsigned char>(text[i]); };
  const unsigned lead = byte(0);
  if (lead < 0x80) return 1;
  const std::size_t n = lead >= 0xF0 && lead < 0xF5   ? 4
                        : lead >= 0xE0 && lead < 0xF0 ? 3
                        : lead >= 0xC2 && lead < 0xE0 ? 2
                                                      : 0;
  if (n == 0 || n > text.size()) return 0;
  for (std::size_t i = 1; i < n; ++i)
    if ((byte(i) & 0xC0U) != 0x80U) return 0;
  const unsigned second = byte(1);
  const bool overlong = (lead == 0xE0 && second < 0xA0) || (lead == 0xF0 && second < 0x90);
  const bool beyond = (lead == 0xED && second > 0x9F) || (lead == 0xF4 && second > 0x8F);
  return overlong || beyond ? 0 : n;
}

}  // namespace

std::string json_string(std::string_view text) {
  std::string out = "\"";
  while (!text.empty()) {
    const std::size_t n = utf8_length(text);
    const auto c = static_cast<unsigned char>(text[0]);
    if (n == 0) {
      out += "\xEF\xBF\xBD";
    } else if (c == '"' || c == '\\') {
      out += '\\';
      out += text[0];
    } else if (c == '\n') {
      out += "\\n";
    } else if (c == '\t') {
      out += "\\t";
    } else if (c < 0x20 || c == 0x7F) {
      out += fmt::format("\\u{:04x}", c);
    } else {
      out += text.substr(0, n);
    }
    text.remove_prefix(n == 0 ? 1 : n);
  }
  return out + '"';
}

bool is_utf8(std::string_view text) {
  while (!text.empty()) {
    const std::size_t n = utf8_length(text);
    if (n == 0) return false;
    text.remove_prefix(n);
  }
  return true;
}

std::string json_number(double value) {
  return std::isfinite(value) ? fmt::format("{}", value) : "null";
}

void JsonWriter::begin_line() {
  if (!first_) text_ += ',';
  if (!open_.empty() && !compact_) text_ += '\n' + std::string(2 * open_.size(), ' ');
  first_ = false;
}

JsonWriter& JsonWriter::open(char bracket) {
  begin_line();
  text_ += bracket;
  open_ += bracket == '{' ? '}' : ']';
  first_ = true;
  return *this;
}

JsonWriter& JsonWriter::open(std::string_view key, char bracket) {
  begin_line();
  text_ += json_string(key) + (compact_ ? ":" : ": ") + bracket;
  open_ += bracket == '{' ? '}' : ']';
  first_ = true;
  return *this;
}

JsonWriter& JsonWriter::close() {
  invariant(!open_.empty(), "JSON-001", "more brackets are closed than opened");
  const char bracket = open_.back();
  open_.pop_back();
  if (!first_ && !compact_) text_ += '\n' + std::string(2 * open_.size(), ' ');
  text_ += bracket;
  first_ = false;
  return *this;
}

JsonWriter& JsonWriter::member(std::string_view key, std::string_view value) {
  begin_line();
  text_ += json_string(key);
  text_ += compact_ ? ":" : ": ";
  text_ += value;
  return *this;
}

JsonWriter& JsonWriter::element(std::string_view value) {
  begin_line();
  text_ += value;
  return *this;
}

std::string JsonWriter::take() {
  invariant(open_.empty(), "JSON-002", "a bracket is not closed");
  if (!compact_) text_ += '\n';
  return std::move(text_);
}

}  // namespace forge

#include "support/json_text.h"

#include <cmath>

#include "support/error.h"
#include "support/utf8.h"

namespace forge {
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

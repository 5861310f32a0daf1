#include "text/answer/literal_reader.h"

#include <fmt/format.h>

#include <charconv>
#include <utility>

#include "support/json_text.h"
#include "text/answer/white_space.h"
#include "text/tokenizer/unicode.h"

namespace forge::text {
namespace {

constexpr std::size_t kWordMax = 512;

bool is_word(char c) {
  return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_' || c == '-' ||
         c == '+' || c == '.' || static_cast<unsigned char>(c) >= 0x80;
}

/// The JSON text of a bare word; empty if it is none.
std::string json_of_word(const std::string& word) {
  if (word == "True" || word == "true") return "true";
  if (word == "False" || word == "false") return "false";
  if (word == "None" || word == "null") return "null";
  return is_json(word) ? word : "";
}

/// `code` inside a JSON string: what might need an escape gets one.
void append_code(std::string& out, std::uint32_t code) {
  if (code < 0x10000)
    out += fmt::format("\\u{:04x}", code);
  else
    append_utf8(out, code);
}

}  // namespace

void LiteralReader::separate(std::string& out) {
  if (std::exchange(comma_, false)) out += ", ";
}

bool LiteralReader::begins_string(char c) const {
  return c == '"' || c == '\'' || (!quote_.empty() && c == quote_[0]);
}

Scan LiteralReader::begin_string(char c, std::string& out) {
  if (c != '"' && c != '\'') {
    matched_ = 1;
    state_ = State::kQuote;
    return Scan::kMore;
  }
  out += '"';
  marked_ = false;
  string_end_ = c;
  state_ = State::kString;
  return Scan::kMore;
}

Scan LiteralReader::begin_value(char c, std::string& out) {
  in_key_ = false;
  separate(out);
  if (begins_string(c)) return begin_string(c, out);
  if (c == '{' || c == '[' || c == '(') {
    if (open_.size() == kDepthMax) return Scan::kBad;
    const bool object = c == '{' || (c == '(' && open_.empty());
    open_.push_back(object && c == '(' ? 'f' : c);
    out += object ? '{' : '[';
    state_ = object ? State::kKeyOrEnd : State::kValueOrEnd;
    return Scan::kMore;
  }
  if (!is_word(c)) return Scan::kBad;
  word_ = c;
  state_ = State::kWord;
  return Scan::kMore;
}

Scan LiteralReader::end_string(std::string& out) {
  out += '"';
  state_ = in_key_ ? State::kColon : State::kNext;
  return !in_key_ && open_.empty() ? Scan::kDone : Scan::kMore;
}

Scan LiteralReader::end_word(std::string& out) {
  const std::string json = json_of_word(word_);
  if (json.empty()) return Scan::kBad;
  out += json;
  state_ = State::kNext;
  return open_.empty() ? Scan::kDoneBefore : Scan::kMore;
}

Scan LiteralReader::close(std::string& out) {
  comma_ = false;  // Python allows one before the end
  out += open_.back() == '{' || open_.back() == 'f' ? '}' : ']';
  open_.pop_back();
  state_ = State::kNext;
  return open_.empty() ? Scan::kDone : Scan::kMore;
}

Scan LiteralReader::text(char c, std::string& out) {
  if (marked_) {
    if (c == quote_[matched_]) {
      if (++matched_ < quote_.size()) return Scan::kMore;
      matched_ = 0;
      return end_string(out);
    }
    if (matched_ > 0) {
      append_json_escaped(out, std::string_view(quote_).substr(0, matched_));
      matched_ = 0;
      return text(c, out);
    }
  } else if (c == string_end_) {
    return end_string(out);
  } else if (c == '\\') {
    state_ = State::kEscape;
    return Scan::kMore;
  }
  append_json_escaped(out, {&c, 1});
  return Scan::kMore;
}

// The escapes of Python's strings; an unknown one stands for itself (source: the Python language reference, 2.4.1).
Scan LiteralReader::escape(char c, std::string& out) {
  state_ = State::kString;
  switch (c) {
    case 'n':
      out += "\\n";
      break;
    case 't':
      out += "\\t";
      break;
    case 'r':
      out += "\\r";
      break;
    case 'b':
      out += "\\b";
      break;
    case 'f':
      out += "\\f";
      break;
    case 'a':
      out += "\\u0007";
      break;
    case 'v':
      out += "\\u000b";
      break;
    case '0':
      out += "\\u0000";
      break;
    case '\n':
      break;
    case '\'':
    case '"':
    case '\\':
      append_json_escaped(out, {&c, 1});
      break;
    case '/':
      out += '/';
      break;
    case 'x':
    case 'u':
    case 'U':
      code_digits_ = c == 'x' ? 2 : c == 'u' ? 4 : 8;
      word_.clear();
      state_ = State::kCode;
      break;
    default:
      out += "\\\\";
      append_json_escaped(out, {&c, 1});
  }
  return Scan::kMore;
}

Scan LiteralReader::code(char c, std::string& out) {
  word_ += c;
  std::uint32_t code = 0;
  const char* const end = word_.data() + word_.size();
  if (std::from_chars(word_.data(), end, code, 16).ptr != end) return Scan::kBad;
  if (static_cast<int>(word_.size()) < code_digits_) return Scan::kMore;
  if (code > 0x10ffff) return Scan::kBad;
  append_code(out, code);
  state_ = State::kString;
  return Scan::kMore;
}

Scan LiteralReader::put(char c, std::string& out) {
  switch (state_) {
    case State::kString:
      return text(c, out);
    case State::kEscape:
      return escape(c, out);
    case State::kCode:
      return code(c, out);
    case State::kQuote:
      if (c != quote_[matched_]) return Scan::kBad;
      if (++matched_ == quote_.size()) {
        matched_ = 0;
        out += '"';
        marked_ = true;
        state_ = State::kString;
      }
      return Scan::kMore;
    case State::kWord:
    case State::kBareKey:
      if (is_word(c)) {
        if (word_.size() == kWordMax) return Scan::kBad;
        word_ += c;
        return Scan::kMore;
      }
      if (state_ == State::kWord) {
        const Scan scan = end_word(out);
        return scan == Scan::kMore ? put(c, out) : scan;
      }
      out += json_string(word_);
      state_ = State::kColon;
      break;
    default:
      break;
  }
  if (is_space(c)) return Scan::kMore;
  const char open = open_.empty() ? '\0' : open_.back();
  const bool closes =
      (c == '}' && open == '{') || (c == ']' && open == '[') || (c == ')' && (open == '(' || open == 'f'));
  switch (state_) {
    case State::kKeyOrEnd:
    case State::kKey:
      if (closes) return close(out);
      in_key_ = true;
      separate(out);
      if (begins_string(c)) return begin_string(c, out);
      if (!is_word(c)) return Scan::kBad;
      word_ = c;
      state_ = State::kBareKey;
      return Scan::kMore;
    case State::kColon:
      if (c != (open == 'f' ? '=' : ':')) return Scan::kBad;
      out += ": ";
      state_ = State::kValue;
      return Scan::kMore;
    case State::kNext:
      if (closes) return close(out);
      if (c != ',' || open == '\0') return Scan::kBad;
      comma_ = true;
      state_ = open == '{' || open == 'f' ? State::kKey : State::kValueOrEnd;
      return Scan::kMore;
    case State::kValueOrEnd:
      if (closes) return close(out);
      [[fallthrough]];
    default:
      return begin_value(c, out);
  }
}

std::string json_of_literal(std::string_view text) {
  LiteralReader reader{{}};
  std::string out;
  text = trimmed(text);
  if (text.empty()) return {};
  for (std::size_t i = 0; i < text.size(); ++i) {
    const Scan scan = reader.put(text[i], out);
    if (scan == Scan::kDone && i + 1 == text.size()) return is_json(out) ? out : "";
    if (scan != Scan::kMore) return {};
  }
  return reader.at_top() && reader.put(' ', out) == Scan::kDoneBefore && is_json(out) ? out : "";
}

}  // namespace forge::text

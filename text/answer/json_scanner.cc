#include "text/answer/json_scanner.h"
#include "text/answer/white_space.h"

#include <fmt/format.h>

namespace forge::text {
namespace {

bool is_digit(char c) {
  return c >= '0' && c <= '9';
}
bool is_hex(char c) {
  return is_digit(c) || (c >= 'a' && c <= 'f') || (c >= 'A' && c <= 'F');
}

}  // namespace

Scan JsonScanner::ended() {
  state_ = State::kNext;
  return open_.empty() ? Scan::kDone : Scan::kMore;
}

Scan JsonScanner::begin_value(char c) {
  switch (c) {
    case '{':
    case '[':
      if (open_.size() == kDepthMax) return Scan::kBad;
      open_.push_back(c);
      state_ = c == '{' ? State::kKeyOrEnd : State::kValueOrEnd;
      return Scan::kMore;
    case '"':
      in_key_ = false;
      state_ = State::kString;
      return Scan::kMore;
    case 't':
      word_ = "rue";
      break;
    case 'f':
      word_ = "alse";
      break;
    case 'n':
      word_ = "ull";
      break;
    default:
      if (c != '-' && !is_digit(c)) return Scan::kBad;
      part_ = c == '-' ? Part::kMinus : c == '0' ? Part::kZero : Part::kInt;
      state_ = State::kNumber;
      return Scan::kMore;
  }
  state_ = State::kWord;
  return Scan::kMore;
}

Scan JsonScanner::number(char c) {
  const bool digit = is_digit(c);
  const bool exponent = c == 'e' || c == 'E';
  const auto go = [&](Part part) {
    part_ = part;
    return Scan::kMore;
  };
  switch (part_) {
    case Part::kMinus:
      if (digit) return go(c == '0' ? Part::kZero : Part::kInt);
      return Scan::kBad;
    case Part::kZero:
    case Part::kInt:
      if (digit && part_ == Part::kInt) return Scan::kMore;
      if (c == '.') return go(Part::kPoint);
      if (exponent) return go(Part::kE);
      break;
    case Part::kPoint:
      return digit ? go(Part::kFraction) : Scan::kBad;
    case Part::kFraction:
      if (digit) return Scan::kMore;
      if (exponent) return go(Part::kE);
      break;
    case Part::kE:
      if (c == '+' || c == '-') return go(Part::kESign);
      [[fallthrough]];
    case Part::kESign:
      return digit ? go(Part::kExponent) : Scan::kBad;
    case Part::kExponent:
      if (digit) return Scan::kMore;
      break;
  }
  if (open_.empty()) return Scan::kDoneBefore;
  state_ = State::kNext;
  return put(c);
}

Scan JsonScanner::put(char c) {
  switch (state_) {
    case State::kString:
      if (c == '"') {
        if (!in_key_) return ended();
        state_ = State::kColon;
      } else if (c == '\\') {
        state_ = State::kEscape;
      } else if (static_cast<unsigned char>(c) < 0x20) {
        return Scan::kBad;
      }
      return Scan::kMore;
    case State::kEscape:
      if (std::string_view("\"\\/bfnrtu").find(c) == std::string_view::npos) return Scan::kBad;
      hex_left_ = 4;
      state_ = c == 'u' ? State::kHex : State::kString;
      return Scan::kMore;
    case State::kHex:
      if (!is_hex(c)) return Scan::kBad;
      if (--hex_left_ == 0) state_ = State::kString;
      return Scan::kMore;
    case State::kWord:
      if (c != word_.front()) return Scan::kBad;
      word_.remove_prefix(1);
      return word_.empty() ? ended() : Scan::kMore;
    case State::kNumber:
      return number(c);
    default:
      break;
  }
  if (is_space(c)) return Scan::kMore;
  const char open = open_.empty() ? '\0' : open_.back();
  const bool closes = (c == '}' && open == '{') || (c == ']' && open == '[');
  switch (state_) {
    case State::kKeyOrEnd:
    case State::kValueOrEnd:
    case State::kNext:
      if (closes) {
        open_.pop_back();
        return ended();
      }
      if (state_ == State::kValueOrEnd) return begin_value(c);
      if (state_ == State::kNext) {
        if (c != ',' || open_.empty()) return Scan::kBad;
        state_ = open == '{' ? State::kKey : State::kValue;
        return Scan::kMore;
      }
      [[fallthrough]];
    case State::kKey:
      if (c != '"') return Scan::kBad;
      in_key_ = true;
      state_ = State::kString;
      return Scan::kMore;
    case State::kColon:
      if (c != ':') return Scan::kBad;
      state_ = State::kValue;
      return Scan::kMore;
    default:
      return begin_value(c);
  }
}

bool is_json(std::string_view text) {
  JsonScanner scanner;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const Scan scan = scanner.put(text[i]);
    if (scan == Scan::kBad) return false;
    if (scan == Scan::kMore) continue;
    const std::size_t rest = scan == Scan::kDone ? i + 1 : i;
    return text.find_first_not_of(kWhiteSpace, rest) == std::string_view::npos;
  }
  return scanner.put('\n') == Scan::kDoneBefore;  // a number ends only with the text
}

void append_json_escaped(std::string& out, std::string_view text) {
  for (const char c : text) {
    switch (c) {
      case '"':
        out += "\\\"";
        break;
      case '\\':
        out += "\\\\";
        break;
      case '\n':
        out += "\\n";
        break;
      case '\t':
        out += "\\t";
        break;
      case '\r':
        out += "\\r";
        break;
      default:
        if (static_cast<unsigned char>(c) < 0x20)
          out += fmt::format("\\u{:04x}", static_cast<unsigned char>(c));
        else
          out += c;
    }
  }
}

}  // namespace forge::text

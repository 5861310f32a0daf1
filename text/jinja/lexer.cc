// The lexer. It works in two modes: text() reads literal text up to the next opening delimiter, tag() reads the tokens
// of a tag up to its closing delimiter.
//
// White-space control, where "·" is a space:
//    trim_blocks     the first newline after "%}" or "#}" is dropped:     {% if x %}\ntext      -> text
//    lstrip_blocks   spaces before "{%" or "{#" are dropped if they       ··{% if x %}          -> (nothing)
//                    begin the line
//    "-"             {%- drops all white space before the tag, -%} after it; "+" switches both rules off
#include "text/jinja/lexer.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>

#include "support/error.h"
#include "text/jinja/pytext.h"
#include "text/jinja/unicode.h"

namespace forge::text::jinja {
namespace {

constexpr auto npos = std::string_view::npos;

bool digit(char c) {
  return c >= '0' && c <= '9';
}

class Lexer {
 public:
  explicit Lexer(std::string_view source) : source_(source) {}

  std::vector<Token> run() {
    while (at_ < source_.size()) text();
    add(Tok::kEnd, source_.size());
    return std::move(tokens_);
  }

 private:
  [[noreturn]] void fail(std::size_t pos, std::string message) const {
    throw SyntaxError{static_cast<std::uint32_t>(pos), std::move(message)};
  }
  // The byte `ahead` of the current position; NUL at the end.
  [[nodiscard]] char peek(std::size_t ahead = 0) const {
    return at_ + ahead < source_.size() ? source_[at_ + ahead] : '\0';
  }
  // True if the source has `text` at `from`.
  [[nodiscard]] bool matches(std::string_view text, std::size_t from) const {
    return source_.substr(std::min(from, source_.size())).starts_with(text);
  }
  void add(Tok type, std::size_t pos, std::string text = {}) {
    tokens_.push_back({type, static_cast<std::uint32_t>(pos), std::move(text)});
  }

  // The position of the first character at or after `from` that is not white space.
  [[nodiscard]] std::size_t after_spaces(std::size_t from) const {
    std::string_view rest = source_.substr(from);
    while (!rest.empty()) {
      std::string_view next = rest;
      if (!is_space(take_utf8(next))) break;
      rest = next;
    }
    return source_.size() - rest.size();
  }

  /// The end of the tag whose closing delimiter ("-%}", "+%}" or "%}") starts at `from`, including the white space that
  /// it removes; npos if none starts there. Variables ({{ }}) have no '+' and do not remove the newline.
  [[nodiscard]] std::size_t closing(std::size_t from, std::string_view delimiter, bool variable) const {
    if (matches("-", from) && matches(delimiter, from + 1)) return after_spaces(from + 1 + delimiter.size());
    if (!variable && matches("+", from) && matches(delimiter, from + 1)) return from + 1 + delimiter.size();
    if (!matches(delimiter, from)) return npos;
    const std::size_t end = from + delimiter.size();
    return !variable && matches("\n", end) ? end + 1 : end;
  }

  /// Adds source_[begin, end) as literal text. The tag that follows decides with its `sign` what white space is dropped
  /// at the end of the text.
  void add_text(std::size_t begin, std::size_t end, char sign, bool variable) {
    std::string_view text = source_.substr(begin, end - begin);
    if (sign == '-') {
      text = strip(text, nullptr, false, true);
    } else if (sign != '+' && !variable) {
      const std::size_t line = text.rfind('\n') + 1;  // npos + 1 is 0
      if ((line > 0 || line_starting_) && strip(text.substr(line), nullptr, true, false).empty())
        text = text.substr(0, line);
    }
    if (!text.empty()) add(Tok::kText, begin, std::string(text));
  }

  // Continues after a tag. line_starting_ tells add_text() whether the next text begins a line.
  void finish_tag(std::size_t end) {
    at_ = end;
    line_starting_ = end > 0 && source_[end - 1] == '\n';
  }

  /// The sign ('-', '+' or none) after an opening delimiter at `open`.
  [[nodiscard]] char sign_at(std::size_t open) const {
    const char sign = open + 2 < source_.size() ? source_[open + 2] : '\0';
    return sign == '-' || sign == '+' ? sign : '\0';
  }

  // Literal text up to the next tag or comment.
  void text() {
    const std::size_t begin = at_;
    std::size_t open = at_;
    for (;; ++open) {
      open = source_.find('{', open);
      if (open == npos || open + 1 >= source_.size()) {
        add(Tok::kText, begin, std::string(source_.substr(begin)));
        at_ = source_.size();
        return;
      }
      const char kind = source_[open + 1];
      if (kind == '{' || kind == '%' || kind == '#') break;
    }
    const char sign = sign_at(open);
    const bool variable = source_[open + 1] == '{';
    add_text(begin, open, sign, variable);
    at_ = open + 2 + (sign != '\0' ? 1 : 0);
    if (source_[open + 1] == '#') return comment(open);
    if (!variable && raw(open)) return;
    line_starting_ = false;
    add(variable ? Tok::kVariableBegin : Tok::kBlockBegin, open);
    tag(open, variable);
  }

  // Skips a comment and the white space that it removes.
  void comment(std::size_t open) {
    const std::size_t close = source_.find("#}", at_);
    if (close == npos) fail(open, "this comment is never closed");
    const char before = close > at_ ? source_[close - 1] : '\0';
    if (before == '-') return finish_tag(after_spaces(close + 2));
    finish_tag(before != '+' && matches("\n", close + 2) ? close + 3 : close + 2);
  }

  /// Reads a whole {% raw %} block if one starts at at_; returns false if not.
  bool raw(std::size_t open) {
    std::size_t from = after_spaces(at_);
    if (!matches("raw", from)) return false;
    from = after_spaces(from + 3);
    std::size_t body;
    if (matches("-%}", from))
      body = after_spaces(from + 3);
    else if (matches("%}", from))
      body = from + 2;
    else
      return false;
    line_starting_ = body > 0 && source_[body - 1] == '\n';
    for (std::size_t tag = source_.find("{%", body); tag != npos; tag = source_.find("{%", tag + 1)) {
      const char sign = sign_at(tag);
      std::size_t name = after_spaces(tag + 2 + (sign != '\0' ? 1 : 0));
      if (!matches("endraw", name)) continue;
      const std::size_t end = closing(after_spaces(name + 6), "%}", false);
      if (end == npos) continue;
      add_text(body, tag, sign, false);
      finish_tag(end);
      return true;
    }
    fail(open, "this raw block is never closed");
  }

  // The tokens of one tag. A closing delimiter counts only outside brackets: {{ {'a': {}} }} ends at the last one.
  void tag(std::size_t open, bool variable) {
    std::string brackets;  // closing brackets that are still expected, the innermost last
    const std::string_view delimiter = variable ? "}}" : "%}";
    while (true) {
      at_ = after_spaces(at_);
      if (at_ >= source_.size()) fail(open, "this tag is never closed");
      if (brackets.empty()) {
        const std::size_t end = closing(at_, delimiter, variable);
        if (end != npos) {
          add(variable ? Tok::kVariableEnd : Tok::kBlockEnd, at_);
          return finish_tag(end);
        }
      }
      const char c = peek();
      if (digit(c))
        number();
      else if (c == '\'' || c == '"')
        string();
      else if (!name())
        operator_(brackets);
    }
  }

  // A name as Python defines identifiers. Returns false if none starts here.
  bool name() {
    std::string_view rest = source_.substr(at_);
    const std::size_t begin = at_;
    bool first = true;
    while (!rest.empty()) {
      std::string_view next = rest;
      const char32_t code = take_utf8(next);
      if (!is_class(code, first ? CharClass::kIdentStart : CharClass::kIdentPart)) break;
      first = false;
      rest = next;
    }
    at_ = source_.size() - rest.size();
    if (at_ == begin) return false;
    add(Tok::kName, begin, std::string(source_.substr(begin, at_ - begin)));
    return true;
  }

  // Longer operators come first in the list, so that "**" is not read as two "*".
  void operator_(std::string& brackets) {
    static constexpr std::array<std::string_view, 26> kOperators = {"//", "**", "==", "!=", ">=", "<=", "+", "-", "/",
                                                                    "*",  "%",  "~",  "[",  "]",  "(",  ")", "{", "}",
                                                                    ">",  "<",  "=",  ".",  ":",  "|",  ",", ";"};
    for (const std::string_view text : kOperators) {
      if (!matches(text, at_)) continue;
      if (text == "(") brackets += ')';
      if (text == "[") brackets += ']';
      if (text == "{") brackets += '}';
      if (text == ")" || text == "]" || text == "}") {
        if (brackets.empty()) fail(at_, fmt::format("unexpected '{}'", text));
        if (brackets.back() != text.front())
          fail(at_, fmt::format("unexpected '{}', expected '{}'", text, brackets.back()));
        brackets.pop_back();
      }
      add(Tok::kOperator, at_, std::string(text));
      at_ += text.size();
      return;
    }
    std::string_view rest = source_.substr(at_);
    const std::size_t size = utf8_size(rest.front());
    fail(at_, fmt::format("unexpected character '{}'", printable(rest.substr(0, size))));
  }

  /// The end of the digits at `at`; single underscores may stand between digits.
  [[nodiscard]] std::size_t digits(std::size_t at) const {
    while (at < source_.size() && (digit(source_[at]) || (source_[at] == '_' && at + 1 < source_.size() &&
                                                          digit(source_[at - 1]) && digit(source_[at + 1]))))
      ++at;
    return at;
  }

  // A decimal integer or float. After a '.', digits are an index ("a.0.1"), never a float.
  void number() {
    const std::size_t begin = at_;
    const char mark = static_cast<char>(peek(1) | 0x20);
    if (peek() == '0' && (mark == 'x' || mark == 'o' || mark == 'b')) return radix_integer(begin, mark);
    std::size_t end = digits(at_);
    bool real = false;
    const bool after_dot = begin > 0 && source_[begin - 1] == '.';
    const auto is_digit = [&](std::size_t at) { return at < source_.size() && digit(source_[at]); };
    if (!after_dot) {
      if (matches(".", end) && is_digit(end + 1)) {
        end = digits(end + 1);
        real = true;
      }
      if (matches("e", end) || matches("E", end)) {
        const std::size_t sign = matches("+", end + 1) || matches("-", end + 1) ? 1 : 0;
        if (is_digit(end + 1 + sign)) {
          end = digits(end + 1 + sign);
          real = true;
        }
      }
    }
    std::string text(source_.substr(begin, end - begin));
    std::erase(text, '_');
    at_ = end;
    if (real) return add_real(begin, text);
    if (text.size() > 1 && text[0] == '0' && text.find_first_not_of('0') != std::string::npos)
      fail(begin, fmt::format("an integer cannot start with 0: {}", printable(text)));
    add_integer(begin, text, 10);
  }

  void add_real(std::size_t begin, const std::string& text) {
    add(Tok::kFloat, begin, text);
    const auto result = std::from_chars(text.data(), text.data() + text.size(), tokens_.back().real);
    if (result.ec != std::errc()) fail(begin, fmt::format("the number {} is out of range", printable(text)));
  }

  void add_integer(std::size_t begin, const std::string& text, int base) {
    add(Tok::kInteger, begin, text);
    const auto result = std::from_chars(text.data(), text.data() + text.size(), tokens_.back().integer, base);
    if (result.ec != std::errc() || result.ptr != text.data() + text.size())
      fail(begin, fmt::format("the integer {} is malformed or does not fit 64 bits", printable(text)));
  }

  // 0x1F, 0o17 and 0b11, underscores allowed.
  void radix_integer(std::size_t begin, char mark) {
    at_ += 2;
    std::string text;
    while (is_name_char(peek())) {
      if (peek() != '_') text += peek();
      ++at_;
    }
    add_integer(begin, text, mark == 'x' ? 16 : mark == 'o' ? 8 : 2);
  }

  static bool is_name_char(char c) { return digit(c) || c == '_' || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); }

  // A string literal in single or double quotes; it may span lines.
  void string() {
    const std::size_t begin = at_;
    const char quote = source_[at_++];
    std::string out;
    while (true) {
      if (at_ >= source_.size()) fail(begin, "this string is never closed");
      const char c = source_[at_++];
      if (c == quote) break;
      if (c != '\\')
        out += c;
      else
        escape(begin, out);
    }
    add(Tok::kString, begin, std::move(out));
  }

  /// Handles the escape sequence after a backslash. The escapes are Python's; an unknown one is kept as it is.
  void escape(std::size_t begin, std::string& out) {
    if (at_ >= source_.size()) fail(begin, "this string is never closed");
    static constexpr std::string_view kFrom = "ntrabfv\\'\"", kTo = "\n\t\r\a\b\f\v\\'\"";
    const char c = source_[at_++];
    if (const std::size_t simple = kFrom.find(c); simple != npos) {
      out += kTo[simple];
    } else if (c == '\n') {
      // a backslash at the end of a line joins it with the next
    } else if (c >= '0' && c <= '7') {
      char32_t code = static_cast<char32_t>(c - '0');
      for (int i = 0; i < 2 && peek() >= '0' && peek() <= '7'; ++i)
        code = code * 8 + static_cast<char32_t>(source_[at_++] - '0');
      append_utf8(out, code);
    } else if (c == 'x' || c == 'u' || c == 'U') {
      hex_escape(c == 'x' ? 2 : c == 'u' ? 4 : 8, out);
    } else if (c == 'N') {
      fail(at_ - 2, "character names in strings (\\N{...}) are not supported");
    } else {
      out += '\\';
      --at_;  // read the character again, since it may have several bytes
      const std::size_t size = utf8_size(source_[at_]);
      out += source_.substr(at_, size);
      at_ += size;
    }
  }

  // \xXX, \uXXXX and \UXXXXXXXX.
  void hex_escape(std::size_t count, std::string& out) {
    const std::string_view text = source_.substr(at_, count);
    std::uint32_t code = 0;
    const auto result = std::from_chars(text.data(), text.data() + text.size(), code, 16);
    if (text.size() < count || result.ptr != text.data() + text.size() || code > 0x10ffff ||
        (code >= 0xd800 && code <= 0xdfff))
      fail(at_ - 2, "this escape is not a Unicode character");
    append_utf8(out, code);
    at_ += count;
  }

  std::string_view source_;
  std::size_t at_ = 0;
  bool line_starting_ = true;
  std::vector<Token> tokens_;
};

}  // namespace

std::string normalise_source(std::string_view source) {
  std::string out;
  out.reserve(source.size());
  for (std::size_t i = 0; i < source.size(); ++i) {
    if (source[i] != '\r') {
      out += source[i];
    } else {
      out += '\n';
      if (i + 1 < source.size() && source[i + 1] == '\n') ++i;
    }
  }
  if (out.ends_with('\n')) out.pop_back();
  return out;
}

std::vector<Token> tokenize(std::string_view source) {
  return Lexer(source).run();
}

}  // namespace forge::text::jinja

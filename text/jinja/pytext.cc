#include "text/jinja/pytext.h"

#include <fmt/format.h>
#include <string.h>

#include <algorithm>
#include <charconv>
#include <cmath>

#include "text/jinja/unicode.h"

namespace forge::text::jinja {
namespace {

/// The number of continuation bytes that a lead byte needs, -1 if it cannot start a sequence. `low` and `high` bound
/// the first continuation byte, which excludes overlong forms and surrogates.
int lead_length(unsigned char lead, unsigned char& low, unsigned char& high) {
  low = 0x80;
  high = 0xbf;
  if (lead < 0x80) return 0;
  if (lead >= 0xc2 && lead <= 0xdf) return 1;
  if (lead >= 0xe0 && lead <= 0xef) {
    if (lead == 0xe0) low = 0xa0;
    if (lead == 0xed) high = 0x9f;
    return 2;
  }
  if (lead >= 0xf0 && lead <= 0xf4) {
    if (lead == 0xf0) low = 0x90;
    if (lead == 0xf4) high = 0x8f;
    return 3;
  }
  return -1;
}

// The line boundaries of str.splitlines().
bool line_end(char32_t code) {
  return (code >= 0x0a && code <= 0x0d) || (code >= 0x1c && code <= 0x1e) || code == 0x85 || code == 0x2028 ||
         code == 0x2029;
}

// repr() of containers recurses; the nesting of values is bounded by kNestingMax.
void write_repr(const Value& value, std::string& out, Budget& budget);

void write_items(const std::vector<Value>& items, std::string& out, Budget& budget) {
  for (std::size_t i = 0; i < items.size(); ++i) {
    if (i != 0) out += ", ";
    write_repr(items[i], out, budget);
  }
}

// repr() of each kind of list. Ranges print their bounds, views of a dict their name.
void write_list(const List& list, std::string& out, Budget& budget) {
  if (list.kind == ListKind::kRange) {
    out += fmt::format("range({}, {}", list.start, list.stop);
    out += list.step == 1 ? std::string(")") : fmt::format(", {})", list.step);
    return;
  }
  static constexpr std::string_view kOpen[] = {"[", "(", "", "dict_keys([", "dict_values([", "dict_items(["};
  static constexpr std::string_view kClose[] = {"]", ")", "", "])", "])", "])"};
  out += kOpen[static_cast<int>(list.kind)];
  write_items(list.items, out, budget);
  if (list.kind == ListKind::kTuple && list.items.size() == 1) out += ',';
  out += kClose[static_cast<int>(list.kind)];
}

// {'key': value, ...} in the order of insertion.
void write_dict(const Dict& dict, std::string& out, Budget& budget) {
  out += '{';
  bool first = true;
  for (const auto& [key, value] : dict.entries()) {
    if (!first) out += ", ";
    first = false;
    write_repr(key, out, budget);
    out += ": ";
    write_repr(value, out, budget);
  }
  out += '}';
}

/// A namespace may contain itself, so what it holds is not followed into containers or other namespaces; Python would
/// end with a RecursionError.
void write_space(const Namespace& space, std::string& out, Budget& budget) {
  out += "<Namespace {";
  bool first = true;
  for (const auto& [name, value] : space.attributes) {
    if (!first) out += ", ";
    first = false;
    out += text_repr(name) + ": ";
    if (value.nesting() > 0 || value.is(Kind::kNamespace))
      throw EvalError("a namespace that holds containers cannot be printed");
    write_repr(value, out, budget);
  }
  out += "}>";
}

void write_repr(const Value& value, std::string& out, Budget& budget) {
  const std::size_t before = out.size();
  budget.step();
  switch (value.kind()) {
    case Kind::kNone:
      out += "None";
      break;
    case Kind::kBool:
      out += value.boolean() ? "True" : "False";
      break;
    case Kind::kInt:
      out += std::to_string(value.integer());
      break;
    case Kind::kFloat:
      out += float_repr(value.real());
      break;
    case Kind::kUndefined:
      out += "Undefined";
      break;
    case Kind::kString:
      budget.read(value.text().size() * 4);
      out += value.string().markup ? "Markup(" + text_repr(value.text()) + ")" : text_repr(value.text());
      break;
    case Kind::kList:
      write_list(value.list(), out, budget);
      return;  // the elements have been charged
    case Kind::kDict:
      write_dict(value.dict(), out, budget);
      return;
    case Kind::kNamespace:
      write_space(value.space(), out, budget);
      return;
    case Kind::kIterator:
      out += fmt::format("<generator object {}>", value.iterator().name);
      break;
    case Kind::kCallable:
      out += fmt::format("<{} {}>", value.callable().macro ? "Macro" : "function", text_repr(value.callable().name));
      break;
    case Kind::kLoop:
      out += "<LoopContext>";
      break;
  }
  budget.allocate(out.size() - before);
}

}  // namespace

std::optional<std::size_t> utf8_length(std::string_view text) {
  std::size_t length = 0;
  for (std::size_t i = 0; i < text.size(); ++length) {
    unsigned char low, high;
    const int more = lead_length(static_cast<unsigned char>(text[i++]), low, high);
    if (more == 0) continue;
    if (more < 0 || text.size() - i < static_cast<std::size_t>(more)) return std::nullopt;
    for (int k = 0; k < more; ++k) {
      const auto byte = static_cast<unsigned char>(text[i++]);
      if (byte < low || byte > high) return std::nullopt;
      low = 0x80;
      high = 0xbf;
    }
  }
  return length;
}

char32_t take_utf8(std::string_view& text) {
  const std::size_t size = utf8_size(text.front());
  const auto lead = static_cast<unsigned char>(text.front());
  char32_t code = size == 1 ? lead : lead & (0x7fu >> size);
  for (std::size_t i = 1; i < size; ++i) code = (code << 6) | (static_cast<unsigned char>(text[i]) & 0x3f);
  text.remove_prefix(size);
  return code;
}

void append_utf8(std::string& out, char32_t code) {
  const auto put = [&](char32_t byte) { out += static_cast<char>(static_cast<unsigned char>(byte)); };
  if (code < 0x80) return put(code);
  if (code < 0x800) {
    put(0xc0 | (code >> 6));
  } else {
    if (code < 0x10000) {
      put(0xe0 | (code >> 12));
    } else {
      put(0xf0 | (code >> 18));
      put(0x80 | ((code >> 12) & 0x3f));
    }
    put(0x80 | ((code >> 6) & 0x3f));
  }
  put(0x80 | (code & 0x3f));
}

std::u32string decode(std::string_view text) {
  std::u32string codes;
  codes.reserve(text.size());
  while (!text.empty()) codes += take_utf8(text);
  return codes;
}

std::string encode(std::u32string_view codes) {
  std::string out;
  out.reserve(codes.size());
  for (const char32_t code : codes) append_utf8(out, code);
  return out;
}

// Strings know their length in code points; if it equals the size, the string is ASCII and needs no scan.
std::size_t byte_offset(const String& string, std::size_t index) {
  if (string.ascii()) return std::min(index, string.text.size());
  std::size_t at = 0;
  for (; index > 0 && at < string.text.size(); --index) at += utf8_size(string.text[at]);
  return at;
}

std::string substring(const String& string, std::size_t begin, std::size_t end) {
  if (begin >= end) return {};
  const std::size_t from = byte_offset(string, begin);
  if (string.ascii()) return string.text.substr(from, end - begin);
  std::size_t to = from;
  for (std::size_t i = begin; i < end && to < string.text.size(); ++i) to += utf8_size(string.text[to]);
  return string.text.substr(from, to - from);
}

std::size_t find_text(std::string_view text, std::string_view part, std::size_t from) {
  if (from > text.size()) return std::string_view::npos;
  if (part.empty()) return from;
  const void* hit = memmem(text.data() + from, text.size() - from, part.data(), part.size());
  if (hit == nullptr) return std::string_view::npos;
  return static_cast<std::size_t>(static_cast<const char*>(hit) - text.data());
}

std::string replace_text(std::string_view text, std::string_view old, std::string_view replacement, std::int64_t count,
                         Budget& budget) {
  std::string out;
  budget.read(text.size());
  std::size_t at = 0;
  while (count != 0 && at <= text.size()) {
    const std::size_t hit = find_text(text, old, at);
    if (hit == std::string_view::npos) break;
    if (old.empty()) {  // Python inserts the new text before every code point and at the end
      out += replacement;
      if (hit == text.size()) {
        budget.allocate(replacement.size());
        return out;
      }
      const std::size_t size = utf8_size(text[hit]);
      out += text.substr(hit, size);
      at = hit + size;
    } else {
      out += text.substr(at, hit - at);
      out += replacement;
      at = hit + old.size();
    }
    budget.allocate(replacement.size());
    --count;
  }
  out += text.substr(at);
  return out;
}

// From the right, continuation bytes (10xxxxxx) are skipped to find the start of the last code point.
std::string_view strip(std::string_view text, const std::string* set, bool left, bool right) {
  const std::u32string wanted = set != nullptr ? decode(*set) : std::u32string();
  const auto drop = [&](char32_t code) {
    return set == nullptr ? is_space(code) : wanted.find(code) != std::u32string::npos;
  };
  while (left && !text.empty()) {
    std::string_view rest = text;
    if (!drop(take_utf8(rest))) break;
    text = rest;
  }
  while (right && !text.empty()) {
    std::size_t start = text.size() - 1;
    while ((static_cast<unsigned char>(text[start]) & 0xc0) == 0x80) --start;
    std::string_view last = text.substr(start);
    if (!drop(take_utf8(last))) break;
    text = text.substr(0, start);
  }
  return text;
}

std::vector<std::string> split_lines(std::string_view text, bool keep_ends) {
  std::vector<std::string> lines;
  std::size_t start = 0, at = 0;
  while (at < text.size()) {
    std::string_view rest = text.substr(at);
    const char32_t code = take_utf8(rest);
    std::size_t next = text.size() - rest.size();
    if (line_end(code)) {
      if (code == '\r' && !rest.empty() && rest.front() == '\n') ++next;
      lines.emplace_back(text.substr(start, (keep_ends ? next : at) - start));
      start = next;
    }
    at = next;
  }
  if (start < text.size()) lines.emplace_back(text.substr(start));
  return lines;
}

std::string escape_html(std::string_view text) {
  std::string out;
  for (const char letter : text) {
    switch (letter) {
      case '&':
        out += "&amp;";
        break;
      case '<':
        out += "&lt;";
        break;
      case '>':
        out += "&gt;";
        break;
      case '\'':
        out += "&#39;";
        break;
      case '"':
        out += "&#34;";
        break;
      default:
        out += letter;
    }
  }
  return out;
}

std::string float_repr(double value) {
  if (std::isnan(value)) return "nan";
  if (std::isinf(value)) return value < 0 ? "-inf" : "inf";
  char buffer[64];
  const double size = std::fabs(value);
  // Python switches to an exponent at 1e16 and below 1e-4.
  const bool scientific = size != 0 && (size < 1e-4 || size >= 1e16);
  const auto form = scientific ? std::chars_format::scientific : std::chars_format::fixed;
  std::string text(buffer, std::to_chars(buffer, buffer + sizeof buffer, value, form).ptr);
  if (!scientific && text.find('.') == std::string::npos) text += ".0";
  return text;
}

std::string text_repr(std::string_view text) {
  const bool has_single = text.find('\'') != std::string_view::npos;
  // Single quotes, unless the text contains some and no double quotes.
  const char quote = has_single && text.find('"') == std::string_view::npos ? '"' : '\'';
  std::string out(1, quote);
  while (!text.empty()) {
    const char32_t code = take_utf8(text);
    if (code == static_cast<char32_t>(quote) || code == '\\') {
      out += '\\';
      out += static_cast<char>(code);
    } else if (code == '\n') {
      out += "\\n";
    } else if (code == '\r') {
      out += "\\r";
    } else if (code == '\t') {
      out += "\\t";
    } else if (is_class(code, CharClass::kPrintable)) {
      append_utf8(out, code);
    } else {
      const auto number = static_cast<std::uint32_t>(code);
      out += number < 0x100     ? fmt::format("\\x{:02x}", number)
             : number < 0x10000 ? fmt::format("\\u{:04x}", number)
                                : fmt::format("\\U{:08x}", number);
    }
  }
  return out += quote;
}

// str() differs from repr() only for strings and undefined values.
std::string to_str(const Value& value, Budget& budget) {
  if (value.is_string()) {
    budget.allocate(value.text().size());
    return value.text();
  }
  if (value.is(Kind::kUndefined)) return {};
  return to_repr(value, budget);
}

std::string to_repr(const Value& value, Budget& budget) {
  std::string out;
  write_repr(value, out, budget);
  return out;
}

}  // namespace forge::text::jinja

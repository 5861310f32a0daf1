// Filters on strings and numbers.
#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdlib>

#include "text/jinja/interp.h"
#include "text/jinja/pytext.h"
#include "text/jinja/unicode.h"

namespace forge::text::jinja {
namespace {

/// markupsafe's soft_str: the value as a string. Markup stays markup.
Value soft_str(Interp& interp, const Value& value) {
  return value.is_string() ? value : interp.text(interp.str(value));
}

// Filters that are methods of str.
Value via_method(Interp& interp, std::string_view method, const Value& value, CallArgs& arguments) {
  return find_string_method(method)(interp, soft_str(interp, value), arguments);
}

Value filter_upper(Interp& interp, const Value& value, CallArgs& arguments) {
  return via_method(interp, "upper", value, arguments);
}
Value filter_lower(Interp& interp, const Value& value, CallArgs& arguments) {
  return via_method(interp, "lower", value, arguments);
}
Value filter_capitalize(Interp& interp, const Value& value, CallArgs& arguments) {
  return via_method(interp, "capitalize", value, arguments);
}
Value filter_trim(Interp& interp, const Value& value, CallArgs& arguments) {
  return via_method(interp, "strip", value, arguments);
}
Value filter_center(Interp& interp, const Value& value, CallArgs& arguments) {
  const Bound bound("center", arguments, {"width"});
  CallArgs width{{bound.get(0, Value::integer(80))}, {}};
  return via_method(interp, "center", value, width);
}

/// jinja2's rule, not str.title: words begin after white space and after - ( { [ <.
Value filter_title(Interp& interp, const Value& value, CallArgs& arguments) {
  const Bound bound("title", arguments, {});
  std::u32string word;
  std::string out;
  const auto flush = [&] {
    if (!word.empty()) out += to_upper(encode(word.substr(0, 1))) + to_lower(encode(word.substr(1)));
    word.clear();
  };
  for (const char32_t code : decode(soft_str(interp, value).text())) {
    if (is_space(code) || code == '-' || code == '(' || code == '{' || code == '[' || code == '<') {
      flush();
      append_utf8(out, code);
    } else {
      word += code;
    }
  }
  flush();
  return interp.text(std::move(out));
}

// |replace("old", "new", count)
Value filter_replace(Interp& interp, const Value& value, CallArgs& arguments) {
  const Bound bound("replace", arguments, {"old", "new", "count"});
  const std::int64_t count = bound.given(2) ? bound.integer(2, -1) : -1;
  return interp.text(replace_text(interp.str(value), interp.str(bound.required(0)), interp.str(bound.required(1)),
                                  count, interp.budget));
}

Value filter_string(Interp& interp, const Value& value, CallArgs& arguments) {
  const Bound bound("string", arguments, {});
  return soft_str(interp, value);
}
// |safe marks a text as markup, |escape turns it into markup unless it is that already, |forceescape in any case.
Value filter_safe(Interp& interp, const Value& value, CallArgs& arguments) {
  const Bound bound("safe", arguments, {});
  return interp.text(interp.str(value), true);
}
Value filter_escape(Interp& interp, const Value& value, CallArgs& arguments) {
  const Bound bound("escape", arguments, {});
  if (value.is_string() && value.string().markup) return value;
  return interp.text(escape_html(interp.str(value)), true);
}
Value filter_forceescape(Interp& interp, const Value& value, CallArgs& arguments) {
  const Bound bound("forceescape", arguments, {});
  return interp.text(escape_html(interp.str(value)), true);
}

// |indent(width, first, blank): indents all lines but the first (unless `first`) and empty ones (unless `blank`).
Value filter_indent(Interp& interp, const Value& value, CallArgs& arguments) {
  const Bound bound("indent", arguments, {"width", "first", "blank"});
  const std::string& text = require_text(value, "indent");
  std::string indention(4, ' ');
  if (bound.has(0) && bound.required(0).is_string()) {
    indention = bound.text(0);
  } else if (bound.has(0)) {
    indention.assign(static_cast<std::size_t>(std::clamp<std::int64_t>(bound.integer(0, 4), 0, 1 << 16)), ' ');
  }
  std::string out;
  if (bound.flag(1, false)) out += indention;
  bool first = true;
  for (const std::string& line : split_lines(text + "\n", false)) {
    if (!first) out += '\n';
    if (!first && (bound.flag(2, false) || !line.empty())) out += indention;
    first = false;
    out += line;
    interp.budget.read(line.size() + indention.size());
    if (out.size() > interp.text_bytes_max()) throw EvalError("a text grows beyond the limit");
  }
  return interp.text(std::move(out));
}

// Cuts to `length` characters, the end mark included, unless the text exceeds it by `leeway` at most. Cuts at the last
// space unless killwords is given.
Value filter_truncate(Interp& interp, const Value& value, CallArgs& arguments) {
  const Bound bound("truncate", arguments, {"length", "killwords", "end", "leeway"});
  const std::int64_t limit = bound.integer(0, 255), leeway = bound.given(3) ? bound.integer(3, 5) : 5;
  const Value end = bound.get(2, Value::string("..."));
  static_cast<void>(require_text(end, "truncate"));
  const auto end_length = static_cast<std::int64_t>(end.string().length);
  if (limit < end_length) throw EvalError(fmt::format("expected length >= {}, got {}", end_length, limit));
  if (leeway < 0) throw EvalError("expected leeway >= 0");
  if (length(value) <= limit + leeway) return value;
  static_cast<void>(require_text(value, "truncate"));
  std::string cut = substring(value.string(), 0, static_cast<std::size_t>(limit - end_length));
  if (!bound.flag(1, false)) cut = cut.substr(0, cut.rfind(' '));
  return interp.text(cut + end.text());
}

// Counts the matches of the regular expression \w+.
Value filter_wordcount(Interp& interp, const Value& value, CallArgs& arguments) {
  const Bound bound("wordcount", arguments, {});
  std::int64_t words = 0;
  bool inside = false;
  for (const char32_t code : decode(soft_str(interp, value).text())) {
    const bool letter = code == '_' || is_class(code, CharClass::kAlpha) || is_class(code, CharClass::kNumeric) ||
                        is_class(code, CharClass::kDigit) || is_class(code, CharClass::kDecimal);
    words += letter && !inside ? 1 : 0;
    inside = letter;
  }
  return Value::integer(words);
}

// "%s, %s!"|format("Hello", "World")
Value filter_format(Interp& interp, const Value& value, CallArgs& arguments) {
  if (!arguments.positional.empty() && !arguments.named.empty())
    throw EvalError("can't handle positional and keyword arguments at the same time");
  Value values = interp.list(arguments.positional, ListKind::kTuple);
  if (!arguments.named.empty()) {
    Dict dict;
    for (auto& [name, item] : arguments.named) dict.set(name, item);
    values = Value::dict(std::move(dict));
  }
  return interp.text(format_percent(interp, soft_str(interp, value).text(), values));
}

// Percent-encoding as in Python's urllib.parse.quote; '/' is kept outside query strings.
void quote(std::string& out, std::string_view text, bool slash_is_safe) {
  for (const char c : text) {
    const bool safe = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' ||
                      c == '.' || c == '-' || c == '~' || (c == '/' && slash_is_safe);
    if (safe)
      out += c;
    else
      out += fmt::format("%{:02X}", static_cast<unsigned char>(c));
  }
}

// |urlencode: a text is quoted; a mapping or a list of pairs becomes "key=value&key=value" with + for spaces.
Value filter_urlencode(Interp& interp, const Value& value, CallArgs& arguments) {
  const Bound bound("urlencode", arguments, {});
  std::string out;
  if (!value.is(Kind::kDict) && !value.is(Kind::kList)) {
    quote(out, interp.str(value), true);
    return interp.text(std::move(out));
  }
  const auto part = [&](const Value& each) {
    std::string quoted;
    quote(quoted, interp.str(each), false);
    for (std::size_t at = quoted.find("%20"); at != std::string::npos; at = quoted.find("%20", at))
      quoted.replace(at, 3, "+");
    return quoted;
  };
  const auto add = [&](const Value& key, const Value& item) {
    if (!out.empty()) out += '&';
    out += part(key) + "=" + part(item);
  };
  if (value.is(Kind::kDict)) {
    for (const auto& [key, item] : value.dict().entries()) add(key, item);
  } else {
    for (const Value& pair : value.list().items) {
      const std::vector<Value> both = elements(pair, interp.budget);
      if (both.size() != 2) throw EvalError("urlencode needs pairs");
      add(both[0], both[1]);
    }
  }
  return interp.text(std::move(out));
}

// |tojson(ensure_ascii, indent, separators, sort_keys). As in Hugging Face's environment, not jinja2's: no HTML
// escapes, and the keys keep their order.
Value filter_tojson(Interp& interp, const Value& value, CallArgs& arguments) {
  const Bound bound("tojson", arguments, {"ensure_ascii", "indent", "separators", "sort_keys"});
  JsonStyle style;
  style.ensure_ascii = bound.flag(0, false);
  style.sort_keys = bound.flag(3, false);
  if (bound.given(1)) {
    const Value& indent = bound.required(1);
    if (indent.is_string()) {
      style.indent = indent.text();
    } else {
      style.indent = std::string(static_cast<std::size_t>(std::clamp<std::int64_t>(bound.integer(1, 0), 0, 1024)), ' ');
    }
    // Python's default when an indent is given: no space at the end of a line.
    style.item_separator = ",";
  }
  if (bound.given(2)) {
    const std::vector<Value> both = elements(bound.required(2), interp.budget);
    if (both.size() != 2) throw EvalError("tojson: separators are a pair of strings");
    style.item_separator = require_text(both[0], "tojson");
    style.key_separator = require_text(both[1], "tojson");
  }
  return interp.text(to_json(value, style, interp.budget));
}

// --- numbers

/// Python's float(text): spaces around it, underscores between digits, inf and nan. Empty if it is not a number.
std::optional<double> parse_float(std::string_view text) {
  text = strip(text, nullptr, true, true);
  std::string plain;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const bool between = i > 0 && i + 1 < text.size() && text[i - 1] >= '0' && text[i - 1] <= '9' &&
                         text[i + 1] >= '0' && text[i + 1] <= '9';
    if (text[i] != '_' || !between) plain += text[i];
  }
  std::string_view rest = plain;
  const bool negative = rest.starts_with('-');
  if (negative || rest.starts_with('+')) rest.remove_prefix(1);
  const std::string low = to_lower(rest);
  if (low == "inf" || low == "infinity") return negative ? -INFINITY : INFINITY;
  if (low == "nan") return NAN;
  if (rest.empty() || rest.find_first_not_of("0123456789.eE+-") != std::string_view::npos) return std::nullopt;
  double value = 0;
  const auto result = std::from_chars(rest.data(), rest.data() + rest.size(), value);
  if (result.ptr != rest.data() + rest.size() || result.ec == std::errc::invalid_argument) return std::nullopt;
  // from_chars leaves the value unset then; strtod gives 0 or infinity, as Python does.
  if (result.ec == std::errc::result_out_of_range)
    value = std::strtod(plain.c_str() + (plain.size() - rest.size()), nullptr);
  return negative ? -value : value;
}

/// Python's int(text, base): spaces, a sign, a prefix such as 0x, underscores between digits. Empty if it is not an
/// integer of that base; throws EvalError if it does not fit 64 bits.
std::optional<std::int64_t> parse_integer(std::string_view text, std::int64_t base) {
  text = strip(text, nullptr, true, true);
  std::string plain;
  if (text.starts_with('-') || text.starts_with('+')) {
    if (text[0] == '-') plain = "-";
    text.remove_prefix(1);
  }
  const auto prefixed = [&](char mark, std::int64_t wanted) {
    if (text.size() < 2 || text[0] != '0' || (text[1] | 0x20) != mark || (base != wanted && base != 0)) return false;
    text.remove_prefix(2);
    base = wanted;
    return true;
  };
  const bool prefix = prefixed('x', 16) || prefixed('o', 8) || prefixed('b', 2);
  if (base == 0) base = 10;
  if (base < 2 || base > 36) return std::nullopt;
  if (prefix && text.starts_with('_')) text.remove_prefix(1);
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '_' && i > 0 && i + 1 < text.size() && text[i + 1] != '_') continue;
    plain += text[i];
  }
  if (plain.empty() || plain == "-" || text.starts_with('-')) return std::nullopt;
  std::int64_t value = 0;
  const auto result = std::from_chars(plain.data(), plain.data() + plain.size(), value, static_cast<int>(base));
  if (result.ptr != plain.data() + plain.size()) return std::nullopt;
  if (result.ec == std::errc::result_out_of_range) throw EvalError("an integer does not fit 64 bits");
  return value;
}

// The integer part of `value`.
Value truncated(double value) {
  if (!(std::fabs(value) < 9.2e18)) throw EvalError("an integer does not fit 64 bits");
  return Value::integer(static_cast<std::int64_t>(value));
}

// |int(default, base): integers pass, floats are truncated, texts are parsed; everything else gives the default.
Value filter_int(Interp&, const Value& value, CallArgs& arguments) {
  const Bound bound("int", arguments, {"default", "base"});
  require_defined(value);
  Value otherwise = bound.get(0, Value::integer(0));
  if (value.is_integer()) return Value::integer(value.integer());
  if (value.is(Kind::kFloat)) return std::isfinite(value.real()) ? truncated(value.real()) : otherwise;
  if (!value.is_string()) return otherwise;
  if (const auto whole = parse_integer(value.text(), bound.integer(1, 10))) return Value::integer(*whole);
  const std::optional<double> real = parse_float(value.text());
  return real && std::isfinite(*real) ? truncated(*real) : otherwise;
}

// |float(default)
Value filter_float(Interp&, const Value& value, CallArgs& arguments) {
  const Bound bound("float", arguments, {"default"});
  require_defined(value);
  const Value otherwise = bound.get(0, Value::real(0));
  if (value.is_number()) return Value::real(value.real());
  const std::optional<double> real = value.is_string() ? parse_float(value.text()) : std::nullopt;
  return real ? Value::real(*real) : otherwise;
}

// |abs; the smallest int64 overflows, which is an error.
Value filter_abs(Interp& interp, const Value& value, CallArgs& arguments) {
  const Bound bound("abs", arguments, {});
  require_defined(value);
  if (!value.is_number()) throw EvalError(fmt::format("bad operand type for abs(): '{}'", value.type_name()));
  if (value.is(Kind::kFloat)) return Value::real(std::fabs(value.real()));
  return value.integer() < 0 ? interp.binary(BinaryOp::kSubtract, Value::integer(0), value)
                             : Value::integer(value.integer());
}

/// Python's round(): to the nearest number with `digits` decimals, ties to even. Formatting decides on the exact value
/// of the double, so 2.675 becomes 2.67.
double round_float(double value, std::int64_t digits) {
  if (!std::isfinite(value) || digits > 300) return value;
  if (digits < -300) return std::copysign(0.0, value);
  if (digits >= 0) {
    const std::string text = fmt::format("{:.{}f}", value, digits);
    return std::strtod(text.c_str(), nullptr);
  }
  const double scale = std::pow(10.0, static_cast<double>(-digits));
  return std::nearbyint(value / scale) * scale;
}

// Rounds to a multiple of a power of ten, ties to even.
Value round_integer(Interp& interp, std::int64_t value, std::int64_t digits) {
  if (digits >= 0) return Value::integer(value);
  if (digits < -18) return Value::integer(0);
  std::int64_t scale = 1;
  for (; digits < 0; ++digits) scale *= 10;
  const Value below = interp.binary(BinaryOp::kFloorDivide, Value::integer(value), Value::integer(scale));
  const std::int64_t rest = value - below.integer() * scale;
  const bool up = rest > scale / 2 || (rest == scale / 2 && below.integer() % 2 != 0);
  return interp.binary(BinaryOp::kMultiply, Value::integer(below.integer() + (up ? 1 : 0)), Value::integer(scale));
}

// |round(precision, method): "common" rounds to the nearest number, ties to even; "ceil" and "floor" round up and down.
Value filter_round(Interp& interp, const Value& value, CallArgs& arguments) {
  const Bound bound("round", arguments, {"precision", "method"});
  const std::int64_t digits = bound.integer(0, 0);
  const std::string method = bound.has(1) ? bound.text(1) : "common";
  require_defined(value);
  if (method != "common" && method != "ceil" && method != "floor")
    throw EvalError("round: the method must be common, ceil or floor");
  if (!value.is_number()) throw EvalError(fmt::format("type {} doesn't define __round__ method", value.type_name()));
  if (method == "common")
    return value.is_integer() ? round_integer(interp, value.integer(), digits)
                              : Value::real(round_float(value.real(), digits));
  const Value scale = interp.binary(BinaryOp::kPower, Value::integer(10), Value::integer(digits));
  const double scaled = interp.binary(BinaryOp::kMultiply, value, scale).real();
  return interp.binary(BinaryOp::kDivide, truncated(method == "ceil" ? std::ceil(scaled) : std::floor(scaled)), scale);
}

// jinja2's table: 1 Byte, 999 Bytes, 1.0 kB, ... or with binary=true 1.0 KiB, ...
Value filter_filesizeformat(Interp& interp, const Value& value, CallArgs& arguments) {
  const Bound bound("filesizeformat", arguments, {"binary"});
  require_defined(value);
  const std::optional<double> number = value.is_number()   ? std::optional(value.real())
                                       : value.is_string() ? parse_float(value.text())
                                                           : std::nullopt;
  if (!number) throw EvalError("filesizeformat needs a number");
  const double bytes = *number;
  const bool binary = bound.flag(0, false);
  const double base = binary ? 1024 : 1000;
  if (bytes == 1) return interp.text("1 Byte");
  if (bytes < base) return interp.text(fmt::format("{:.0f} Bytes", std::trunc(bytes) + 0.0));
  static constexpr std::string_view kPrefixes = "kMGTPEZY";
  double unit = base;
  for (std::size_t i = 0;; ++i) {
    unit *= base;
    if (bytes < unit || i + 1 == kPrefixes.size()) {
      const char letter = binary && i == 0 ? 'K' : kPrefixes[i];
      return interp.text(fmt::format("{:.1f} {}{}", base * bytes / unit, letter, binary ? "iB" : "B"));
    }
  }
}

constexpr FilterRow kTextFilters[] = {
    {"abs", filter_abs},
    {"capitalize", filter_capitalize},
    {"center", filter_center},
    {"e", filter_escape},
    {"escape", filter_escape},
    {"filesizeformat", filter_filesizeformat},
    {"float", filter_float},
    {"forceescape", filter_forceescape},
    {"format", filter_format},
    {"indent", filter_indent},
    {"int", filter_int},
    {"lower", filter_lower},
    {"replace", filter_replace},
    {"round", filter_round},
    {"safe", filter_safe},
    {"string", filter_string},
    {"title", filter_title},
    {"tojson", filter_tojson},
    {"trim", filter_trim},
    {"truncate", filter_truncate},
    {"upper", filter_upper},
    {"urlencode", filter_urlencode},
    {"wordcount", filter_wordcount},
};

}  // namespace

const FilterRow* find_text_filter(std::string_view name) {
  const auto* row = std::ranges::find(kTextFilters, name, &FilterRow::name);
  return row == std::end(kTextFilters) ? nullptr : row;
}

}  // namespace forge::text::jinja

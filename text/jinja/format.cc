// Python's % operator and str.format (docs.python.org/3/library/stdtypes.html and string.html); both parse into a Spec.
#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdio>

#include "text/jinja/interp.h"
#include "text/jinja/pytext.h"
#include "text/jinja/unicode.h"

namespace forge::text::jinja {
namespace {

// Limits, because a short format could otherwise allocate a huge string.
constexpr std::int64_t kWidthMax = 1'000'000;
constexpr int kPrecisionMax = 1000;

/// [[fill]align][sign][#][0][width][grouping][.precision][type]. Not given: 0 in a char field, -1 as the precision.
struct Spec {
  std::string fill = " ";
  char align = 0, sign = '-', grouping = 0, type = 0;
  bool alternate = false, zero = false;
  std::int64_t width = 0;
  int precision = -1;
};

// Fills `text` to the width, counted in code points.
std::string pad(const Spec& spec, const std::string& text, char align) {
  const auto length = static_cast<std::int64_t>(*utf8_length(text));
  if (length >= spec.width) return text;
  const std::int64_t margin = spec.width - length;
  const std::int64_t before = align == '>' ? margin : align == '^' ? margin / 2 : 0;
  std::string out;
  for (std::int64_t i = 0; i < before; ++i) out += spec.fill;
  out += text;
  for (std::int64_t i = before; i < margin; ++i) out += spec.fill;
  return out;
}

std::string sign_of(bool negative, char sign) {
  if (negative) return "-";
  return sign == '+' ? "+" : sign == ' ' ? " " : "";
}

/// Inserts `separator` between groups of `group` digits of the integer part of `body`.
std::string grouped(const std::string& body, char separator, std::size_t group) {
  const std::size_t digits = std::min(body.find_first_not_of("0123456789abcdefABCDEF"), body.size());
  std::string out;
  for (std::size_t i = 0; i < digits; ++i) {
    if (i != 0 && (digits - i) % group == 0) out += separator;
    out += body[i];
  }
  return out + body.substr(digits);
}

/// Sign, prefix and body, padded. Zero padding and '=' put the fill between the sign and the digits.
std::string number_field(const Spec& spec, const std::string& sign, std::string body) {
  if (spec.align == '=' || (spec.zero && spec.align == 0)) {
    Spec inner = spec;
    if (spec.zero && spec.align == 0) inner.fill = "0";
    inner.width -= static_cast<std::int64_t>(sign.size());
    return sign + pad(inner, body, '>');
  }
  return pad(spec, sign + body, spec.align == 0 ? '>' : spec.align);
}

// The digits of |value|; unsigned, so that the smallest int64 can be negated.
std::string integer_body(std::int64_t value, char type) {
  const std::uint64_t size = value < 0 ? 0 - static_cast<std::uint64_t>(value) : static_cast<std::uint64_t>(value);
  switch (type) {
    case 'b':
      return fmt::format("{:b}", size);
    case 'o':
      return fmt::format("{:o}", size);
    case 'x':
      return fmt::format("{:x}", size);
    case 'X':
      return fmt::format("{:X}", size);
    default:
      return fmt::format("{}", size);
  }
}

std::string integer_prefix(char type) {
  return type == 'b' ? "0b" : type == 'o' ? "0o" : type == 'x' ? "0x" : type == 'X' ? "0X" : "";
}

/// The digits of |value| for the types e, E, f, F, g and G, by C's printf, which rounds as Python does.
std::string float_body(double value, char type, int precision, bool alternate) {
  const double size = std::fabs(value);
  if (std::isnan(size)) return type == 'E' || type == 'F' || type == 'G' ? "NAN" : "nan";
  if (std::isinf(size)) return type == 'E' || type == 'F' || type == 'G' ? "INF" : "inf";
  const char pattern[] = {
      '%', alternate ? '#' : '.', alternate ? '.' : '*', alternate ? '*' : type, alternate ? type : '\0', '\0'};
  std::string out(static_cast<std::size_t>(precision) + 400, '\0');
  const int written = std::snprintf(out.data(), out.size(), pattern, precision, size);
  out.resize(static_cast<std::size_t>(written));
  return out;
}

// Binary, octal and hexadecimal digits are grouped by four, decimal ones by three.
std::string format_integer(const Spec& spec, std::int64_t value) {
  std::string body = integer_body(value, spec.type);
  if (spec.grouping != 0) body = grouped(body, spec.grouping, spec.type == 0 || spec.type == 'd' ? 3 : 4);
  const std::string prefix = spec.alternate ? integer_prefix(spec.type) : "";
  return number_field(spec, sign_of(value < 0, spec.sign) + prefix, std::move(body));
}

// Without a type a float is written like repr(), or like 'g' if there is a precision.
std::string format_float(const Spec& spec, double value) {
  std::string body;
  if (spec.type == 0 && spec.precision < 0) {
    body = float_repr(std::fabs(value));
  } else if (spec.type == '%') {
    body = float_body(value * 100, 'f', spec.precision < 0 ? 6 : spec.precision, spec.alternate) + "%";
  } else if (spec.type == 0) {  // like g, but with at least one digit after the point
    const int precision = std::max(spec.precision, 1);
    body = float_body(value, 'g', precision, spec.alternate);
    if (const std::size_t mark = body.find('e');
        mark == std::string::npos && body.find_first_of(".ni") == std::string::npos) {
      // If ".0" would exceed the precision, Python switches to scientific notation instead.
      body = static_cast<int>(body.size()) < precision ? body + ".0" : float_body(value, 'e', precision - 1, false);
    }
  } else {
    body = float_body(value, spec.type == 'n' ? 'g' : spec.type,
                      spec.precision < 0 ? 6 : (spec.precision == 0 && (spec.type | 0x20) == 'g' ? 1 : spec.precision),
                      spec.alternate);
  }
  if (spec.grouping != 0) body = grouped(body, spec.grouping, 3);
  return number_field(spec, sign_of(std::signbit(value) && !std::isnan(value), spec.sign), std::move(body));
}

std::string format_text(const Spec& spec, const std::string& text) {
  if (spec.align == '=' || spec.sign != '-' || spec.alternate || spec.grouping != 0)
    throw EvalError("this format is not for strings");
  std::string cut = text;
  if (spec.precision >= 0)
    cut = substring({text, *utf8_length(text), false}, 0, static_cast<std::size_t>(spec.precision));
  Spec padding = spec;
  if (spec.zero && spec.align == 0) padding.fill = "0";
  return pad(padding, cut, spec.align == 0 ? '<' : spec.align);
}

std::int64_t take_number(std::string_view& text, std::int64_t limit) {
  std::int64_t value = 0;
  const auto result = std::from_chars(text.data(), text.data() + text.size(), value);
  if (result.ec == std::errc::result_out_of_range || value > limit || value < 0)
    throw EvalError("a width or precision is beyond the limit");
  text.remove_prefix(static_cast<std::size_t>(result.ptr - text.data()));
  return value;
}

bool digit(std::string_view text) {
  return !text.empty() && text[0] >= '0' && text[0] <= '9';
}

Spec parse_spec(std::string_view text) {
  Spec spec;
  const auto take = [&](std::string_view letters) {
    if (text.empty() || letters.find(text[0]) == std::string_view::npos) return '\0';
    const char letter = text[0];
    text.remove_prefix(1);
    return letter;
  };
  if (!text.empty()) {
    std::string_view after = text;
    take_utf8(after);
    if (!after.empty() && std::string_view("<>=^").find(after[0]) != std::string_view::npos) {
      spec.fill = std::string(text.substr(0, text.size() - after.size()));
      text = after;
    }
  }
  spec.align = take("<>=^");
  if (const char sign = take("+- ")) spec.sign = sign;
  spec.alternate = take("#") != 0;
  if (take("0") != 0) {
    spec.zero = true;
    if (spec.align != 0 && spec.fill == " ") spec.fill = "0";
  }
  if (digit(text)) spec.width = take_number(text, kWidthMax);
  spec.grouping = take(",_");
  if (take(".") != 0) {
    if (!digit(text)) throw EvalError("format specifier misses its precision");
    spec.precision = static_cast<int>(take_number(text, kPrecisionMax));
  }
  spec.type = take("bcdeEfFgGnosxX%");
  if (!text.empty()) throw EvalError("invalid format specifier");
  return spec;
}

std::string format_value(Interp& interp, const Value& value, std::string_view spec_text) {
  if (spec_text.empty()) return interp.str(value);
  const Spec spec = parse_spec(spec_text);
  const auto unknown = [&] {
    throw EvalError(fmt::format("unknown format code '{}' for object of type '{}'", spec.type, value.type_name()));
  };
  interp.budget.allocate(static_cast<std::uint64_t>(spec.width));
  const bool float_type = spec.type != 0 && std::string_view("eEfFgG%").find(spec.type) != std::string_view::npos;
  if (value.is(Kind::kBool) && spec.type == 0) {
    // With any specification a bool is formatted as an int.
    return format_integer(spec, value.integer());
  }
  if (value.is_integer() && !float_type) {
    if (spec.precision >= 0) throw EvalError("precision not allowed in integer format specifier");
    if (spec.type == 'c') {
      std::string letter;
      const std::int64_t code = value.integer();
      if (code < 0 || code > 0x10ffff || (code >= 0xd800 && code <= 0xdfff)) throw EvalError("%c is out of range");
      append_utf8(letter, static_cast<char32_t>(code));
      return pad(spec, letter, spec.align == 0 ? '<' : spec.align);
    }
    if (spec.type == 's') unknown();
    return format_integer(spec, value.integer());
  }
  if (value.is_number()) {
    if (spec.type != 0 && spec.type != 'n' && !float_type) unknown();
    return format_float(spec, value.real());
  }
  if (value.is_string()) {
    if (spec.type != 0 && spec.type != 's') unknown();
    return format_text(spec, value.text());
  }
  throw EvalError(fmt::format("unsupported format string passed to {}.__format__", value.type_name()));
}

/// One call of str.format. next_ counts automatic fields ("{}"); -1 once a field was numbered, since both must not mix.
class Braces {
 public:
  Braces(Interp& interp, const CallArgs& arguments) : interp_(interp), arguments_(arguments) {}

  // Formats `format`; `depth` is how deep replacement fields may still nest, as in "{:{width}}".
  std::string run(std::string_view format, int depth) {
    if (depth < 0) throw EvalError("max string recursion exceeded");
    std::string out;
    while (!format.empty()) {
      const char c = format[0];
      if ((c == '{' || c == '}') && format.size() > 1 && format[1] == c) {
        out += c;
        format.remove_prefix(2);
      } else if (c == '{') {
        out += field(format, depth);
      } else if (c == '}') {
        throw EvalError("single '}' encountered in format string");
      } else {
        out += c;
        format.remove_prefix(1);
      }
      if (out.size() > interp_.text_bytes_max()) throw EvalError("a text grows beyond the limit");
    }
    return out;
  }

 private:
  // One replacement field, {name!conversion:spec}, at the front of `format`.
  std::string field(std::string_view& format, int depth) {
    std::size_t end = 1, open = 1;
    for (; end < format.size() && open > 0; ++end) open += format[end] == '{' ? 1 : format[end] == '}' ? -1 : 0;
    if (open != 0) throw EvalError("expected '}' before end of string");
    std::string_view body = format.substr(1, end - 2);
    format.remove_prefix(end);
    const std::size_t colon = find_end(body, ":!");
    std::string_view name = body.substr(0, colon), rest = body.substr(colon);
    Value value = lookup(name);
    if (rest.starts_with('!')) {
      if (rest.size() < 2 || (rest.size() > 2 && rest[2] != ':')) throw EvalError("bad conversion in format string");
      if (rest[1] == 'r' || rest[1] == 'a')
        value = interp_.text(to_repr(value, interp_.budget));
      else if (rest[1] == 's')
        value = interp_.text(interp_.str(value));
      else
        throw EvalError(fmt::format("unknown conversion specifier '{}'", rest[1]));
      rest.remove_prefix(2);
    }
    if (rest.starts_with(':')) rest.remove_prefix(1);
    return format_value(interp_, value, run(rest, depth - 1));
  }

  /// The position of the first of `marks` outside square brackets.
  static std::size_t find_end(std::string_view body, std::string_view marks) {
    bool bracket = false;
    for (std::size_t i = 0; i < body.size(); ++i) {
      if (body[i] == '[') bracket = true;
      if (body[i] == ']') bracket = false;
      if (!bracket && marks.find(body[i]) != std::string_view::npos) return i;
    }
    return body.size();
  }

  // A field name: an argument followed by .attribute and [key] parts.
  Value lookup(std::string_view name) {
    const std::size_t end = std::min(name.find_first_of(".["), name.size());
    Value value = first(name.substr(0, end));
    name.remove_prefix(end);
    while (!name.empty()) {
      const bool attribute = name[0] == '.';
      const std::size_t stop = attribute ? std::min(name.find_first_of(".[", 1), name.size()) : name.find(']');
      if (stop == std::string_view::npos || stop == 1) throw EvalError("empty attribute in format string");
      const std::string part(name.substr(1, stop - 1));
      if (attribute) {
        value = interp_.get_attribute(value, part);
      } else {
        std::string_view digits = part;
        const bool number = std::ranges::all_of(digits, [](char c) { return c >= '0' && c <= '9'; });
        value = interp_.get_item(value, number ? Value::integer(take_number(digits, 1ll << 40)) : Value::string(part));
      }
      name.remove_prefix(attribute ? stop : stop + 1);
    }
    return value;
  }

  // The argument that a field name begins with: automatic, numbered or named.
  Value first(std::string_view name) {
    std::int64_t index = 0;
    if (name.empty()) {
      if (next_ < 0) throw EvalError("cannot switch from manual field specification to automatic field numbering");
      index = next_++;
    } else if (digit(name)) {
      if (next_ > 0) throw EvalError("cannot switch from automatic field numbering to manual field specification");
      next_ = -1;
      index = take_number(name, 1ll << 40);
    } else {
      for (const auto& [key, value] : arguments_.named)
        if (key == name) return value;
      throw EvalError(fmt::format("format string names '{}', which is not given", name));
    }
    if (static_cast<std::size_t>(index) >= arguments_.positional.size())
      throw EvalError("replacement index out of range for positional arguments");
    return arguments_.positional[static_cast<std::size_t>(index)];
  }

  Interp& interp_;
  const CallArgs& arguments_;
  std::int64_t next_ = 0;
};

/// One evaluation of `format % values`.
class Percent {
 public:
  Percent(Interp& interp, const Value& values) : interp_(interp), values_(values) {}

  std::string run(std::string_view format) {
    std::string out;
    while (!format.empty()) {
      const std::size_t mark = format.find('%');
      out += format.substr(0, mark);
      if (mark == std::string_view::npos) break;
      format.remove_prefix(mark + 1);
      out += conversion(format);
      if (out.size() > interp_.text_bytes_max()) throw EvalError("a text grows beyond the limit");
    }
    const bool tuple = values_.is_list(ListKind::kTuple);
    const std::size_t given = tuple ? values_.list().items.size() : 1;
    // As in Python, extra values are an error, except for a single value that could serve as a mapping.
    const bool all_used = tuple
                              ? used_ >= given
                              : (used_ > 0 || mapping_ || values_.is(Kind::kDict) || values_.is_list(ListKind::kList) ||
                                 values_.is_list(ListKind::kRange) || values_.is(Kind::kUndefined));
    if (!all_used) throw EvalError("not all arguments converted during string formatting");
    return out;
  }

 private:
  // The next positional value; a value that is not a tuple counts as one.
  const Value& next() {
    if (values_.is_list(ListKind::kTuple)) {
      if (used_ >= values_.list().items.size()) throw EvalError("not enough arguments for format string");
      return values_.list().items[used_++];
    }
    if (used_++ > 0) throw EvalError("not enough arguments for format string");
    return values_;
  }

  // One conversion after a '%': [(key)][flags][width][.precision][length]type.
  std::string conversion(std::string_view& format) {
    const Value* named = nullptr;
    if (format.starts_with('(')) {
      const std::size_t close = format.find(')');
      if (close == std::string_view::npos) throw EvalError("incomplete format key");
      if (!values_.is(Kind::kDict)) throw EvalError("format requires a mapping");
      named = values_.dict().find(format.substr(1, close - 1));
      if (named == nullptr) throw EvalError("a key of the format string is not in the mapping");
      mapping_ = true;
      format.remove_prefix(close + 1);
    }
    Spec spec;
    bool left = false;
    for (; !format.empty() && std::string_view("#0- +").find(format[0]) != std::string_view::npos;
         format.remove_prefix(1)) {
      if (format[0] == '#') spec.alternate = true;
      if (format[0] == '0') spec.zero = true;
      if (format[0] == '-') left = true;
      if (format[0] == '+' || (format[0] == ' ' && spec.sign != '+')) spec.sign = format[0];
    }
    const auto number = [&](std::int64_t limit) {
      if (format.starts_with('*')) {
        format.remove_prefix(1);
        const std::int64_t value = require_integer(next(), "a width");
        if (value > limit || value < -limit) throw EvalError("a width or precision is beyond the limit");
        return value;
      }
      return digit(format) ? take_number(format, limit) : 0;
    };
    spec.width = number(kWidthMax);
    if (spec.width < 0) {
      left = true;
      spec.width = -spec.width;
    }
    if (format.starts_with('.')) {
      format.remove_prefix(1);
      spec.precision = static_cast<int>(std::max<std::int64_t>(number(kPrecisionMax), 0));
    }
    while (format.starts_with('l') || format.starts_with('h') || format.starts_with('L')) format.remove_prefix(1);
    if (format.empty()) throw EvalError("incomplete format");
    spec.type = format[0];
    format.remove_prefix(1);
    if (spec.type == '%') return "%";
    if (left) {
      spec.align = '<';
      spec.zero = false;
    }
    interp_.budget.allocate(static_cast<std::uint64_t>(spec.width));
    return converted(spec, named != nullptr ? *named : next());
  }

  std::string converted(Spec spec, const Value& value) {
    switch (spec.type) {
      case 's':
      case 'r':
      case 'a': {
        const std::string text = spec.type == 's' ? interp_.str(value) : to_repr(value, interp_.budget);
        const std::string cut = spec.precision < 0 ? text
                                                   : substring({text, *utf8_length(text), false}, 0,
                                                               static_cast<std::size_t>(spec.precision));
        return pad(spec, cut, spec.align == 0 ? '>' : spec.align);
      }
      case 'c': {
        std::string letter;
        if (value.is_string() && value.string().length == 1) {
          letter = value.text();
        } else {
          const std::int64_t code = require_integer(value, "%c");
          if (code < 0 || code > 0x10ffff || (code >= 0xd800 && code <= 0xdfff)) throw EvalError("%c is out of range");
          append_utf8(letter, static_cast<char32_t>(code));
        }
        return pad(spec, letter, spec.align == 0 ? '>' : spec.align);
      }
      case 'd':
      case 'i':
      case 'u': {
        require_defined(value);
        if (!value.is_number()) throw EvalError("%d format: a real number is required");
        if (!value.is_integer() && !(std::fabs(value.real()) < 9.2e18)) throw EvalError("%d is out of range");
        return integer(spec, value.is_integer() ? value.integer() : static_cast<std::int64_t>(value.real()), 'd');
      }
      case 'x':
      case 'X':
      case 'o':
        return integer(spec, require_integer(value, "a hexadecimal or octal format"), spec.type);
      case 'e':
      case 'E':
      case 'f':
      case 'F':
      case 'g':
      case 'G':
        require_defined(value);
        if (!value.is_number()) throw EvalError("must be real number");
        return format_float(spec, value.real());
      default:
        throw EvalError("unsupported format character");
    }
  }

  // %d, %x or %o; the precision is the least number of digits.
  static std::string integer(Spec spec, std::int64_t value, char type) {
    spec.type = type;
    std::string body = integer_body(value, type);
    if (spec.precision > static_cast<int>(body.size()))
      body.insert(0, static_cast<std::size_t>(spec.precision) - body.size(), '0');
    return number_field(spec, sign_of(value < 0, spec.sign) + (spec.alternate ? integer_prefix(type) : ""), body);
  }

  Interp& interp_;
  const Value& values_;
  std::size_t used_ = 0;
  bool mapping_ = false;
};

}  // namespace

std::string format_percent(Interp& interp, const std::string& format, const Value& values) {
  return Percent(interp, values).run(format);
}

std::string format_braces(Interp& interp, const std::string& format, const CallArgs& arguments) {
  return Braces(interp, arguments).run(format, 2);
}

}  // namespace forge::text::jinja

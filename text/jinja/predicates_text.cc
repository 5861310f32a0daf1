// The is...() methods of Python's str.
#include <algorithm>

#include "text/jinja/interp.h"
#include "text/jinja/pytext.h"
#include "text/jinja/unicode.h"

namespace forge::text::jinja {
namespace {

/// True if all code points are of the class. `empty` is the answer for an empty string.
template <CharClass wanted, bool empty>
Value all_of(Interp&, const Value& self, CallArgs& arguments) {
  const Bound bound("the method", arguments, {});
  std::string_view text = self.text();
  if (text.empty()) return Value::boolean(empty);
  while (!text.empty())
    if (!is_class(take_utf8(text), wanted)) return Value::boolean(false);
  return Value::boolean(true);
}

bool alphanumeric(char32_t code) {
  return is_class(code, CharClass::kAlpha) || is_class(code, CharClass::kDecimal) ||
         is_class(code, CharClass::kDigit) || is_class(code, CharClass::kNumeric);
}

Value isalnum(Interp&, const Value& self, CallArgs& arguments) {
  const Bound bound("isalnum", arguments, {});
  return Value::boolean(!self.text().empty() && std::ranges::all_of(decode(self.text()), alphanumeric));
}

Value isascii(Interp&, const Value& self, CallArgs& arguments) {
  const Bound bound("isascii", arguments, {});
  return Value::boolean(self.string().ascii());
}

Value isidentifier(Interp&, const Value& self, CallArgs& arguments) {
  const Bound bound("isidentifier", arguments, {});
  std::string_view text = self.text();
  if (text.empty() || !is_class(take_utf8(text), CharClass::kIdentStart)) return Value::boolean(false);
  while (!text.empty())
    if (!is_class(take_utf8(text), CharClass::kIdentPart)) return Value::boolean(false);
  return Value::boolean(true);
}

/// islower and isupper: true if there is a cased code point and all cased ones have the wanted case.
template <CharClass wanted, CharClass unwanted>
Value cased_as(Interp&, const Value& self, CallArgs& arguments) {
  const Bound bound("the method", arguments, {});
  bool any = false;
  for (const char32_t code : decode(self.text())) {
    if (is_class(code, unwanted) || is_class(code, CharClass::kTitle)) return Value::boolean(false);
    any |= is_class(code, wanted);
  }
  return Value::boolean(any);
}

// Upper-case code points may only follow uncased ones, lower-case ones only cased ones.
Value istitle(Interp&, const Value& self, CallArgs& arguments) {
  const Bound bound("istitle", arguments, {});
  bool any = false, inside = false;
  for (const char32_t code : decode(self.text())) {
    const bool upper = is_class(code, CharClass::kUpper) || is_class(code, CharClass::kTitle);
    const bool lower = is_class(code, CharClass::kLower);
    if ((upper && inside) || (lower && !inside)) return Value::boolean(false);
    inside = upper || lower;
    any |= inside;
  }
  return Value::boolean(any);
}

constexpr std::pair<std::string_view, StringMethod> kPredicates[] = {
    {"isalnum", isalnum},
    {"isalpha", all_of<CharClass::kAlpha, false>},
    {"isascii", isascii},
    {"isdecimal", all_of<CharClass::kDecimal, false>},
    {"isdigit", all_of<CharClass::kDigit, false>},
    {"isidentifier", isidentifier},
    {"islower", cased_as<CharClass::kLower, CharClass::kUpper>},
    {"isnumeric", all_of<CharClass::kNumeric, false>},
    {"isprintable", all_of<CharClass::kPrintable, true>},
    {"isspace", all_of<CharClass::kSpace, false>},
    {"istitle", istitle},
    {"isupper", cased_as<CharClass::kUpper, CharClass::kLower>},
};

}  // namespace

StringMethod find_string_predicate(std::string_view name) {
  const auto* row = std::ranges::find(kPredicates, name, &std::pair<std::string_view, StringMethod>::first);
  return row == std::end(kPredicates) ? nullptr : row->second;
}

}  // namespace forge::text::jinja

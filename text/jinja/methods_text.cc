// The methods of Python's str. Texts are UTF-8; positions and widths count code points.
#include <fmt/format.h>

#include <algorithm>

#include "text/jinja/interp.h"
#include "text/jinja/pytext.h"
#include "text/jinja/unicode.h"

namespace forge::text::jinja {
namespace {

// A method without arguments that maps the text: lower, upper, title, ...
template <std::string (*change)(std::string_view)>
Value mapped(Interp& interp, const Value& self, CallArgs& arguments) {
  const Bound bound("the method", arguments, {});
  return interp.text(change(self.text()), self.string().markup);
}

// strip, lstrip and rstrip. With a set of characters the cost depends on its size, which is charged.
template <bool left, bool right>
Value stripped(Interp& interp, const Value& self, CallArgs& arguments) {
  const Bound bound("strip", arguments, {"chars"});
  const std::string* set = bound.given(0) ? &bound.text(0) : nullptr;
  if (set != nullptr) interp.budget.step(set->size() * (1 + self.text().size() / 16));
  return interp.text(std::string(strip(self.text(), set, left, right)), self.string().markup);
}

/// The part of `self` that the arguments `start` and `end` select, where `start` counts code points.
struct Window {
  std::string_view text;
  std::int64_t start;
  bool valid;  ///< false if `start` is beyond the end of the text: nothing is found there
};

// Reads `start` and `end` from the arguments `index` and `index` + 1, with Python's rules for negative positions.
Window window(const Value& self, const Bound& bound, std::size_t index) {
  const String& string = self.string();
  const auto size = static_cast<std::int64_t>(string.length);
  const auto limit = [&](std::size_t at, std::int64_t otherwise) {
    const std::int64_t value = bound.given(at) ? bound.integer(at, 0) : otherwise;
    return value < 0 ? std::max<std::int64_t>(value + size, 0) : value;
  };
  const std::int64_t start = limit(index, 0), stop = std::min(limit(index + 1, size), size);
  if (start > size || start > stop) return {{}, start, false};
  const std::size_t from = byte_offset(string, static_cast<std::size_t>(start));
  return {std::string_view(string.text).substr(from, byte_offset(string, static_cast<std::size_t>(stop)) - from), start,
          true};
}

// The position of the first or last occurrence in code points, -1 if there is none.
template <bool last>
std::int64_t find_index(const Value& self, CallArgs& arguments, Interp& interp) {
  const Bound bound("find", arguments, {"sub", "start", "end"});
  const Window part = window(self, bound, 1);
  const std::string& wanted = bound.text(0);
  if (!part.valid) return -1;
  std::size_t hit = std::string_view::npos;
  if constexpr (last) {
    // A forward search with the linear-time find_text(): std's rfind is quadratic for some texts.
    for (std::size_t at = find_text(part.text, wanted); at != std::string_view::npos;
         at = find_text(part.text, wanted, at + 1)) {
      hit = at;
      interp.budget.step();
      if (wanted.empty()) {
        hit = part.text.size();
        break;
      }
    }
  } else {
    hit = find_text(part.text, wanted);
  }
  if (hit == std::string_view::npos) return -1;
  return part.start + static_cast<std::int64_t>(*utf8_length(part.text.substr(0, hit)));
}

// find and rfind return -1 if there is no occurrence, index and rindex raise an error.
template <bool last, bool raises>
Value find_method(Interp& interp, const Value& self, CallArgs& arguments) {
  const std::int64_t index = find_index<last>(self, arguments, interp);
  if (raises && index < 0) throw EvalError("substring not found");
  return Value::integer(index);
}

// The number of occurrences that do not overlap; an empty string occurs before every code point and at the end.
Value count(Interp& interp, const Value& self, CallArgs& arguments) {
  const Bound bound("count", arguments, {"sub", "start", "end"});
  const Window part = window(self, bound, 1);
  const std::string& wanted = bound.text(0);
  if (!part.valid) return Value::integer(0);
  if (wanted.empty()) return Value::integer(static_cast<std::int64_t>(*utf8_length(part.text)) + 1);
  std::int64_t hits = 0;
  for (std::size_t at = find_text(part.text, wanted); at != std::string_view::npos;
       at = find_text(part.text, wanted, at + wanted.size())) {
    ++hits;
    interp.budget.step();
  }
  return Value::integer(hits);
}

// startswith and endswith; the argument may be a tuple of alternatives.
template <bool start>
Value starts_or_ends_with(Interp&, const Value& self, CallArgs& arguments) {
  const Bound bound(start ? "startswith" : "endswith", arguments, {"affix", "start", "end"});
  const Window part = window(self, bound, 1);
  const Value& affix = bound.required(0);
  const auto fits = [&](const Value& text) {
    const std::string& wanted = require_text(text, start ? "startswith" : "endswith");
    return part.valid && (start ? part.text.starts_with(wanted) : part.text.ends_with(wanted));
  };
  if (affix.is_list(ListKind::kTuple)) return Value::boolean(std::ranges::any_of(affix.list().items, fits));
  return Value::boolean(fits(affix));
}

// str.split() without a separator: at runs of white space, with at most `limit` splits (negative: no limit).
void split_spaces(std::string_view text, std::int64_t limit, std::vector<std::string>& parts) {
  text = strip(text, nullptr, true, false);
  while (!text.empty()) {
    if (limit-- == 0) {
      parts.emplace_back(strip(text, nullptr, false, true));
      return;
    }
    std::string_view rest = text;
    while (!rest.empty()) {
      std::string_view next = rest;
      if (is_space(take_utf8(next))) break;
      rest = next;
    }
    parts.emplace_back(text.substr(0, text.size() - rest.size()));
    text = strip(rest, nullptr, true, false);
  }
}

// str.rsplit() without a separator: the splits are counted from the right.
void split_spaces_right(std::string_view text, std::int64_t limit, std::vector<std::string>& parts) {
  text = strip(text, nullptr, false, true);
  while (!text.empty()) {
    if (limit-- == 0) {
      parts.emplace_back(strip(text, nullptr, true, false));
      break;
    }
    std::size_t start = text.size();
    while (start > 0) {
      std::size_t letter = start - 1;
      while ((static_cast<unsigned char>(text[letter]) & 0xc0) == 0x80) --letter;
      std::string_view code = text.substr(letter);
      if (is_space(take_utf8(code))) break;
      start = letter;
    }
    parts.emplace_back(text.substr(start));
    text = strip(text.substr(0, start), nullptr, false, true);
  }
  std::ranges::reverse(parts);
}

// str.split(by) and, with `right`, str.rsplit(by).
void split_text(std::string_view text, std::string_view by, std::int64_t limit, bool right,
                std::vector<std::string>& parts) {
  std::vector<std::size_t> hits;
  if (!right) {
    for (std::size_t at = find_text(text, by); at != std::string_view::npos && limit-- != 0;
         at = find_text(text, by, at + by.size()))
      hits.push_back(at);
  } else {
    std::string_view rest = text;
    while (limit-- != 0) {
      const std::size_t at = rest.rfind(by);
      if (at == std::string_view::npos) break;
      hits.push_back(at);
      rest = rest.substr(0, at);
    }
    std::ranges::reverse(hits);
  }
  std::size_t start = 0;
  for (const std::size_t hit : hits) {
    parts.emplace_back(text.substr(start, hit - start));
    start = hit + by.size();
  }
  parts.emplace_back(text.substr(start));
}

/// A list of strings made of `parts`; they are markup if `whole` is.
Value make_strings(Interp& interp, const Value& whole, std::vector<std::string>& parts,
                   ListKind kind = ListKind::kList) {
  std::vector<Value> items;
  items.reserve(parts.size());
  for (std::string& part : parts) items.push_back(interp.text(std::move(part), whole.string().markup));
  return interp.list(std::move(items), kind);
}

/// `text` as it may be inserted into `self`: markup escapes plain text.
std::string escaped_for(const Value& self, const Value& text) {
  return self.string().markup && !text.string().markup ? escape_html(text.text()) : text.text();
}

// split and rsplit.
template <bool right>
Value split(Interp& interp, const Value& self, CallArgs& arguments) {
  const Bound bound("split", arguments, {"sep", "maxsplit"});
  const std::int64_t limit = bound.integer(1, -1);
  std::vector<std::string> parts;
  if (!bound.given(0)) {
    interp.budget.allocate(self.text().size() * 2);
    right ? split_spaces_right(self.text(), limit, parts) : split_spaces(self.text(), limit, parts);
    return make_strings(interp, self, parts);
  }
  const std::string& by = bound.text(0);
  if (by.empty()) throw EvalError("empty separator");
  if (right) interp.budget.read(self.text().size() * by.size());  // rfind may compare the separator at every position
  interp.budget.allocate(self.text().size() / by.size() * sizeof(std::string));
  split_text(self.text(), by, limit, right, parts);
  return make_strings(interp, self, parts);
}

// The parts keep their line ends with keepends=True.
Value splitlines(Interp& interp, const Value& self, CallArgs& arguments) {
  const Bound bound("splitlines", arguments, {"keepends"});
  interp.budget.allocate(self.text().size());
  std::vector<std::string> lines = split_lines(self.text(), bound.flag(0, false));
  return make_strings(interp, self, lines);
}

// partition and rpartition: (before, separator, after); without an occurrence the whole text and two empty strings.
template <bool right>
Value partition(Interp& interp, const Value& self, CallArgs& arguments) {
  const Bound bound("partition", arguments, {"sep"});
  const std::string &by = bound.text(0), &text = self.text();
  if (by.empty()) throw EvalError("empty separator");
  if (right) interp.budget.read(text.size() * by.size());
  const std::size_t at = right ? text.rfind(by) : find_text(text, by);
  std::vector<std::string> parts(3);
  if (at == std::string_view::npos) {
    parts[right ? 2 : 0] = text;
  } else {
    parts = {text.substr(0, at), by, text.substr(at + by.size())};
  }
  return make_strings(interp, self, parts, ListKind::kTuple);
}

// str.replace(old, new, count). Markup escapes the new text if it is plain.
Value replace(Interp& interp, const Value& self, CallArgs& arguments) {
  const Bound bound("replace", arguments, {"old", "new", "count"});
  (void)require_text(bound.required(1), "replace");
  const std::string by = escaped_for(self, bound.required(1));
  return interp.text(replace_text(self.text(), bound.text(0), by, bound.integer(2, -1), interp.budget),
                     self.string().markup);
}

// removeprefix and removesuffix.
template <bool prefix>
Value remove_affix(Interp& interp, const Value& self, CallArgs& arguments) {
  const Bound bound(prefix ? "removeprefix" : "removesuffix", arguments, {"affix"});
  std::string_view text = self.text();
  const std::string& affix = bound.text(0);
  if (prefix && text.starts_with(affix)) text.remove_prefix(affix.size());
  if (!prefix && text.ends_with(affix)) text.remove_suffix(affix.size());
  return interp.text(std::string(text), self.string().markup);
}

// separator.join(items); every item must be a string.
Value join(Interp& interp, const Value& self, CallArgs& arguments) {
  const Bound bound("join", arguments, {"iterable"});
  require_defined(bound.required(0));
  std::string out;
  bool first = true;
  for (const Value& item : elements(bound.required(0), interp.budget)) {
    if (!std::exchange(first, false)) out += self.text();
    (void)require_text(item, "join");
    out += escaped_for(self, item);
    interp.budget.read(self.text().size() + item.text().size());
    if (out.size() > interp.text_bytes_max()) throw EvalError("a text grows beyond the limit");
  }
  return interp.text(std::move(out), self.string().markup);
}

/// center, ljust and rjust; left and right say where fill characters go. center puts the odd one where CPython does.
template <bool left, bool right>
Value padded(Interp& interp, const Value& self, CallArgs& arguments) {
  const Bound bound("the method", arguments, {"width", "fillchar"});
  const std::int64_t width = require_integer(bound.required(0), "a width");
  const std::string fill = bound.has(1) ? bound.text(1) : " ";
  if (utf8_length(fill) != 1) throw EvalError("the fill character must be exactly one character long");
  const std::int64_t margin = width - static_cast<std::int64_t>(self.string().length);
  if (margin <= 0) return self;
  if (static_cast<std::uint64_t>(margin) > interp.text_bytes_max() / 4)
    throw EvalError("the width is beyond the limit");
  const std::int64_t before = left && right ? margin / 2 + (margin & width & 1) : left ? margin : 0;
  std::string out;
  for (std::int64_t i = 0; i < before; ++i) out += fill;
  out += self.text();
  for (std::int64_t i = before; i < margin; ++i) out += fill;
  return interp.text(std::move(out), self.string().markup);
}

// The zeros are inserted after a sign.
Value zfill(Interp& interp, const Value& self, CallArgs& arguments) {
  const Bound bound("zfill", arguments, {"width"});
  const std::int64_t missing =
      require_integer(bound.required(0), "zfill") - static_cast<std::int64_t>(self.string().length);
  if (missing <= 0) return self;
  if (static_cast<std::uint64_t>(missing) > interp.text_bytes_max()) throw EvalError("the width is beyond the limit");
  std::string out = self.text();
  const bool sign = !out.empty() && (out[0] == '+' || out[0] == '-');
  out.insert(sign ? 1 : 0, static_cast<std::size_t>(missing), '0');
  return interp.text(std::move(out), self.string().markup);
}

// A tab fills up to the next multiple of `tabsize` columns; a line break starts a new line at column 0.
Value expandtabs(Interp& interp, const Value& self, CallArgs& arguments) {
  const Bound bound("expandtabs", arguments, {"tabsize"});
  const std::int64_t size = std::min<std::int64_t>(bound.integer(0, 8), 4096);
  std::string out;
  std::int64_t column = 0;
  for (const char32_t code : decode(self.text())) {
    if (code == '\t') {
      const std::int64_t spaces = size > 0 ? size - column % size : 0;
      out.append(static_cast<std::size_t>(spaces), ' ');
      interp.budget.read(static_cast<std::uint64_t>(spaces));
      if (out.size() > interp.text_bytes_max()) throw EvalError("a text grows beyond the limit");
      column += spaces;
    } else {
      append_utf8(out, code);
      column = code == '\n' || code == '\r' ? 0 : column + 1;
    }
  }
  return interp.text(std::move(out), self.string().markup);
}

Value format(Interp& interp, const Value& self, CallArgs& arguments) {
  return interp.text(format_braces(interp, self.text(), arguments));
}

// str.format with the mapping's entries as named arguments.
Value format_map(Interp& interp, const Value& self, CallArgs& arguments) {
  const Bound bound("format_map", arguments, {"mapping"});
  if (!bound.required(0).is(Kind::kDict)) throw EvalError("format_map needs a mapping");
  CallArgs named;
  for (const auto& [key, value] : bound.required(0).dict().entries())
    if (key.is_string()) named.named.emplace_back(key.text(), value);
  return interp.text(format_braces(interp, self.text(), named));
}

constexpr std::pair<std::string_view, StringMethod> kMethods[] = {
    {"capitalize", mapped<capitalize>},
    {"casefold", mapped<case_fold>},
    {"center", padded<true, true>},
    {"count", count},
    {"endswith", starts_or_ends_with<false>},
    {"expandtabs", expandtabs},
    {"find", find_method<false, false>},
    {"format", format},
    {"format_map", format_map},
    {"index", find_method<false, true>},
    {"join", join},
    {"ljust", padded<false, true>},
    {"lower", mapped<to_lower>},
    {"lstrip", stripped<true, false>},
    {"partition", partition<false>},
    {"removeprefix", remove_affix<true>},
    {"removesuffix", remove_affix<false>},
    {"replace", replace},
    {"rfind", find_method<true, false>},
    {"rindex", find_method<true, true>},
    {"rjust", padded<true, false>},
    {"rpartition", partition<true>},
    {"rsplit", split<true>},
    {"rstrip", stripped<false, true>},
    {"split", split<false>},
    {"splitlines", splitlines},
    {"startswith", starts_or_ends_with<true>},
    {"strip", stripped<true, true>},
    {"swapcase", mapped<swap_case>},
    {"title", mapped<to_title>},
    {"upper", mapped<to_upper>},
    {"zfill", zfill},
};

}  // namespace

StringMethod find_string_method(std::string_view name) {
  const auto* row = std::ranges::find(kMethods, name, &std::pair<std::string_view, StringMethod>::first);
  return row == std::end(kMethods) ? nullptr : row->second;
}

}  // namespace forge::text::jinja

// Filters on sequences and mappings. What jinja2 returns as a generator is an Iterator here: it prints as one and can
// be walked once, but its elements are computed at once.
#include <fmt/format.h>

#include <algorithm>
#include <charconv>

#include "text/jinja/interp.h"
#include "text/jinja/pytext.h"
#include "text/jinja/unicode.h"

namespace forge::text::jinja {
namespace {

/// The `attribute` argument of Jinja's filters: "a.b.0" is looked up part by part, items before attributes, and a part
/// that is a number is an index.
class AttributePath {
 public:
  AttributePath() = default;
  explicit AttributePath(const Value& attribute) {
    if (attribute.is(Kind::kNone)) return;
    if (!attribute.is_string()) {
      parts_.push_back(attribute);
      return;
    }
    std::string_view rest = attribute.text();
    while (true) {
      const std::size_t dot = std::min(rest.find('.'), rest.size());
      parts_.push_back(part(rest.substr(0, dot)));
      if (dot == rest.size()) return;
      rest.remove_prefix(dot + 1);
    }
  }

  /// Follows the path from `item`. `otherwise` replaces a part that is undefined.
  [[nodiscard]] Value get(Interp& interp, Value item, const Value* otherwise = nullptr) const {
    for (const Value& part : parts_) {
      item = interp.get_item(item, part);
      if (otherwise != nullptr && item.is(Kind::kUndefined)) item = *otherwise;
    }
    return item;
  }

 private:
  static Value part(std::string_view text) {
    std::int64_t index = 0;
    const auto result = std::from_chars(text.data(), text.data() + text.size(), index);
    const bool number =
        !text.empty() && text[0] != '-' && result.ec == std::errc() && result.ptr == text.data() + text.size();
    return number ? Value::integer(index) : Value::string(std::string(text));
  }
  std::vector<Value> parts_;
};

// Filters compare strings without regard to case unless case_sensitive is given.
Value ignore_case(Interp& interp, const Value& value) {
  return value.is_string() ? interp.text(to_lower(value.text())) : value;
}

// "a,b.c" for sort(attribute=...): the keys in order of precedence.
std::vector<AttributePath> paths(const Value& attributes) {
  std::vector<AttributePath> all;
  if (!attributes.is_string()) {
    all.emplace_back(attributes);
    return all;
  }
  std::string_view rest = attributes.text();
  while (true) {
    const std::size_t comma = std::min(rest.find(','), rest.size());
    all.emplace_back(Value::string(std::string(rest.substr(0, comma))));
    if (comma == rest.size()) return all;
    rest.remove_prefix(comma + 1);
  }
}

/// A stable sort by `keys`. As in Python, equal items keep their order also with `reverse`.
std::vector<Value> sorted(Interp& interp, std::vector<Value> items, const std::vector<Value>& keys, bool reverse) {
  std::vector<std::size_t> order(items.size());
  for (std::size_t i = 0; i < order.size(); ++i) order[i] = i;
  const auto less = [&](std::size_t a, std::size_t b) {
    // Swapping the operands reverses the order without touching equal ones. Unordered values (NaN) count as not less.
    const std::size_t first = reverse ? b : a, second = reverse ? a : b;
    return compare(keys[first], keys[second], "<", interp.budget).value_or(1) < 0;
  };
  interp.budget.allocate(items.size() * (sizeof(Value) + sizeof(std::size_t)));
  std::stable_sort(order.begin(), order.end(), less);
  std::vector<Value> out;
  out.reserve(items.size());
  for (const std::size_t index : order) out.push_back(std::move(items[index]));
  return out;
}

// |sort(reverse=true, case_sensitive=true, attribute="name,age")
Value filter_sort(Interp& interp, const Value& value, CallArgs& arguments) {
  const Bound bound("sort", arguments, {"reverse", "case_sensitive", "attribute"});
  std::vector<Value> items = elements(value, interp.budget), keys;
  const std::vector<AttributePath> by = paths(bound.get(2, Value()));
  const bool exact = bound.flag(1, false);
  for (const Value& item : items) {
    std::vector<Value> key;
    for (const AttributePath& path : by) {
      const Value part = path.get(interp, item);
      key.push_back(exact ? part : ignore_case(interp, part));
    }
    keys.push_back(interp.list(std::move(key)));
  }
  return interp.list(sorted(interp, std::move(items), keys, bound.flag(0, false)));
}

// |dictsort(by="value"): a list of (key, value) pairs.
Value filter_dictsort(Interp& interp, const Value& value, CallArgs& arguments) {
  const Bound bound("dictsort", arguments, {"case_sensitive", "by", "reverse"});
  require_defined(value);
  if (!value.is(Kind::kDict)) throw EvalError("dictsort needs a mapping");
  const std::string by = bound.has(1) ? bound.text(1) : "key";
  if (by != "key" && by != "value") throw EvalError("dictsort sorts by \"key\" or \"value\"");
  std::vector<Value> items, keys;
  for (const auto& [key, item] : value.dict().entries()) {
    items.push_back(interp.list({key, item}, ListKind::kTuple));
    const Value& part = by == "key" ? key : item;
    keys.push_back(bound.flag(0, false) ? part : ignore_case(interp, part));
  }
  return interp.list(sorted(interp, std::move(items), keys, bound.flag(2, false)));
}

// Sorts by the key, then collects runs of equal keys. Each group is a named tuple (grouper, list).
Value filter_groupby(Interp& interp, const Value& value, CallArgs& arguments) {
  const Bound bound("groupby", arguments, {"attribute", "default", "case_sensitive"});
  const AttributePath path(bound.required(0));
  const Value otherwise = bound.get(1, Value());
  const Value* fallback = otherwise.is(Kind::kNone) ? nullptr : &otherwise;
  const auto key_of = [&](const Value& item) {
    const Value key = path.get(interp, item, fallback);
    return bound.flag(2, false) ? key : ignore_case(interp, key);
  };
  std::vector<Value> items = elements(value, interp.budget), keys;
  for (const Value& item : items) keys.push_back(key_of(item));
  items = sorted(interp, std::move(items), keys, false);
  std::vector<Value> groups, group;
  const auto flush = [&] {
    if (group.empty()) return;
    Value key = path.get(interp, group.front(), fallback);
    interp.budget.allocate(4 * sizeof(Value));
    groups.push_back(Value::list({std::move(key), interp.list(std::move(group))}, ListKind::kTuple, "group"));
    group.clear();
  };
  Value last;
  for (const Value& item : items) {
    Value key = key_of(item);
    if (!group.empty() && !equal(key, last, interp.budget)) flush();
    group.push_back(item);
    last = std::move(key);
  }
  flush();
  return interp.list(std::move(groups));
}

// |unique: the first of each group of equal items.
Value filter_unique(Interp& interp, const Value& value, CallArgs& arguments) {
  const Bound bound("unique", arguments, {"case_sensitive", "attribute"});
  const AttributePath path(bound.get(1, Value()));
  Dict seen;
  std::vector<Value> items;
  for (const Value& item : elements(value, interp.budget)) {
    Value key = path.get(interp, item);
    if (!bound.flag(0, false)) key = ignore_case(interp, key);
    const std::size_t before = seen.size();
    seen.set(key, Value(), interp.budget);
    if (seen.size() != before) items.push_back(item);
  }
  return interp.generator(std::move(items), "do_unique");
}

// min and max; of equal items the first one wins.
template <bool want_max>
Value filter_extreme(Interp& interp, const Value& value, CallArgs& arguments) {
  const Bound bound(want_max ? "max" : "min", arguments, {"case_sensitive", "attribute"});
  const AttributePath path(bound.get(1, Value()));
  const auto key_of = [&](const Value& item) {
    const Value key = path.get(interp, item);
    return bound.flag(0, false) ? key : ignore_case(interp, key);
  };
  const std::vector<Value> items = elements(value, interp.budget);
  if (items.empty()) return Value::undefined("No aggregated item, sequence was empty.");
  const Value* best = &items.front();
  Value best_key = key_of(*best);
  for (const Value& item : items) {
    if (&item == &items.front()) continue;
    Value key = key_of(item);
    const auto order =
        want_max ? compare(key, best_key, ">", interp.budget) : compare(best_key, key, ">", interp.budget);
    if (order.value_or(0) <= 0) continue;
    best = &item;
    best_key = std::move(key);
  }
  return *best;
}

// |sum(attribute="price", start=0)
Value filter_sum(Interp& interp, const Value& value, CallArgs& arguments) {
  const Bound bound("sum", arguments, {"attribute", "start"});
  const AttributePath path(bound.get(0, Value()));
  Value total = bound.get(1, Value::integer(0));
  if (total.is_string()) throw EvalError("sum() can't sum strings [use ''.join(seq) instead]");
  for (const Value& item : elements(value, interp.budget))
    total = interp.binary(BinaryOp::kAdd, total, path.get(interp, item));
  return total;
}

// |join(", ", attribute="name")
Value filter_join(Interp& interp, const Value& value, CallArgs& arguments) {
  const Bound bound("join", arguments, {"d", "attribute"});
  const std::string separator = bound.has(0) ? interp.str(bound.required(0)) : std::string();
  const AttributePath path(bound.get(1, Value()));
  std::string out;
  bool first = true;
  for (const Value& item : elements(value, interp.budget)) {
    if (!std::exchange(first, false)) out += separator;
    interp.budget.read(separator.size());
    out += interp.str(path.get(interp, item));
    if (out.size() > interp.text_bytes_max()) throw EvalError("a text grows beyond the limit");
  }
  return interp.text(std::move(out));
}

Value filter_length(Interp&, const Value& value, CallArgs& arguments) {
  const Bound bound("length", arguments, {});
  return Value::integer(length(value));
}

// An iterator gives up its first element only; other values are read as a whole.
Value filter_first(Interp& interp, const Value& value, CallArgs& arguments) {
  const Bound bound("first", arguments, {});
  if (value.is(Kind::kIterator)) {
    Iterator& source = value.iterator();
    if (source.next < source.items.size()) return source.items[source.next++];
  } else if (value.is(Kind::kList) && !value.list().items.empty()) {
    return value.list().items.front();
  } else if (const std::vector<Value> items = elements(value, interp.budget); !items.empty()) {
    return items.front();
  }
  return Value::undefined("No first item, sequence was empty.");
}

// |last reads the last element directly where it can.
Value filter_last(Interp& interp, const Value& value, CallArgs& arguments) {
  const Bound bound("last", arguments, {});
  if (value.is(Kind::kIterator)) throw EvalError("'generator' object is not reversible");
  if (value.is(Kind::kList) && !value.list().items.empty()) return value.list().items.back();
  const std::vector<Value> items = elements(value, interp.budget);
  return items.empty() ? Value::undefined("No last item, sequence was empty.") : items.back();
}

Value filter_list(Interp& interp, const Value& value, CallArgs& arguments) {
  const Bound bound("list", arguments, {});
  return interp.list(elements(value, interp.budget));
}

// |items: the pairs of a mapping, or nothing for an undefined value.
Value filter_items(Interp& interp, const Value& value, CallArgs& arguments) {
  const Bound bound("items", arguments, {});
  std::vector<Value> items;
  if (!value.is(Kind::kUndefined)) {
    if (!value.is(Kind::kDict)) throw EvalError("Can only get item pairs from a mapping.");
    for (const auto& [key, item] : value.dict().entries()) items.push_back(interp.list({key, item}, ListKind::kTuple));
  }
  return interp.generator(std::move(items), "do_items");
}

// |reverse: a string stays a string.
Value filter_reverse(Interp& interp, const Value& value, CallArgs& arguments) {
  const Bound bound("reverse", arguments, {});
  if (value.is_string()) {
    std::u32string codes = decode(value.text());
    std::ranges::reverse(codes);
    return interp.text(encode(codes), value.string().markup);
  }
  std::vector<Value> items = elements(value, interp.budget);
  std::ranges::reverse(items);
  // Python's reversed() returns an iterator. A generator cannot be reversed; jinja2 makes a list of it.
  return value.is(Kind::kIterator) ? interp.list(std::move(items)) : interp.generator(std::move(items), "reverse");
}

// |default("x", true): with `boolean`, also replaces values that are false, such as "" and none.
Value filter_default(Interp&, const Value& value, CallArgs& arguments) {
  const Bound bound("default", arguments, {"default_value", "boolean"});
  if (value.is(Kind::kUndefined) || (bound.flag(1, false) && !truth(value))) return bound.get(0, Value::string(""));
  return value;
}

// |attr("name")
Value filter_attr(Interp& interp, const Value& value, CallArgs& arguments) {
  const Bound bound("attr", arguments, {"name"});
  const std::string& name = bound.text(0);
  require_defined(value);
  // Unlike interp.get_attribute(), this filter does not fall back to the items of a dict.
  if (is_mutator(value, name) || find_attribute(interp, value, name)) return interp.get_attribute(value, name);
  return interp.missing(value, bound.required(0));
}

// Rows of `linecount` elements; fill_with completes the last one.
Value filter_batch(Interp& interp, const Value& value, CallArgs& arguments) {
  const Bound bound("batch", arguments, {"linecount", "fill_with"});
  const std::int64_t size = require_integer(bound.required(0), "batch");
  std::vector<Value> rows, row;
  for (Value& item : elements(value, interp.budget)) {
    if (static_cast<std::int64_t>(row.size()) == size) rows.push_back(interp.list(std::exchange(row, {})));
    row.push_back(std::move(item));
  }
  if (!row.empty()) {
    if (bound.given(1) && size > static_cast<std::int64_t>(row.size())) {
      if (size > kRangeMax) throw EvalError("batch: the line is too long to fill");
      row.resize(static_cast<std::size_t>(size), bound.required(1));
    }
    rows.push_back(interp.list(std::move(row)));
  }
  return interp.generator(std::move(rows), "do_batch");
}

// Divides into `slices` lists whose lengths differ by at most one, the longer ones first.
Value filter_slice(Interp& interp, const Value& value, CallArgs& arguments) {
  const Bound bound("slice", arguments, {"slices", "fill_with"});
  const std::int64_t count = require_integer(bound.required(0), "slice");
  const std::vector<Value> items = elements(value, interp.budget);
  if (count == 0) throw EvalError("slice: integer division or modulo by zero");
  if (count > kRangeMax) throw EvalError("slice: too many slices");
  std::vector<Value> slices;
  const auto total = static_cast<std::int64_t>(items.size());
  std::int64_t start = 0;
  for (std::int64_t i = 0; i < count; ++i) {
    const std::int64_t end = start + total / count + (i < total % count ? 1 : 0);
    std::vector<Value> part(items.begin() + start, items.begin() + end);
    if (bound.given(1) && i >= total % count) part.push_back(bound.required(1));
    slices.push_back(interp.list(std::move(part)));
    start = end;
  }
  return interp.generator(std::move(slices), "do_slice");
}

/// Removes and returns the first positional argument.
Value take_front(CallArgs& arguments) {
  Value front = std::move(arguments.positional.front());
  arguments.positional.erase(arguments.positional.begin());
  return front;
}

// map(attribute=...) reads an attribute of each element; map("filter", ...) applies a filter to each.
Value filter_map(Interp& interp, const Value& value, CallArgs& arguments) {
  std::vector<Value> items;
  if (!truth(value)) return interp.generator({}, "do_map");
  if (arguments.positional.empty()) {
    const Bound bound("map", arguments, {"attribute", "default"});
    if (!bound.has(0)) throw EvalError("map requires a filter argument");
    const AttributePath path(bound.required(0));
    const Value otherwise = bound.get(1, Value());
    for (Value& item : elements(value, interp.budget))
      items.push_back(path.get(interp, std::move(item), otherwise.is(Kind::kNone) ? nullptr : &otherwise));
    return interp.generator(std::move(items), "do_map");
  }
  const Value name = take_front(arguments);
  const FilterRow* row = find_filter(require_text(name, "map"));
  if (row == nullptr) throw EvalError(fmt::format("there is no filter named '{}'", name.text()));
  for (const Value& item : elements(value, interp.budget)) {
    interp.budget.read(item.is_string() ? item.text().size() : 1);
    CallArgs copy = arguments;
    items.push_back(row->apply(interp, item, copy));
  }
  return interp.generator(std::move(items), "do_map");
}

// select, reject, selectattr and rejectattr: keeps the elements whose test gives `keep`; without a test, their truth
// value.
template <bool by_attribute, bool keep>
Value filter_select(Interp& interp, const Value& value, CallArgs& arguments) {
  AttributePath path;
  if (!truth(value)) return interp.generator({}, "select_or_reject");
  if (by_attribute) {
    if (arguments.positional.empty()) throw EvalError("missing parameter for attribute name");
    path = AttributePath(take_front(arguments));
  }
  const TestRow* row = nullptr;
  if (!arguments.positional.empty()) {
    const Value name = take_front(arguments);
    row = find_test(require_text(name, "a test"));
    if (row == nullptr) throw EvalError(fmt::format("there is no test named '{}'", name.text()));
  }
  std::vector<Value> items;
  for (const Value& item : elements(value, interp.budget)) {
    const Value part = path.get(interp, item);
    CallArgs copy = arguments;
    if ((row != nullptr ? row->apply(interp, part, copy) : truth(part)) == keep) items.push_back(item);
  }
  return interp.generator(std::move(items), "select_or_reject");
}

constexpr FilterRow kSequenceFilters[] = {
    {"attr", filter_attr},
    {"batch", filter_batch},
    {"count", filter_length},
    {"d", filter_default},
    {"default", filter_default},
    {"dictsort", filter_dictsort},
    {"first", filter_first},
    {"groupby", filter_groupby},
    {"items", filter_items},
    {"join", filter_join},
    {"last", filter_last},
    {"length", filter_length},
    {"list", filter_list},
    {"map", filter_map},
    {"max", filter_extreme<true>},
    {"min", filter_extreme<false>},
    {"reject", filter_select<false, false>},
    {"rejectattr", filter_select<true, false>},
    {"reverse", filter_reverse},
    {"select", filter_select<false, true>},
    {"selectattr", filter_select<true, true>},
    {"slice", filter_slice},
    {"sort", filter_sort},
    {"sum", filter_sum},
    {"unique", filter_unique},
};

}  // namespace

const FilterRow* find_sequence_filter(std::string_view name) {
  const auto* row = std::ranges::find(kSequenceFilters, name, &FilterRow::name);
  return row == std::end(kSequenceFilters) ? nullptr : row;
}

const FilterRow* find_filter(std::string_view name) {
  const FilterRow* row = find_text_filter(name);
  return row != nullptr ? row : find_sequence_filter(name);
}

}  // namespace forge::text::jinja

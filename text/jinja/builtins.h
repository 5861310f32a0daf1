#pragma once
// What templates can call: filters, tests, globals, and the methods of str, dict, list and the rest.

#include <array>
#include <initializer_list>
#include <optional>
#include <string_view>

#include "text/jinja/value.h"

namespace forge::text::jinja {

class Interp;
struct Clock;

struct FilterRow {
  std::string_view name;
  Value (*apply)(Interp& interp, const Value& input, CallArgs& arguments);
};
struct TestRow {
  std::string_view name;
  bool (*apply)(Interp& interp, const Value& input, CallArgs& arguments);
};

/// nullptr when there is none of that name.
[[nodiscard]] const FilterRow* find_filter(std::string_view name);
[[nodiscard]] const TestRow* find_test(std::string_view name);
/// The global function of that name; empty when there is none.
[[nodiscard]] std::optional<Value> find_global(Interp& interp, std::string_view name);
/// The bound method (or attribute) `name` that Python's type of `object` has; empty when it has none.
[[nodiscard]] std::optional<Value> find_attribute(Interp& interp, const Value& object, std::string_view name);
/// True for methods that would change a list or a dict: the sandbox hides them.
[[nodiscard]] bool is_mutator(const Value& object, std::string_view name);

// The tables that find_filter and find_attribute search, each in its file.
using StringMethod = Value (*)(Interp& interp, const Value& self, CallArgs& arguments);
[[nodiscard]] const FilterRow* find_text_filter(std::string_view name);
[[nodiscard]] const FilterRow* find_sequence_filter(std::string_view name);
[[nodiscard]] StringMethod find_string_method(std::string_view name);
[[nodiscard]] StringMethod find_string_predicate(std::string_view name);

/// The arguments of a call bound to parameter names. Throws EvalError for too many, unknown or doubled ones.
class Bound {
 public:
  Bound(std::string_view function, CallArgs& arguments, std::initializer_list<std::string_view> parameters);
  [[nodiscard]] bool has(std::size_t index) const { return values_[index] != nullptr; }
  /// Given and not None.
  [[nodiscard]] bool given(std::size_t index) const { return has(index) && !values_[index]->is(Kind::kNone); }
  /// Throws EvalError when it was not given.
  [[nodiscard]] const Value& required(std::size_t index) const;
  [[nodiscard]] Value get(std::size_t index, Value otherwise) const {
    if (has(index)) return *values_[index];
    return otherwise;
  }
  [[nodiscard]] bool flag(std::size_t index, bool otherwise) const {
    return has(index) ? truth(*values_[index]) : otherwise;
  }
  /// Throws EvalError when it is not an int.
  [[nodiscard]] std::int64_t integer(std::size_t index, std::int64_t otherwise) const;
  /// Throws EvalError when it is not a string.
  [[nodiscard]] const std::string& text(std::size_t index) const;

 private:
  static constexpr std::size_t kMax = 6;
  std::string_view function_;
  std::array<std::string_view, kMax> names_{};
  std::array<const Value*, kMax> values_{};
};

/// Python's int -> index checks. Throws EvalError naming `what` unless `value` is an int.
[[nodiscard]] std::int64_t require_integer(const Value& value, std::string_view what);
[[nodiscard]] const std::string& require_text(const Value& value, std::string_view what);

/// printf-style formatting, Python's `format % values`.
[[nodiscard]] std::string format_percent(Interp& interp, const std::string& format, const Value& values);
/// str.format with the sandbox's attribute rules.
[[nodiscard]] std::string format_braces(Interp& interp, const std::string& format, const CallArgs& arguments);
/// json.dumps(value, ensure_ascii=..., indent=..., separators=..., sort_keys=...).
struct JsonStyle {
  bool ensure_ascii = false;
  std::optional<std::string> indent;
  std::string item_separator = ", ", key_separator = ": ";
  bool sort_keys = false;
};
/// strftime for a format of the template (C locale); Python's %f too. Throws EvalError for what it cannot do.
[[nodiscard]] std::string format_time(const Clock& now, const std::string& format);
[[nodiscard]] std::string to_json(const Value& value, const JsonStyle& style, Budget& budget);

}  // namespace forge::text::jinja

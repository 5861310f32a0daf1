#pragma once
// Everything that templates can call: filters, tests, global functions, and the methods of str, dict, list and the
// rest. Behaviour and messages follow jinja2 3.1 and Python.
//
// Each built-in charges the budget of the render (value.h) for what it reads and makes. Each filter and test is one row
// of a table in its own file.

#include <array>
#include <initializer_list>
#include <optional>
#include <string_view>

#include "text/jinja/value.h"

namespace forge::text::jinja {

class Interp;
struct Clock;

/// A filter: `apply` gets the value before the '|' and the arguments. Throws EvalError.
struct FilterRow {
  std::string_view name;
  Value (*apply)(Interp& interp, const Value& input, CallArgs& arguments);
};
/// A test: `apply` gets the value before `is`. Throws EvalError.
struct TestRow {
  std::string_view name;
  bool (*apply)(Interp& interp, const Value& input, CallArgs& arguments);
};

/// nullptr if there is none of that name.
[[nodiscard]] const FilterRow* find_filter(std::string_view name);
[[nodiscard]] const TestRow* find_test(std::string_view name);
/// The global function of that name; empty if there is none.
[[nodiscard]] std::optional<Value> find_global(Interp& interp, std::string_view name);
/// The method or attribute `name` that Python's type of `object` has, bound to `object`; empty if it has none.
[[nodiscard]] std::optional<Value> find_attribute(Interp& interp, const Value& object, std::string_view name);
/// True for methods that would change a list or a dict: the sandbox hides them.
[[nodiscard]] bool is_mutator(const Value& object, std::string_view name);

/// The tables behind find_filter() and find_attribute(); each is in a file of its own.
using StringMethod = Value (*)(Interp& interp, const Value& self, CallArgs& arguments);
[[nodiscard]] const FilterRow* find_text_filter(std::string_view name);
[[nodiscard]] const FilterRow* find_sequence_filter(std::string_view name);
[[nodiscard]] StringMethod find_string_method(std::string_view name);
[[nodiscard]] StringMethod find_string_predicate(std::string_view name);

/// The arguments of a call, bound to parameter names. Refers to `arguments`, which must outlive it. Throws EvalError
/// for too many arguments, unknown names, and a parameter that is given twice. Example:
///
///    const Bound bound("center", arguments, {"width"});
///    const std::int64_t width = bound.integer(0, 80);
class Bound {
 public:
  Bound(std::string_view function, CallArgs& arguments, std::initializer_list<std::string_view> parameters);
  [[nodiscard]] bool has(std::size_t index) const { return values_[index] != nullptr; }
  /// True if the argument was passed and is not None.
  [[nodiscard]] bool given(std::size_t index) const { return has(index) && !values_[index]->is(Kind::kNone); }
  /// Throws EvalError if the argument was not passed.
  [[nodiscard]] const Value& required(std::size_t index) const;
  /// The argument, or `otherwise` if it was not passed.
  [[nodiscard]] Value get(std::size_t index, Value otherwise) const {
    if (has(index)) return *values_[index];
    return otherwise;
  }
  [[nodiscard]] bool flag(std::size_t index, bool otherwise) const {
    return has(index) ? truth(*values_[index]) : otherwise;
  }
  /// Throws EvalError if the argument is not an int.
  [[nodiscard]] std::int64_t integer(std::size_t index, std::int64_t otherwise) const;
  /// Throws EvalError if the argument is missing or not a string.
  [[nodiscard]] const std::string& text(std::size_t index) const;

 private:
  static constexpr std::size_t kMax = 6;
  std::string_view function_;
  std::array<std::string_view, kMax> names_{};
  std::array<const Value*, kMax> values_{};
};

/// The value as an int or as a string. Throws EvalError naming `what` for other types and for undefined values.
[[nodiscard]] std::int64_t require_integer(const Value& value, std::string_view what);
[[nodiscard]] const std::string& require_text(const Value& value, std::string_view what);

/// Python's `format % values`.
[[nodiscard]] std::string format_percent(Interp& interp, const std::string& format, const Value& values);
/// Python's str.format, with the sandbox's rules for attributes.
[[nodiscard]] std::string format_braces(Interp& interp, const std::string& format, const CallArgs& arguments);
/// The options of json.dumps. Without `indent` the text is one line.
struct JsonStyle {
  bool ensure_ascii = false;
  std::optional<std::string> indent;
  std::string item_separator = ", ", key_separator = ": ";
  bool sort_keys = false;
};
/// Python's strftime for `now`, in the C locale. %z and %Z give nothing: `now` has no time zone. Throws EvalError for
/// formats that are too long.
[[nodiscard]] std::string format_time(const Clock& now, const std::string& format);
/// Python's json.dumps(value, ...). Throws EvalError for values that JSON cannot represent.
[[nodiscard]] std::string to_json(const Value& value, const JsonStyle& style, Budget& budget);

}  // namespace forge::text::jinja

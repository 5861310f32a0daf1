// Jinja's tests: the names behind `is`, as in `x is defined`.
#include <fmt/format.h>

#include <algorithm>

#include "text/jinja/interp.h"

namespace forge::text::jinja {
namespace {

/// The one argument that the test takes, positional or by any name.
const Value& only_argument(std::string_view test, CallArgs& arguments) {
  if (arguments.positional.size() + arguments.named.size() != 1)
    throw EvalError(fmt::format("the test '{}' takes one argument", test));
  return arguments.positional.empty() ? arguments.named.front().second : arguments.positional.front();
}

// Throws EvalError if there are arguments.
void expect_no_arguments(std::string_view test, CallArgs& arguments) {
  const Bound bound(test, arguments, {});
}

template <Kind kind>
bool is_kind(Interp&, const Value& value, CallArgs& arguments) {
  expect_no_arguments("type", arguments);
  return value.is(kind);
}

// True if value % divisor equals `wanted`.
bool remainder_is(Interp& interp, const Value& value, const Value& divisor, std::int64_t wanted) {
  return equal(interp.binary(BinaryOp::kModulo, value, divisor), Value::integer(wanted), interp.budget);
}

bool test_even(Interp& interp, const Value& value, CallArgs& arguments) {
  expect_no_arguments("even", arguments);
  return remainder_is(interp, value, Value::integer(2), 0);
}
bool test_odd(Interp& interp, const Value& value, CallArgs& arguments) {
  expect_no_arguments("odd", arguments);
  return remainder_is(interp, value, Value::integer(2), 1);
}
bool test_divisible(Interp& interp, const Value& value, CallArgs& arguments) {
  return remainder_is(interp, value, only_argument("divisibleby", arguments), 0);
}

bool test_defined(Interp&, const Value& value, CallArgs& arguments) {
  expect_no_arguments("defined", arguments);
  return !value.is(Kind::kUndefined);
}
bool test_true(Interp&, const Value& value, CallArgs& arguments) {
  expect_no_arguments("true", arguments);
  return value.is(Kind::kBool) && value.boolean();
}
bool test_false(Interp&, const Value& value, CallArgs& arguments) {
  expect_no_arguments("false", arguments);
  return value.is(Kind::kBool) && !value.boolean();
}
bool test_number(Interp&, const Value& value, CallArgs& arguments) {
  expect_no_arguments("number", arguments);
  return value.is_number();
}
bool test_callable(Interp&, const Value& value, CallArgs& arguments) {
  expect_no_arguments("callable", arguments);
  // jinja2's Undefined has a __call__ method, so it counts as callable.
  return value.is(Kind::kUndefined) || value.is(Kind::kLoop) || (value.is(Kind::kCallable) && value.callable().call);
}
bool test_iterable(Interp&, const Value& value, CallArgs& arguments) {
  expect_no_arguments("iterable", arguments);
  return value.is(Kind::kUndefined) || value.is_string() || value.is(Kind::kList) || value.is(Kind::kDict) ||
         value.is(Kind::kIterator) || value.is(Kind::kLoop);
}
bool test_sequence(Interp&, const Value& value, CallArgs& arguments) {
  expect_no_arguments("sequence", arguments);
  return value.is(Kind::kUndefined) || value.is_string() || value.is(Kind::kDict) ||
         (value.is(Kind::kList) && value.list().kind <= ListKind::kRange);
}
bool test_same(Interp&, const Value& value, CallArgs& arguments) {
  const Value& right = only_argument("sameas", arguments);
  return value.same(right) || (value.is_string() && right.is_string() && value.text() == right.text());
}
bool test_escaped(Interp&, const Value& value, CallArgs& arguments) {
  expect_no_arguments("escaped", arguments);
  return value.is_string() && value.string().markup;
}
bool test_lower(Interp& interp, const Value& value, CallArgs& arguments) {
  return truth(find_string_predicate("islower")(interp, interp.text(interp.str(value)), arguments));
}
bool test_upper(Interp& interp, const Value& value, CallArgs& arguments) {
  return truth(find_string_predicate("isupper")(interp, interp.text(interp.str(value)), arguments));
}
bool test_filter(Interp&, const Value& value, CallArgs& arguments) {
  expect_no_arguments("filter", arguments);
  return value.is_string() && find_filter(value.text()) != nullptr;
}
bool test_test(Interp&, const Value& value, CallArgs& arguments) {
  expect_no_arguments("test", arguments);
  return value.is_string() && find_test(value.text()) != nullptr;
}

bool test_eq(Interp& interp, const Value& value, CallArgs& arguments) {
  return equal(value, only_argument("eq", arguments), interp.budget);
}
bool test_ne(Interp& interp, const Value& value, CallArgs& arguments) {
  return !equal(value, only_argument("ne", arguments), interp.budget);
}
bool test_in(Interp& interp, const Value& value, CallArgs& arguments) {
  return interp.contains(only_argument("in", arguments), value);
}
bool test_lt(Interp& interp, const Value& value, CallArgs& arguments) {
  return compare(value, only_argument("lt", arguments), "<", interp.budget).value_or(1) < 0;
}
bool test_le(Interp& interp, const Value& value, CallArgs& arguments) {
  return compare(value, only_argument("le", arguments), "<=", interp.budget).value_or(1) <= 0;
}
bool test_gt(Interp& interp, const Value& value, CallArgs& arguments) {
  return compare(value, only_argument("gt", arguments), ">", interp.budget).value_or(-1) > 0;
}
bool test_ge(Interp& interp, const Value& value, CallArgs& arguments) {
  return compare(value, only_argument("ge", arguments), ">=", interp.budget).value_or(-1) >= 0;
}

// The names, including the operators' spellings for select("==", ...).
constexpr TestRow kTests[] = {
    {"defined", test_defined},
    {"undefined", is_kind<Kind::kUndefined>},
    {"none", is_kind<Kind::kNone>},
    {"boolean", is_kind<Kind::kBool>},
    {"integer", is_kind<Kind::kInt>},
    {"float", is_kind<Kind::kFloat>},
    {"string", is_kind<Kind::kString>},
    {"mapping", is_kind<Kind::kDict>},
    {"number", test_number},
    {"sequence", test_sequence},
    {"iterable", test_iterable},
    {"callable", test_callable},
    {"true", test_true},
    {"false", test_false},
    {"even", test_even},
    {"odd", test_odd},
    {"divisibleby", test_divisible},
    {"sameas", test_same},
    {"escaped", test_escaped},
    {"lower", test_lower},
    {"upper", test_upper},
    {"filter", test_filter},
    {"test", test_test},
    {"eq", test_eq},
    {"equalto", test_eq},
    {"==", test_eq},
    {"ne", test_ne},
    {"!=", test_ne},
    {"lt", test_lt},
    {"lessthan", test_lt},
    {"<", test_lt},
    {"le", test_le},
    {"<=", test_le},
    {"gt", test_gt},
    {"greaterthan", test_gt},
    {">", test_gt},
    {"ge", test_ge},
    {">=", test_ge},
    {"in", test_in},
};

}  // namespace

const TestRow* find_test(std::string_view name) {
  const auto* row = std::ranges::find(kTests, name, &TestRow::name);
  return row == std::end(kTests) ? nullptr : row;
}

}  // namespace forge::text::jinja

// What Python's operators do with template values: arithmetic, `in`, attributes and items. Also the services of Interp
// that make values and charge the budget for them.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "text/jinja/interp.h"
#include "text/jinja/pytext.h"

namespace forge::text::jinja {
namespace {

constexpr std::string_view kSigns[] = {"+", "-", "*", "/", "//", "%", "**"};

[[noreturn]] void unsupported(BinaryOp op, const Value& left, const Value& right) {
  throw EvalError(fmt::format("unsupported operand type(s) for {}: '{}' and '{}'", kSigns[static_cast<int>(op)],
                              left.type_name(), right.type_name()));
}

[[noreturn]] void overflow() {
  throw EvalError("an integer does not fit 64 bits");
}

// Python rounds the quotient down, C++ towards zero. -1 is handled separately, because INT64_MIN / -1 overflows.
std::int64_t floor_divide(std::int64_t a, std::int64_t b) {
  if (b == 0) throw EvalError("integer division or modulo by zero");
  if (b == -1) {
    std::int64_t negated;
    if (__builtin_sub_overflow(std::int64_t{0}, a, &negated)) overflow();
    return negated;
  }
  const std::int64_t quotient = a / b;
  return (a % b != 0 && (a < 0) != (b < 0)) ? quotient - 1 : quotient;
}

// The remainder has the sign of the divisor, as in Python.
std::int64_t modulo(std::int64_t a, std::int64_t b) {
  if (b == 0) throw EvalError("integer modulo by zero");
  if (b == -1) return 0;
  const std::int64_t rest = a % b;
  return rest != 0 && (rest < 0) != (b < 0) ? rest + b : rest;
}

// The bases 0, 1 and -1 are handled separately: all others overflow after at most 63 multiplications, which ends the
// loop.
Value power(std::int64_t base, std::int64_t exponent) {
  if (exponent < 0) {
    if (base == 0) throw EvalError("0.0 cannot be raised to a negative power");
    return Value::real(std::pow(static_cast<double>(base), static_cast<double>(exponent)));
  }
  std::int64_t result = 1;
  if (base == 0 || base == 1) return Value::integer(exponent == 0 ? 1 : base);
  if (base == -1) return Value::integer(exponent % 2 == 0 ? 1 : -1);
  for (; exponent > 0; --exponent)
    if (__builtin_mul_overflow(result, base, &result)) overflow();
  return Value::integer(result);
}

// Integer arithmetic with a check for overflow; '/' always gives a float.
Value integer_op(BinaryOp op, std::int64_t a, std::int64_t b) {
  std::int64_t result = 0;
  switch (op) {
    case BinaryOp::kAdd:
      if (__builtin_add_overflow(a, b, &result)) overflow();
      return Value::integer(result);
    case BinaryOp::kSubtract:
      if (__builtin_sub_overflow(a, b, &result)) overflow();
      return Value::integer(result);
    case BinaryOp::kMultiply:
      if (__builtin_mul_overflow(a, b, &result)) overflow();
      return Value::integer(result);
    case BinaryOp::kDivide:
      if (b == 0) throw EvalError("division by zero");
      return Value::real(static_cast<double>(a) / static_cast<double>(b));
    case BinaryOp::kFloorDivide:
      return Value::integer(floor_divide(a, b));
    case BinaryOp::kModulo:
      return Value::integer(modulo(a, b));
    case BinaryOp::kPower:
      return power(a, b);
  }
  return {};
}

// The sign is that of the divisor, also for a zero.
double float_modulo(double a, double b) {
  double rest = std::fmod(a, b);
  if (rest != 0) {
    if ((b < 0) != (rest < 0)) rest += b;
    return rest;
  }
  return std::copysign(0.0, b);
}

/// CPython's algorithm: from the exact remainder, because rounding a / b first could give the wrong integer.
double float_floor_divide(double a, double b) {
  const double rest = std::fmod(a, b);
  double quotient = (a - rest) / b;
  if (rest != 0 && (b < 0) != (rest < 0)) quotient -= 1;
  if (quotient == 0) return std::copysign(0.0, a / b);
  const double down = std::floor(quotient);
  return quotient - down > 0.5 ? down + 1 : down;
}

// Float arithmetic with Python's errors where C++ gives infinity or NaN.
Value float_op(BinaryOp op, double a, double b) {
  const bool divides = op == BinaryOp::kDivide || op == BinaryOp::kFloorDivide || op == BinaryOp::kModulo;
  if (divides && b == 0) throw EvalError("float division by zero");
  switch (op) {
    case BinaryOp::kAdd:
      return Value::real(a + b);
    case BinaryOp::kSubtract:
      return Value::real(a - b);
    case BinaryOp::kMultiply:
      return Value::real(a * b);
    case BinaryOp::kDivide:
      return Value::real(a / b);
    case BinaryOp::kFloorDivide:
      return Value::real(float_floor_divide(a, b));
    case BinaryOp::kModulo:
      return Value::real(float_modulo(a, b));
    case BinaryOp::kPower:
      break;
  }
  if (a == 0 && b < 0) throw EvalError("0.0 cannot be raised to a negative power");
  if (a < 0 && std::isfinite(b) && b != std::floor(b)) throw EvalError("complex numbers are not supported");
  const double result = std::pow(a, b);
  if (std::isinf(result) && std::isfinite(a) && std::isfinite(b)) throw EvalError("numerical result out of range");
  return Value::real(result);
}

// "ab" * 3 and [1] * 3. The size is checked before anything is allocated.
Value repeat(Interp& interp, const Value& sequence, std::int64_t count) {
  if (count < 0) count = 0;
  const auto size = static_cast<std::uint64_t>(sequence.is_string() ? sequence.text().size() : length(sequence));
  if (size != 0 && static_cast<std::uint64_t>(count) > interp.text_bytes_max() / size)
    throw EvalError("the repeated text or list would be larger than the limit");
  if (sequence.is_string()) {
    std::string out;
    interp.budget.read(size * static_cast<std::uint64_t>(count));
    out.reserve(size * static_cast<std::uint64_t>(count));
    for (std::int64_t i = 0; i < count && size != 0; ++i) out += sequence.text();
    return interp.text(std::move(out), sequence.string().markup);
  }
  interp.budget.allocate(size * static_cast<std::uint64_t>(count) * sizeof(Value));
  std::vector<Value> items;
  for (std::int64_t i = 0; i < count && size != 0; ++i)
    items.insert(items.end(), sequence.list().items.begin(), sequence.list().items.end());
  return Value::list(std::move(items), sequence.list().kind);
}

// Adding markup and plain text escapes the plain text.
Value add_text(Interp& interp, const String& left, const String& right) {
  if (left.text.size() + right.text.size() > interp.text_bytes_max()) throw EvalError("a text grows beyond the limit");
  const bool markup = left.markup || right.markup;
  std::string out = markup && !left.markup ? escape_html(left.text) : left.text;
  out += markup && !right.markup ? escape_html(right.text) : right.text;
  return interp.text(std::move(out), markup);
}

// Strings, lists and tuples can be added and repeated.
bool repeatable(const Value& value) {
  return value.is_string() || value.is_list(ListKind::kList) || value.is_list(ListKind::kTuple);
}

// What an undefined value's message calls the object.
std::string type_label(const Value& object) {
  if (object.is(Kind::kNone)) return "None";
  return fmt::format("{} object", object.type_name());
}

}  // namespace

// `left op right`. A string on the left of '%' is a format. Charges what the result holds.
Value Interp::binary(BinaryOp op, const Value& left, const Value& right) {
  if (op == BinaryOp::kModulo && left.is_string()) return text(format_percent(*this, left.text(), right));
  require_defined(left);
  require_defined(right);
  if (left.is_integer() && right.is_integer()) return integer_op(op, left.integer(), right.integer());
  if (left.is_number() && right.is_number()) return float_op(op, left.real(), right.real());
  if (op == BinaryOp::kAdd && left.is_string() && right.is_string())
    return add_text(*this, left.string(), right.string());
  if (op == BinaryOp::kAdd && repeatable(left) && right.is(Kind::kList) && left.is(Kind::kList) &&
      left.list().kind == right.list().kind) {
    std::vector<Value> items = left.list().items;
    items.insert(items.end(), right.list().items.begin(), right.list().items.end());
    return list(std::move(items), left.list().kind);
  }
  if (op == BinaryOp::kMultiply && repeatable(left) && right.is_integer()) return repeat(*this, left, right.integer());
  if (op == BinaryOp::kMultiply && repeatable(right) && left.is_integer()) return repeat(*this, right, left.integer());
  if (op == BinaryOp::kAdd && left.is_string())
    throw EvalError(fmt::format("can only concatenate str (not \"{}\") to str", right.type_name()));
  unsupported(op, left, right);
}

// `item in container`. Searching an iterator uses up its elements, as in Python.
bool Interp::contains(const Value& container, const Value& item) {
  switch (container.kind()) {
    case Kind::kUndefined:
      return false;
    case Kind::kString:
      if (!item.is_string())
        throw EvalError(fmt::format("'in <string>' requires string as left operand, not {}", item.type_name()));
      budget.read(container.text().size());
      return find_text(container.text(), item.text()) != std::string::npos;
    case Kind::kDict:
      if (!hash(item, budget)) throw EvalError(fmt::format("unhashable type: '{}'", item.type_name()));
      return container.dict().find(item, budget) != nullptr;
    case Kind::kList:
      return std::ranges::any_of(container.list().items, [&](const Value& each) { return equal(each, item, budget); });
    case Kind::kIterator: {
      Iterator& source = container.iterator();
      while (source.next < source.items.size())
        if (equal(source.items[source.next++], item, budget)) return true;
      return false;
    }
    default:
      throw EvalError(fmt::format("argument of type '{}' is not iterable", container.type_name()));
  }
}

// The undefined value for a missing attribute or item; its hint is the error shown if it is used.
Value Interp::missing(const Value& object, const Value& key) const {
  if (key.is_string())
    return Value::undefined(fmt::format("'{}' has no attribute '{}'", type_label(object), key.text()));
  Budget small{1000, 100000};  // not charged to the render; the key is a number, None or the like
  return Value::undefined(
      fmt::format("{} has no element {}", type_label(object), key.nesting() > 0 ? "of that key" : to_repr(key, small)));
}

// object.name: the attribute or method first, then the item, as in Jinja. Names with double underscores and mutating
// methods are hidden by the sandbox.
Value Interp::get_attribute(const Value& object, std::string_view name) {
  require_defined(object);
  if ((name.starts_with("__") && name.ends_with("__")) || is_mutator(object, name))
    return Value::undefined(fmt::format("access to attribute '{}' of '{}' object is unsafe", name, object.type_name()));
  if (std::optional<Value> attribute = find_attribute(*this, object, name)) return *attribute;
  if (object.is(Kind::kDict))
    if (const Value* value = object.dict().find(name)) return *value;
  return missing(object, Value::string(std::string(name)));
}

// object[key]: the item first, then the attribute.
Value Interp::get_item(const Value& object, const Value& key) {
  require_defined(object);
  if (object.is(Kind::kDict))
    if (const Value* value = object.dict().find(key, budget)) return *value;
  if (key.is_integer() && (object.is_string() || (object.is(Kind::kList) && object.list().kind <= ListKind::kRange))) {
    const std::int64_t size = length(object);
    const std::int64_t index = key.integer() < 0 ? key.integer() + size : key.integer();
    if (index < 0 || index >= size) return missing(object, key);
    const auto at = static_cast<std::size_t>(index);
    if (object.is(Kind::kList)) return object.list().items[at];
    budget.read(object.string().ascii() ? 1 : object.text().size());
    return text(substring(object.string(), at, at + 1), object.string().markup);
  }
  if (!key.is_string()) return missing(object, key);
  const std::string& name = key.text();
  if ((name.starts_with("__") && name.ends_with("__")) || is_mutator(object, name))
    return Value::undefined(fmt::format("access to attribute '{}' of '{}' object is unsafe", name, object.type_name()));
  if (std::optional<Value> attribute = find_attribute(*this, object, name)) return *attribute;
  return missing(object, key);
}

Value Interp::text(std::string text, bool markup) {
  if (text.size() > limits_.output_bytes_max) throw EvalError("a text grows beyond the limit");
  budget.allocate(text.size() + sizeof(String));
  return Value::string(std::move(text), markup);
}

Value Interp::list(std::vector<Value> items, ListKind kind) {
  budget.allocate(items.size() * sizeof(Value) + sizeof(List));
  return Value::list(std::move(items), kind);
}

Value Interp::generator(std::vector<Value> items, std::string name) {
  budget.allocate(items.size() * sizeof(Value) + sizeof(Iterator));
  return Value::iterator(std::move(items), std::move(name));
}

Value Interp::make_namespace(std::vector<std::pair<std::string, Value>> attributes) {
  budget.allocate(sizeof(Namespace) + attributes.size() * sizeof(Value));
  namespaces_.push_back(std::make_shared<Namespace>(Namespace{std::move(attributes)}));
  return Value::object(namespaces_.back());
}

std::string Interp::to_str_charged(const Value& value) {
  return to_str(value, budget);
}

}  // namespace forge::text::jinja

// The evaluator's expressions. Operators on values are in operators.cc.
#include <fmt/format.h>

#include <algorithm>

#include "text/jinja/interp.h"
#include "text/jinja/pytext.h"

namespace forge::text::jinja {
namespace {

/// The result of Python's slice.indices() and the number of elements it selects.
struct SliceRange {
  std::int64_t start, stop, step, count;
};

SliceRange slice_range(std::optional<std::int64_t> start, std::optional<std::int64_t> stop,
                       std::optional<std::int64_t> step_given, std::int64_t size) {
  // Clamped, so that arithmetic with it cannot overflow; no sequence is that long.
  const std::int64_t step = std::clamp<std::int64_t>(step_given.value_or(1), -(1ll << 40), 1ll << 40);
  if (step == 0) throw EvalError("slice step cannot be zero");
  const std::int64_t low = step < 0 ? -1 : 0, high = step < 0 ? size - 1 : size;
  const auto bound = [&](std::optional<std::int64_t> at, std::int64_t otherwise) {
    if (!at) return otherwise;
    return std::clamp(*at < 0 ? *at + size : *at, low, high);
  };
  const std::int64_t first = bound(start, step < 0 ? high : low), last = bound(stop, step < 0 ? low : high);
  const std::int64_t span = step < 0 ? first - last : last - first;
  const std::int64_t width = step < 0 ? -step : step;
  return {first, last, step, span <= 0 ? 0 : (span + width - 1) / width};
}

/// True if jinja2 can write the value as a literal into the code it generates. Only then does its compiler fold the
/// node.
bool has_literal(const Value& value) {
  if (value.is(Kind::kDict))
    return std::ranges::all_of(value.dict().entries(),
                               [](const auto& entry) { return has_literal(entry.first) && has_literal(entry.second); });
  if (value.is(Kind::kList)) {
    const ListKind kind = value.list().kind;
    return kind == ListKind::kRange ||
           ((kind == ListKind::kList || (kind == ListKind::kTuple && value.list().label.empty())) &&
            std::ranges::all_of(value.list().items, has_literal));
  }
  return value.is(Kind::kNone) || value.is_integer() || value.is(Kind::kFloat) || value.is_string();
}

}  // namespace

// Evaluates the node under the rules of jinja2's compiler: no names, no context, and a slice that fails is undefined.
std::optional<Value> Interp::fold(const Node& node) {
  folding_ = true;
  std::optional<Value> value;
  try {
    value = eval(node);
  } catch (const EvalError&) {
    value.reset();  // evaluating it again at run time gives the error its place
  }
  folding_ = false;
  return value;
}

// Evaluates an expression. A node that jinja2 would fold is folded first, for the sake of slices (see Node::folds).
Value Interp::eval(const Node& node) {
  const Level level(*this);
  if (folding_ && !node.constant) throw EvalError("left to the render");
  if (node.folds() && !folding_)
    if (std::optional<Value> value = fold(node); value && has_literal(*value)) return *std::move(value);
  switch (node.kind) {
    case NodeKind::kConst:
      return static_cast<const ConstNode&>(node).value;
    case NodeKind::kName:
      return lookup(static_cast<const NameNode&>(node).symbol);
    case NodeKind::kAnd: {
      const auto& both = static_cast<const BinaryNode&>(node);
      Value left = eval(*both.left);
      return truth(left) ? eval(*both.right) : left;
    }
    case NodeKind::kOr: {
      const auto& both = static_cast<const BinaryNode&>(node);
      Value left = eval(*both.left);
      return truth(left) ? left : eval(*both.right);
    }
    case NodeKind::kNot:
    case NodeKind::kNegate:
    case NodeKind::kPlus:
      return eval_unary(static_cast<const UnaryNode&>(node));
    case NodeKind::kBinary: {
      const auto& both = static_cast<const BinaryNode&>(node);
      const Value left = eval(*both.left);
      const Value right = eval(*both.right);
      position_ = node.pos;
      return binary(both.op, left, right);
    }
    case NodeKind::kCompare:
      return eval_compare(static_cast<const CompareNode&>(node));
    case NodeKind::kConcat:
      return eval_concat(static_cast<const ItemsNode&>(node));
    case NodeKind::kCondition:
      return eval_condition(static_cast<const ConditionNode&>(node));
    case NodeKind::kAttribute: {
      const auto& attribute = static_cast<const AttributeNode&>(node);
      const Value object = eval(*attribute.object);
      position_ = node.pos;
      return get_attribute(object, attribute.name);
    }
    case NodeKind::kItem:
      return eval_item(static_cast<const BinaryNode&>(node));
    case NodeKind::kCall:
      return eval_call(static_cast<const CallNode&>(node), nullptr);
    case NodeKind::kFilter:
      return eval_filter(static_cast<const FilterNode&>(node), nullptr);
    case NodeKind::kTest:
      return eval_test(static_cast<const TestNode&>(node));
    case NodeKind::kList:
      return eval_items(static_cast<const ItemsNode&>(node), ListKind::kList);
    case NodeKind::kTuple:
      return eval_items(static_cast<const ItemsNode&>(node), ListKind::kTuple);
    case NodeKind::kDict:
      return eval_dict(static_cast<const DictNode&>(node));
    case NodeKind::kSlice:
      throw EvalError("a slice stands where it cannot be used");
    default:
      throw EvalError("a statement stands where an expression should");
  }
}

// -x is 0 - x, which detects the overflow of the smallest int64.
Value Interp::eval_unary(const UnaryNode& node) {
  const Value value = eval(*node.child);
  position_ = node.pos;
  if (node.kind == NodeKind::kNot) return Value::boolean(!truth(value));
  require_defined(value);
  const bool negate = node.kind == NodeKind::kNegate;
  if (value.is(Kind::kFloat)) return Value::real(negate ? -value.real() : value.real());
  if (!value.is_integer())
    throw EvalError(fmt::format("bad operand type for unary {}: '{}'", negate ? '-' : '+', value.type_name()));
  return negate ? binary(BinaryOp::kSubtract, Value::integer(0), value) : Value::integer(value.integer());
}

// One comparison. Values without an order (NaN) compare as false.
bool Interp::compare_one(CompareOp op, const Value& left, const Value& right) {
  const auto order = [&](std::string_view text) { return compare(left, right, text, budget); };
  switch (op) {
    case CompareOp::kEqual:
      return equal(left, right, budget);
    case CompareOp::kNotEqual:
      return !equal(left, right, budget);
    case CompareOp::kIn:
      return contains(right, left);
    case CompareOp::kNotIn:
      return !contains(right, left);
    case CompareOp::kLess:
      return order("<").value_or(1) < 0;
    case CompareOp::kLessEqual:
      return order("<=").value_or(1) <= 0;
    case CompareOp::kGreater:
      return order(">").value_or(-1) > 0;
    case CompareOp::kGreaterEqual:
      return order(">=").value_or(-1) >= 0;
  }
  return false;
}

// As in Python, a chain stops at the first comparison that is false.
Value Interp::eval_compare(const CompareNode& node) {
  Value left = eval(*node.first);
  for (const auto& [op, next] : node.rest) {
    Value right = eval(*next);
    position_ = node.pos;
    if (!compare_one(op, left, right)) return Value::boolean(false);
    left = std::move(right);
  }
  return Value::boolean(true);
}

// Without an else the value is undefined; jinja2 cannot fold that.
Value Interp::eval_condition(const ConditionNode& node) {
  if (truth(eval(*node.test))) return eval(*node.then);
  if (node.otherwise) return eval(*node.otherwise);
  if (folding_) throw EvalError("left to the render");
  return Value::undefined("the inline if-expression evaluated to false and no else section was defined");
}

// a ~ b: the operands as strings, joined.
Value Interp::eval_concat(const ItemsNode& node) {
  std::string joined;
  for (const NodePtr& item : node.items) {
    joined += str(eval(*item));
    if (joined.size() > text_bytes_max()) throw EvalError("a text grows beyond the limit");
  }
  return text(std::move(joined));
}

Value Interp::eval_items(const ItemsNode& node, ListKind kind) {
  std::vector<Value> items;
  items.reserve(node.items.size());
  for (const NodePtr& item : node.items) items.push_back(eval(*item));
  position_ = node.pos;
  return list(std::move(items), kind);
}

// A dict literal; a later entry replaces an earlier one of the same key.
Value Interp::eval_dict(const DictNode& node) {
  Dict dict;
  for (const auto& [key_node, value_node] : node.items) {
    Value key = eval(*key_node);
    Value value = eval(*value_node);
    position_ = node.pos;
    budget.allocate(2 * sizeof(Value));
    dict.set(std::move(key), std::move(value), budget);
  }
  return Value::dict(std::move(dict));
}

Value Interp::eval_item(const BinaryNode& node) {
  const Value object = eval(*node.left);
  if (node.right->kind == NodeKind::kSlice) return eval_slice(object, static_cast<const ItemsNode&>(*node.right));
  const Value key = eval(*node.right);
  position_ = node.pos;
  return get_item(object, key);
}

// object[start:stop:step] on strings, lists, tuples and ranges. A slice of a range is a range.
Value Interp::eval_slice(const Value& object, const ItemsNode& slice) {
  std::optional<std::int64_t> bounds[3];
  bool integers = true;
  for (std::size_t i = 0; i < 3; ++i) {
    if (!slice.items[i]) continue;
    const Value bound = eval(*slice.items[i]);
    if (bound.is(Kind::kNone)) continue;
    integers &= bound.is_integer();
    if (integers) bounds[i] = bound.integer();
  }
  position_ = slice.pos;
  require_defined(object);
  const bool sequence = object.is_string() || (object.is(Kind::kList) && object.list().kind <= ListKind::kRange);
  // A failed look-up of an item is undefined, but a failed slice is an error, unless jinja2 folds it.
  if (!sequence || !integers) {
    const std::string why = sequence ? "slice indices must be integers or None"
                                     : fmt::format("'{}' object cannot be sliced", object.type_name());
    if (folding_) return Value::undefined(why);
    throw EvalError(why);
  }
  const std::int64_t size = length(object);
  const SliceRange range = slice_range(bounds[0], bounds[1], bounds[2], size);
  if (object.is_string()) {
    const String& string = object.string();
    budget.read(string.text.size());
    if (range.step == 1) {
      const auto first = static_cast<std::size_t>(range.start);
      return text(substring(string, first, first + static_cast<std::size_t>(range.count)), string.markup);
    }
    const std::u32string codes = decode(string.text);
    std::u32string picked;
    for (std::int64_t i = 0; i < range.count; ++i)
      picked += codes[static_cast<std::size_t>(range.start + i * range.step)];
    return text(encode(picked), string.markup);
  }
  std::vector<Value> picked;
  for (std::int64_t i = 0; i < range.count; ++i)
    picked.push_back(object.list().items[static_cast<std::size_t>(range.start + i * range.step)]);
  if (object.list().kind != ListKind::kRange) return list(std::move(picked), object.list().kind);
  const List& whole = object.list();
  // The bounds of a sliced range, in unsigned arithmetic: those of a short range may lie anywhere in 64 bits.
  const auto scaled = [&](std::int64_t index) {
    return static_cast<std::uint64_t>(index) * static_cast<std::uint64_t>(whole.step);
  };
  const auto bound = [&](std::int64_t index) {
    return static_cast<std::int64_t>(static_cast<std::uint64_t>(whole.start) + scaled(index));
  };
  return Value::range(bound(range.start), bound(range.stop), static_cast<std::int64_t>(scaled(range.step)),
                      std::move(picked));
}

// Evaluates arguments in Python's order and expands *star and **star_star.
CallArgs Interp::eval_arguments(const Arguments& arguments) {
  CallArgs values;
  values.positional.reserve(arguments.positional.size());
  for (const NodePtr& node : arguments.positional) values.positional.push_back(eval(*node));
  for (const auto& [name, node] : arguments.named) values.named.emplace_back(name, eval(*node));
  if (arguments.star)
    for (Value& value : elements(eval(*arguments.star), budget)) values.positional.push_back(std::move(value));
  if (arguments.star_star) {
    const Value more = eval(*arguments.star_star);
    if (!more.is(Kind::kDict)) throw EvalError("the argument after ** must be a mapping");
    for (const auto& [key, value] : more.dict().entries()) {
      const std::string& name = require_text(key, "a keyword");
      for (const auto& named : values.named)
        if (named.first == name) throw EvalError(fmt::format("the argument '{}' is given twice", name));
      values.named.emplace_back(name, value);
    }
  }
  return values;
}

// `caller` is the macro that a {% call %} block passes along; null for ordinary calls.
Value Interp::eval_call(const CallNode& node, const Value* caller) {
  const Value callee = eval(*node.callee);
  CallArgs arguments = eval_arguments(node.arguments);
  if (caller != nullptr) arguments.named.emplace_back("caller", *caller);
  position_ = node.pos;
  return call(callee, arguments);
}

// Also calls loop(...), which is not a Callable.
Value Interp::call(const Value& callee, CallArgs& arguments) {
  require_defined(callee);
  if (callee.is(Kind::kLoop)) return call_loop(callee.loop(), arguments);
  if (!callee.is(Kind::kCallable) || !callee.callable().call)
    throw EvalError(fmt::format("'{}' object is not callable", callee.type_name()));
  return callee.callable().call(*this, arguments);
}

// `input` is the text of a filter or set block, which the first filter of the chain gets; null in expressions.
Value Interp::eval_filter(const FilterNode& node, const Value* input) {
  const Value value = node.input ? (node.input->kind == NodeKind::kFilter
                                        ? eval_filter(static_cast<const FilterNode&>(*node.input), input)
                                        : eval(*node.input))
                                 : *input;
  CallArgs arguments = eval_arguments(node.arguments);
  position_ = node.pos;
  if (node.row == nullptr) throw EvalError(fmt::format("there is no filter named '{}'", node.name));
  if (value.is_string()) budget.read(value.text().size());
  return node.row->apply(*this, value, arguments);
}

Value Interp::eval_test(const TestNode& node) {
  const Value value = eval(*node.input);
  CallArgs arguments = eval_arguments(node.arguments);
  position_ = node.pos;
  if (node.row == nullptr) throw EvalError(fmt::format("there is no test named '{}'", node.name));
  return Value::boolean(node.row->apply(*this, value, arguments));
}

}  // namespace forge::text::jinja

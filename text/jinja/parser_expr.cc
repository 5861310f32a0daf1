// The parser's expressions, from loose to tight precedence.
#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "support/error.h"
#include "text/jinja/builtins.h"
#include "text/jinja/parser.h"

namespace forge::text::jinja {

/// One expression, or several with commas between them as a tuple. `simple`: only targets of an assignment. `end_name`:
/// a keyword that ends the list. `parentheses`: the empty tuple is allowed.
NodePtr Parser::parse_tuple(bool simple, bool with_condition, std::string_view end_name, bool parentheses,
                            bool with_namespace) {
  const Level level(*this);
  auto tuple = std::make_unique<ItemsNode>(NodeKind::kTuple, current().pos);
  bool commas = false;
  while (true) {
    if (!tuple->items.empty()) expect_op(",");
    const Tok type = current().type;
    if (type == Tok::kVariableEnd || type == Tok::kBlockEnd || at_op(")") || (!end_name.empty() && at_name(end_name)))
      break;
    tuple->items.push_back(simple ? parse_primary(with_namespace) : parse_expression(with_condition));
    if (!at_op(",")) break;
    commas = true;
  }
  if (!commas && !tuple->items.empty()) return std::move(tuple->items.front());
  if (!commas && !parentheses) fail_here("an expression");
  update_from(*tuple, tuple->items);
  return tuple;
}

// then if test else otherwise; the part before "if" is parsed first.
NodePtr Parser::parse_expression(bool with_condition) {
  const Level level(*this);
  if (!with_condition) return parse_or();
  const std::uint32_t pos = current().pos;
  NodePtr value = parse_or();
  while (skip_name("if")) {
    auto node = std::make_unique<ConditionNode>(pos);
    const bool outer_conditional = std::exchange(in_conditional_, true);
    node->then = std::move(value);
    node->test = parse_or();
    if (skip_name("else")) node->otherwise = parse_expression();
    in_conditional_ = outer_conditional;
    update_from(*node, node->then.get());
    update_from(*node, node->test.get());
    update_from(*node, node->otherwise.get());
    // jinja2 evaluates the condition first and folds the branch that it chooses.
    node->constant = node->test->constant;
    value = std::move(node);
  }
  return value;
}

NodePtr Parser::parse_or() {
  NodePtr left = parse_and();
  while (at_name("or")) {
    const std::uint32_t pos = tokens_[at_++].pos;
    left = binary(NodeKind::kOr, pos, std::move(left), parse_and());
  }
  return left;
}

NodePtr Parser::parse_and() {
  NodePtr left = parse_not();
  while (at_name("and")) {
    const std::uint32_t pos = tokens_[at_++].pos;
    left = binary(NodeKind::kAnd, pos, std::move(left), parse_not());
  }
  return left;
}

NodePtr Parser::parse_not() {
  const Level level(*this);
  if (!at_name("not")) return parse_compare();
  const std::uint32_t pos = tokens_[at_++].pos;
  auto node = std::make_unique<UnaryNode>(NodeKind::kNot, pos, parse_not());
  update_from(*node, node->child.get());
  return node;
}

// Comparisons form a chain in one node. "in" and "not in" are comparisons, too.
NodePtr Parser::parse_compare() {
  static constexpr std::pair<std::string_view, CompareOp> kOps[] = {
      {"==", CompareOp::kEqual},     {"!=", CompareOp::kNotEqual}, {"<", CompareOp::kLess},
      {"<=", CompareOp::kLessEqual}, {">", CompareOp::kGreater},   {">=", CompareOp::kGreaterEqual}};
  NodePtr first = parse_sum();
  std::unique_ptr<CompareNode> node;
  while (true) {
    const CompareOp* op = nullptr;
    const std::uint32_t pos = current().pos;
    CompareOp found{};
    if (current().type == Tok::kOperator) {
      for (const auto& [text, code] : kOps)
        if (at_op(text)) op = &code;
      if (op != nullptr) ++at_;
    } else if (skip_name("in")) {
      found = CompareOp::kIn;
      op = &found;
    } else if (at_name("not") && peek().type == Tok::kName && peek().text == "in") {
      at_ += 2;
      found = CompareOp::kNotIn;
      op = &found;
    }
    if (op == nullptr) break;
    if (!node) {
      node = std::make_unique<CompareNode>(pos, std::move(first));
      update_from(*node, node->first.get());
    }
    node->rest.emplace_back(*op, parse_sum());
    update_from(*node, node->rest.back().second.get());
  }
  if (!node) return first;
  // A chain may stop at its first comparison, so the later operands need not be constant.
  node->constant = node->first->constant;
  return node;
}

NodePtr Parser::parse_sum() {
  NodePtr left = parse_concat();
  while (at_op("+") || at_op("-")) {
    const Token& token = tokens_[at_++];
    const BinaryOp op = token.text == "+" ? BinaryOp::kAdd : BinaryOp::kSubtract;
    left = binary(NodeKind::kBinary, token.pos, std::move(left), parse_concat(), op);
  }
  return left;
}

NodePtr Parser::parse_concat() {
  NodePtr first = parse_product();
  if (!at_op("~")) return first;
  auto node = std::make_unique<ItemsNode>(NodeKind::kConcat, current().pos);
  node->items.push_back(std::move(first));
  while (skip_op("~")) node->items.push_back(parse_product());
  update_from(*node, node->items);
  return node;
}

NodePtr Parser::parse_product() {
  NodePtr left = parse_power();
  while (at_op("*") || at_op("/") || at_op("//") || at_op("%")) {
    const Token& token = tokens_[at_++];
    const BinaryOp op = token.text == "*"    ? BinaryOp::kMultiply
                        : token.text == "/"  ? BinaryOp::kDivide
                        : token.text == "//" ? BinaryOp::kFloorDivide
                                             : BinaryOp::kModulo;
    left = binary(NodeKind::kBinary, token.pos, std::move(left), parse_power(), op);
  }
  return left;
}

// Unlike Python's, Jinja's ** is left-associative.
NodePtr Parser::parse_power() {
  NodePtr left = parse_unary();
  while (at_op("**")) {
    const std::uint32_t pos = tokens_[at_++].pos;
    left = binary(NodeKind::kBinary, pos, std::move(left), parse_unary(), BinaryOp::kPower);
  }
  return left;
}

NodePtr Parser::binary(NodeKind kind, std::uint32_t pos, NodePtr left, NodePtr right, BinaryOp op) {
  auto node = std::make_unique<BinaryNode>(kind, pos, std::move(left), std::move(right), op);
  update_from(*node, node->left.get());
  update_from(*node, node->right.get());
  // The second operand may never be evaluated, so it need not be constant.
  if (kind == NodeKind::kAnd || kind == NodeKind::kOr) node->constant = node->left->constant;
  return node;
}

// Filters bind looser than the sign: -1|abs is (-1)|abs.
NodePtr Parser::parse_unary(bool with_filter) {
  const Level level(*this);
  NodePtr node;
  if (at_op("-") || at_op("+")) {
    const Token& token = tokens_[at_++];
    const NodeKind kind = token.text == "-" ? NodeKind::kNegate : NodeKind::kPlus;
    auto unary = std::make_unique<UnaryNode>(kind, token.pos, parse_unary(false));
    update_from(*unary, unary->child.get());
    node = std::move(unary);
  } else {
    node = parse_primary();
  }
  node = parse_postfix(std::move(node));
  return with_filter ? parse_filter_expr(std::move(node)) : std::move(node);
}

// A name, a literal, a list, a dict or an expression in parentheses. Adjacent string literals are joined.
NodePtr Parser::parse_primary(bool with_namespace) {
  const Token& token = current();
  switch (token.type) {
    case Tok::kName: {
      ++at_;
      const std::string& name = token.text;
      if (name == "true" || name == "True") return std::make_unique<ConstNode>(token.pos, Value::boolean(true));
      if (name == "false" || name == "False") return std::make_unique<ConstNode>(token.pos, Value::boolean(false));
      if (name == "none" || name == "None") return std::make_unique<ConstNode>(token.pos, Value());
      if (with_namespace && skip_op("."))
        return std::make_unique<NamespaceRefNode>(token.pos, intern(name), expect_identifier());
      return make_name(token.pos, name);
    }
    case Tok::kString: {
      std::string text;
      while (current().type == Tok::kString) text += tokens_[at_++].text;
      return std::make_unique<ConstNode>(token.pos, Value::string(std::move(text)));
    }
    case Tok::kInteger:
      ++at_;
      return std::make_unique<ConstNode>(token.pos, Value::integer(token.integer));
    case Tok::kFloat:
      ++at_;
      return std::make_unique<ConstNode>(token.pos, Value::real(token.real));
    default:
      break;
  }
  if (at_op("[")) return parse_list();
  if (at_op("{")) return parse_dict();
  if (!skip_op("(")) fail_here("an expression");
  NodePtr node = parse_tuple(false, true, {}, true);
  expect_op(")");
  return node;
}

NodePtr Parser::parse_list() {
  auto node = std::make_unique<ItemsNode>(NodeKind::kList, current().pos);
  ++at_;
  while (!at_op("]")) {
    if (!node->items.empty()) expect_op(",");
    if (at_op("]")) break;
    node->items.push_back(parse_expression());
  }
  ++at_;
  update_from(*node, node->items);
  return node;
}

NodePtr Parser::parse_dict() {
  auto node = std::make_unique<DictNode>(current().pos);
  ++at_;
  while (!at_op("}")) {
    if (!node->items.empty()) expect_op(",");
    if (at_op("}")) break;
    NodePtr key = parse_expression();
    expect_op(":");
    NodePtr value = parse_expression();
    update_from(*node, key.get());
    update_from(*node, value.get());
    node->items.emplace_back(std::move(key), std::move(value));
  }
  ++at_;
  return node;
}

// Attributes, items and calls after an expression.
NodePtr Parser::parse_postfix(NodePtr node) {
  while (true) {
    if (at_op(".") || at_op("["))
      node = parse_subscript(std::move(node));
    else if (at_op("("))
      node = parse_call(std::move(node));
    else
      return node;
  }
}

// Filters, tests and calls after an expression.
NodePtr Parser::parse_filter_expr(NodePtr node) {
  while (true) {
    if (at_op("|"))
      node = parse_filters(std::move(node), false);
    else if (at_name("is"))
      node = parse_test(std::move(node));
    else if (at_op("("))
      node = parse_call(std::move(node));
    else
      return node;
  }
}

// .name, .0 or [key]; several keys form a tuple.
NodePtr Parser::parse_subscript(NodePtr node) {
  const std::uint32_t pos = current().pos;
  if (skip_op(".")) {
    const Token& token = tokens_[at_++];
    if (token.type == Tok::kInteger)
      return binary(NodeKind::kItem, pos, std::move(node),
                    std::make_unique<ConstNode>(token.pos, Value::integer(token.integer)));
    if (token.type != Tok::kName) fail(token.pos, "expected a name or a number after '.'");
    auto attribute = std::make_unique<AttributeNode>(pos, std::move(node), token.text);
    update_from(*attribute, attribute->object.get());
    return attribute;
  }
  ++at_;  // [
  auto keys = std::make_unique<ItemsNode>(NodeKind::kTuple, pos);
  while (!at_op("]")) {
    if (!keys->items.empty()) expect_op(",");
    keys->items.push_back(parse_subscribed());
  }
  ++at_;
  if (keys->items.empty()) fail(pos, "expected an index");
  if (keys->items.size() == 1) return binary(NodeKind::kItem, pos, std::move(node), std::move(keys->items.front()));
  update_from(*keys, keys->items);
  return binary(NodeKind::kItem, pos, std::move(node), std::move(keys));
}

// One key inside square brackets: an expression or a slice start:stop:step.
NodePtr Parser::parse_subscribed() {
  auto slice = std::make_unique<ItemsNode>(NodeKind::kSlice, current().pos);
  slice->items.resize(3);
  if (!at_op(":")) {
    slice->items[0] = parse_expression();
    if (!at_op(":")) return std::move(slice->items[0]);
  }
  for (int part = 1; part < 3 && skip_op(":"); ++part)
    if (!at_op(":") && !at_op("]") && !at_op(",")) slice->items[static_cast<std::size_t>(part)] = parse_expression();
  update_from(*slice, slice->items);
  return slice;
}

// The arguments of a call in Python's order: positional, named, *star, **star_star.
Arguments Parser::parse_arguments() {
  Arguments arguments;
  const std::uint32_t open = current().pos;
  expect_op("(");
  bool comma = false;
  const auto ensure = [&](bool holds) {
    if (!holds) fail(open, "the arguments of this call are out of order");
  };
  while (!at_op(")")) {
    if (comma) {
      expect_op(",");
      if (at_op(")")) break;
    }
    comma = true;
    if (skip_op("*")) {
      ensure(!arguments.star && !arguments.star_star);
      arguments.star = parse_expression();
    } else if (skip_op("**")) {
      ensure(!arguments.star_star);
      arguments.star_star = parse_expression();
    } else if (current().type == Tok::kName && peek().type == Tok::kOperator && peek().text == "=") {
      ensure(!arguments.star_star);
      std::string name = current().text;
      for (const auto& named : arguments.named)
        if (named.first == name) fail(current().pos, fmt::format("the argument '{}' is given twice", printable(name)));
      at_ += 2;
      arguments.named.emplace_back(std::move(name), parse_expression());
    } else {
      ensure(!arguments.star && !arguments.star_star && arguments.named.empty());
      arguments.positional.push_back(parse_expression());
    }
  }
  ++at_;
  return arguments;
}

NodePtr Parser::parse_call(NodePtr callee) {
  auto node = std::make_unique<CallNode>(current().pos, std::move(callee));
  node->arguments = parse_arguments();
  update_from(*node, node->callee.get());
  update_from(*node, node->arguments);
  return node;
}

NodePtr Parser::parse_filters(NodePtr node, bool bare) {
  while (bare || at_op("|")) {
    if (!std::exchange(bare, false)) ++at_;
    auto filter = std::make_unique<FilterNode>(current().pos);
    filter->name = expect_identifier();
    while (skip_op(".")) filter->name += "." + expect_identifier();
    filter->row = find_filter(filter->name);
    if (filter->row == nullptr && !in_conditional_)
      fail(filter->pos, fmt::format("there is no filter named '{}'", printable(filter->name)));
    // Filters that need the render's context, which jinja2 therefore does not fold.
    static constexpr std::string_view kContextFilters[] = {"map",        "random", "reject",
                                                           "rejectattr", "select", "selectattr"};
    filter->constant =
        node != nullptr && filter->row != nullptr && std::ranges::count(kContextFilters, filter->name) == 0;
    filter->input = std::move(node);
    if (at_op("(")) filter->arguments = parse_arguments();
    update_from(*filter, filter->input.get());
    update_from(*filter, filter->arguments);
    node = std::move(filter);
  }
  return node;
}

// `x is [not] name`, with arguments in parentheses or a single one without: x is divisibleby 3.
NodePtr Parser::parse_test(NodePtr node) {
  ++at_;  // is
  const std::uint32_t pos = current().pos;
  const bool negated = skip_name("not");
  auto test = std::make_unique<TestNode>(current().pos);
  test->name = expect_identifier();
  while (skip_op(".")) test->name += "." + expect_identifier();
  test->row = find_test(test->name);
  if (test->row == nullptr && !in_conditional_)
    fail(test->pos, fmt::format("there is no test named '{}'", printable(test->name)));
  test->constant = test->row != nullptr;
  test->input = std::move(node);
  const Tok type = current().type;
  if (at_op("(")) {
    test->arguments = parse_arguments();
  } else if ((type == Tok::kName && !at_name("else") && !at_name("or") && !at_name("and")) || type == Tok::kString ||
             type == Tok::kInteger || type == Tok::kFloat || at_op("[") || at_op("{")) {
    if (at_name("is")) fail(current().pos, "tests with 'is' cannot be chained");
    test->arguments.positional.push_back(parse_postfix(parse_primary()));
  }
  update_from(*test, test->input.get());
  update_from(*test, test->arguments);
  if (!negated) return test;
  auto negation = std::make_unique<UnaryNode>(NodeKind::kNot, pos, std::move(test));
  update_from(*negation, negation->child.get());
  return negation;
}

}  // namespace forge::text::jinja

// The parser's statements and its helpers for tokens and nodes. Expressions are in parser_expr.cc.
#include "text/jinja/parser.h"

#include <fmt/format.h>

#include <algorithm>

#include "support/error.h"
#include "text/jinja/pytext.h"

namespace forge::text::jinja {

Parser::Parser(Program& program) : program_(program), tokens_(tokenize(program.source)) {
  program_.loop = intern("loop");
  program_.caller = intern("caller");
  program_.kwargs = intern("kwargs");
  program_.varargs = intern("varargs");
}

void Parser::run() {
  program_.body = parse_body({}, 0, {});
}

bool Parser::skip_name(std::string_view name) {
  if (!at_name(name)) return false;
  ++at_;
  return true;
}

bool Parser::skip_op(std::string_view op) {
  if (!at_op(op)) return false;
  ++at_;
  return true;
}

void Parser::expect_op(std::string_view op) {
  if (!skip_op(op)) fail_here(fmt::format("'{}'", op));
}

void Parser::expect_name(std::string_view name) {
  if (!skip_name(name)) fail_here(fmt::format("'{}'", name));
}

std::string Parser::expect_identifier() {
  if (current().type != Tok::kName) fail_here("a name");
  return tokens_[at_++].text;
}

void Parser::fail(std::uint32_t pos, std::string message) const {
  throw SyntaxError{pos, std::move(message)};
}

void Parser::fail_here(std::string_view wanted) const {
  const Token& token = current();
  std::string found;
  switch (token.type) {
    case Tok::kText:
      found = "text";
      break;
    case Tok::kVariableBegin:
      found = "'{{'";
      break;
    case Tok::kVariableEnd:
      found = "'}}'";
      break;
    case Tok::kBlockBegin:
      found = "'{%'";
      break;
    case Tok::kBlockEnd:
      found = "'%}'";
      break;
    case Tok::kEnd:
      found = "the end of the template";
      break;
    case Tok::kString:
      found = "a string";
      break;
    case Tok::kName:
    case Tok::kInteger:
    case Tok::kFloat:
    case Tok::kOperator:
      found = fmt::format("'{}'", printable(token.text));
      break;
  }
  fail(token.pos, fmt::format("expected {}, found {}", wanted, found));
}

// Called for each child when a node is complete, so the tree's properties are known from the bottom up.
void Parser::update_from(Node& node, const Node* child) {
  if (child == nullptr) return;
  node.depth = std::max(node.depth, child->depth + 1);
  node.constant &= child->constant;
  node.sliced |= child->sliced;
  if (node.depth > kTreeDepthMax) fail(node.pos, "the template is nested too deeply");
}

void Parser::update_from(Node& node, const Body& body) {
  for (const NodePtr& child : body) update_from(node, child.get());
}

void Parser::update_from(Node& node, const Arguments& arguments) {
  update_from(node, arguments.positional);
  for (const auto& named : arguments.named) update_from(node, named.second.get());
  update_from(node, arguments.star.get());
  update_from(node, arguments.star_star.get());
}

Symbol Parser::intern(const std::string& name) {
  const auto [it, fresh] = symbols_.try_emplace(name, static_cast<Symbol>(program_.names.size()));
  if (fresh) program_.names.push_back(name);
  return it->second;
}

NodePtr Parser::make_name(std::uint32_t pos, const std::string& name) {
  const Symbol symbol = intern(name);
  for (MacroNode* macro : macros_) {
    macro->uses_caller |= symbol == program_.caller;
    macro->uses_kwargs |= symbol == program_.kwargs;
    macro->uses_varargs |= symbol == program_.varargs;
  }
  return std::make_unique<NameNode>(pos, symbol);
}

/// Parses statements and text until a block tag whose name is in `ends`; that name becomes the current token. Without
/// `ends`, until the end of the template. `opened` and `tag` describe the opening tag for the error if it is never
/// closed.
Body Parser::parse_body(std::initializer_list<std::string_view> ends, std::uint32_t opened, std::string_view tag) {
  const Level level(*this);
  Body body;
  while (true) {
    const Token& token = current();
    if (token.type == Tok::kText) {
      body.push_back(std::make_unique<TextNode>(token.pos, std::move(tokens_[at_].text)));
      ++at_;
    } else if (token.type == Tok::kVariableBegin) {
      ++at_;
      NodePtr value = parse_tuple(false, true, {}, false);
      if (current().type != Tok::kVariableEnd) fail_here("'}}'");
      ++at_;
      auto print = std::make_unique<UnaryNode>(NodeKind::kPrint, token.pos, std::move(value));
      update_from(*print, print->child.get());
      body.push_back(std::move(print));
    } else if (token.type == Tok::kBlockBegin) {
      ++at_;
      if (current().type != Tok::kName) fail_here("the name of a tag");
      if (std::ranges::find(ends, std::string_view(current().text)) != ends.end()) return body;
      if (NodePtr statement = parse_statement(body)) body.push_back(std::move(statement));
      if (current().type != Tok::kBlockEnd) fail_here("'%}'");
      ++at_;
    } else {
      if (ends.size() == 0) return body;
      fail(opened, fmt::format("this '{}' is never closed", tag));
    }
  }
}

// The same, starting inside the opening tag: skips its end first.
Body Parser::parse_block_body(std::initializer_list<std::string_view> ends, std::uint32_t opened,
                              std::string_view tag) {
  skip_op(":");
  if (current().type != Tok::kBlockEnd) fail_here("'%}'");
  ++at_;
  return parse_body(ends, opened, tag);
}

// One statement, from the name of its tag up to but not including the final "%}". {% print a, b %} adds several nodes
// to `body` and returns null.
NodePtr Parser::parse_statement(Body& body) {
  const std::uint32_t pos = current().pos;
  const std::string name = current().text;
  const auto one_of = [&](std::initializer_list<std::string_view> names) {
    return std::ranges::find(names, std::string_view(name)) != names.end();
  };
  if (one_of({"block", "extends", "include", "import", "from", "autoescape", "do", "trans", "debug"}))
    fail(pos, fmt::format("the tag '{}' is not supported in chat templates", name));
  if (name.starts_with("end") || one_of({"else", "elif"}))
    fail(pos, fmt::format("the tag '{}' closes nothing that is open", printable(name)));
  ++at_;
  if (name == "for") return parse_for(pos);
  if (name == "if") return parse_if(pos);
  if (name == "set") return parse_set(pos);
  if (name == "with") return parse_with(pos);
  if (name == "macro") return parse_macro(pos);
  if (name == "call") return parse_call_block(pos);
  if (name == "filter") return parse_filter_block(pos);
  if (name == "generation") return parse_generation(pos);
  if (name == "print") {
    parse_print(body);
    return nullptr;
  }
  if (one_of({"break", "continue"})) {
    if (loops_ == 0) fail(pos, fmt::format("'{}' outside a loop", name));
    return std::make_unique<UnaryNode>(name == "break" ? NodeKind::kBreak : NodeKind::kContinue, pos, nullptr);
  }
  fail(pos, fmt::format("unknown tag '{}'", printable(name)));
}

// {% for target in items if test recursive %} ... {% else %} ... {% endfor %}
NodePtr Parser::parse_for(std::uint32_t pos) {
  auto loop = std::make_unique<ForNode>(pos);
  loop->target = parse_target(false, true);
  check_loop_not_assigned(*loop->target);
  expect_name("in");
  loop->items = parse_tuple(false, false, "recursive", false);
  if (skip_name("if")) loop->test = parse_expression();
  loop->recursive = skip_name("recursive");
  // As in jinja2, only an if makes unknown filters acceptable; the body of a block that opens a scope is strict again.
  const bool outer_conditional = std::exchange(in_conditional_, false);
  ++loops_;
  loop->body = parse_block_body({"endfor", "else"}, pos, "for");
  --loops_;
  if (!skip_name("endfor")) {
    ++at_;
    loop->otherwise = parse_block_body({"endfor"}, pos, "for");
    ++at_;
  }
  in_conditional_ = outer_conditional;
  update_from(*loop, loop->items.get());
  update_from(*loop, loop->test.get());
  update_from(*loop, loop->body);
  update_from(*loop, loop->otherwise);
  return loop;
}

// {% if %} ... {% elif %} ... {% else %} ... {% endif %}
NodePtr Parser::parse_if(std::uint32_t pos) {
  auto node = std::make_unique<IfNode>(pos);
  const bool outer_conditional = std::exchange(in_conditional_, true);
  while (true) {
    NodePtr test = parse_tuple(false, false, {}, false);
    Body body = parse_block_body({"elif", "else", "endif"}, pos, "if");
    update_from(*node, test.get());
    update_from(*node, body);
    node->branches.emplace_back(std::move(test), std::move(body));
    if (!skip_name("elif")) break;
  }
  if (skip_name("else")) node->otherwise = parse_block_body({"endif"}, pos, "if");
  ++at_;  // endif
  in_conditional_ = outer_conditional;
  update_from(*node, node->otherwise);
  return node;
}

// {% set target = value %}, or the block {% set target | filter %} ... {% endset %}.
NodePtr Parser::parse_set(std::uint32_t pos) {
  NodePtr target = parse_target(true, false);
  if (skip_op("=")) {
    auto node = std::make_unique<SetNode>(pos, std::move(target), parse_tuple(false, true, {}, false));
    update_from(*node, node->value.get());
    return node;
  }
  auto block = std::make_unique<BlockNode>(NodeKind::kSetBlock, pos);
  block->target = std::move(target);
  if (at_op("|")) block->filter = parse_filters(nullptr, false);
  const bool outer_conditional = std::exchange(in_conditional_, false);
  block->body = parse_block_body({"endset"}, pos, "set");
  ++at_;
  in_conditional_ = outer_conditional;
  update_from(*block, block->filter.get());
  update_from(*block, block->body);
  return block;
}

// {% with a = 1, b = 2 %} ... {% endwith %}
NodePtr Parser::parse_with(std::uint32_t pos) {
  auto node = std::make_unique<WithNode>(pos);
  while (current().type != Tok::kBlockEnd) {
    if (!node->values.empty()) expect_op(",");
    NodePtr target = parse_target(false, false);
    expect_op("=");
    NodePtr value = parse_expression();
    update_from(*node, value.get());
    node->values.emplace_back(std::move(target), std::move(value));
  }
  const bool outer_conditional = std::exchange(in_conditional_, false);
  node->body = parse_block_body({"endwith"}, pos, "with");
  ++at_;
  in_conditional_ = outer_conditional;
  update_from(*node, node->body);
  return node;
}

// A macro's body is compiled on its own: conditions and loops around it do not count inside.
void Parser::parse_macro_body(MacroNode& macro, std::string_view end, std::string_view tag) {
  const bool outer_conditional = std::exchange(in_conditional_, false);
  const int loops = std::exchange(loops_, 0);
  macros_.push_back(&macro);
  macro.body = parse_block_body({end}, macro.pos, tag);
  macros_.pop_back();
  ++at_;
  in_conditional_ = outer_conditional;
  loops_ = loops;
  for (const auto& parameter : macro.parameters) update_from(macro, parameter.second.get());
  update_from(macro, macro.body);
}

NodePtr Parser::parse_macro(std::uint32_t pos) {
  auto macro = std::make_unique<MacroNode>(pos);
  macro->name = expect_identifier();
  macro->symbol = intern(macro->name);
  parse_signature(*macro);
  parse_macro_body(*macro, "endmacro", "macro");
  return macro;
}

// (a, b=1): the parameters with their defaults.
void Parser::parse_signature(MacroNode& macro) {
  expect_op("(");
  bool defaults = false;
  while (!at_op(")")) {
    if (!macro.parameters.empty()) expect_op(",");
    const std::uint32_t pos = current().pos;
    const Symbol symbol = intern(expect_identifier());
    for (const auto& parameter : macro.parameters)
      if (parameter.first == symbol) fail(pos, "this parameter is named twice");
    NodePtr value;
    if (skip_op("=")) {
      value = parse_expression();
      defaults = true;
    } else if (defaults) {
      fail(pos, "a parameter without a default follows one that has it");
    }
    macro.parameters.emplace_back(symbol, std::move(value));
  }
  ++at_;
}

// {% call(parameters) macro(arguments) %} ... {% endcall %}
NodePtr Parser::parse_call_block(std::uint32_t pos) {
  auto node = std::make_unique<CallBlockNode>(pos);
  node->caller = std::make_unique<MacroNode>(pos);
  node->caller->name = "caller";
  if (at_op("(")) parse_signature(*node->caller);
  node->call = parse_expression();
  if (node->call->kind != NodeKind::kCall) fail(node->call->pos, "expected the call of a macro");
  parse_macro_body(*node->caller, "endcall", "call");
  update_from(*node, node->caller.get());
  update_from(*node, node->call.get());
  return node;
}

// {% filter name(arguments) | ... %} ... {% endfilter %}
NodePtr Parser::parse_filter_block(std::uint32_t pos) {
  auto block = std::make_unique<BlockNode>(NodeKind::kFilterBlock, pos);
  block->filter = parse_filters(nullptr, true);
  const bool outer_conditional = std::exchange(in_conditional_, false);
  block->body = parse_block_body({"endfilter"}, pos, "filter");
  ++at_;
  in_conditional_ = outer_conditional;
  update_from(*block, block->filter.get());
  update_from(*block, block->body);
  return block;
}

/// {% generation %} marks the assistant's text for training; rendering just prints its body.
NodePtr Parser::parse_generation(std::uint32_t pos) {
  auto block = std::make_unique<BlockNode>(NodeKind::kScope, pos);
  const bool outer_conditional = std::exchange(in_conditional_, false);
  const int loops = std::exchange(loops_, 0);
  block->body = parse_block_body({"endgeneration"}, pos, "generation");
  ++at_;
  in_conditional_ = outer_conditional;
  loops_ = loops;
  update_from(*block, block->body);
  return block;
}

void Parser::parse_print(Body& body) {
  bool first = true;
  while (current().type != Tok::kBlockEnd) {
    if (!std::exchange(first, false)) expect_op(",");
    const std::uint32_t pos = current().pos;
    auto print = std::make_unique<UnaryNode>(NodeKind::kPrint, pos, parse_expression());
    update_from(*print, print->child.get());
    body.push_back(std::move(print));
  }
}

// What a value can be assigned to: a name, a tuple of targets or, `with_namespace`, an attribute of a namespace.
// `ends_at_in`: the target ends at the keyword "in".
NodePtr Parser::parse_target(bool with_namespace, bool ends_at_in) {
  NodePtr target = parse_tuple(true, true, ends_at_in ? "in" : std::string_view{}, false, with_namespace);
  check_target(*target);
  return target;
}

void Parser::check_target(const Node& target) const {
  if (target.kind == NodeKind::kTuple) {
    for (const NodePtr& item : static_cast<const ItemsNode&>(target).items) check_target(*item);
  } else if (target.kind != NodeKind::kName && target.kind != NodeKind::kNamespaceRef) {
    fail(target.pos, "this cannot be assigned to");
  }
}

// As in jinja2, `loop` cannot be the target of a for loop.
void Parser::check_loop_not_assigned(const Node& target) const {
  if (target.kind == NodeKind::kTuple)
    for (const NodePtr& item : static_cast<const ItemsNode&>(target).items) check_loop_not_assigned(*item);
  if (target.kind == NodeKind::kName && static_cast<const NameNode&>(target).symbol == program_.loop)
    fail(target.pos, "'loop' cannot be the variable of a for loop");
}

std::unique_ptr<const Program> parse_program(std::string source) {
  auto program = std::make_unique<Program>();
  program->source = std::move(source);
  Parser(*program).run();
  return program;
}

}  // namespace forge::text::jinja

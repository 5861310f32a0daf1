// The evaluator's statements: loops, macros, variables. Expressions are in interp_expr.cc.
#include "text/jinja/interp.h"

#include <fmt/format.h>

#include <algorithm>

#include "text/jinja/pytext.h"

namespace forge::text::jinja {

Interp::Interp(const Program& program, const Dict& context, const Clock& now, const RenderLimits& limits)
    : budget{limits.steps_max, limits.memory_bytes_max},
      program_(program),
      context_(context),
      now_(now),
      limits_(limits),
      scope_(std::make_shared<Scope>()) {}

/// Macros refer to their scope, and namespaces and loops may hold anything, so cycles are possible. Emptying all of
/// them while all are still alive breaks every cycle. It also frees long chains without recursion.
Interp::~Interp() {
  for (const auto& loop : loops_) {
    loop->source.clear();
    loop->scope.reset();
    loop->after = loop->current = loop->before = std::nullopt;
    loop->changed.reset();
  }
  for (const auto& space : namespaces_) space->attributes.clear();
  for (const auto& scope : retained_scopes_) scope->variables.clear();
}

// The template's own scope is retained, too: macros defined at the top level refer to it.
std::string Interp::run() {
  std::string out;
  out_ = &out;
  retain(scope_);
  run_body(program_.body);
  return out;
}

// Keeps a scope alive until the end of the render.
void Interp::retain(const std::shared_ptr<Scope>& scope) {
  budget.allocate(sizeof(Scope));
  retained_scopes_.push_back(scope);
}

void Interp::push_scope() {
  budget.step();
  scope_ = std::make_shared<Scope>(Scope{scope_, {}});
}

void Interp::pop_scope() {
  scope_ = scope_->parent;
}

// Appends to the current output: the result, or the text that a macro or block is capturing.
void Interp::print(std::string_view text) {
  budget.read(text.size());
  if (out_->size() + text.size() > limits_.output_bytes_max)
    throw EvalError(fmt::format("the template writes more than {} bytes", limits_.output_bytes_max));
  out_->append(text);
}

void Interp::print_value(const Value& value) {
  if (value.is_string())
    print(value.text());
  else
    print(str(value));
}

// Runs statements until one of them breaks or continues a loop.
Flow Interp::run_body(const Body& body) {
  for (const NodePtr& node : body)
    if (const Flow flow = run_statement(*node); flow != Flow::kNext) return flow;
  return Flow::kNext;
}

Flow Interp::run_statement(const Node& node) {
  const Level level(*this);
  position_ = node.pos;
  switch (node.kind) {
    case NodeKind::kText:
      print(static_cast<const TextNode&>(node).text);
      return Flow::kNext;
    case NodeKind::kPrint: {
      const Node& child = *static_cast<const UnaryNode&>(node).child;
      const std::optional<Value> folded = child.folds() ? fold(child) : std::nullopt;
      print_value(folded ? *folded : eval(child));
      return Flow::kNext;
    }
    case NodeKind::kFor:
      return run_for(static_cast<const ForNode&>(node));
    case NodeKind::kIf:
      return run_if(static_cast<const IfNode&>(node));
    case NodeKind::kSet: {
      const auto& set = static_cast<const SetNode&>(node);
      assign(*set.target, eval(*set.value));
      return Flow::kNext;
    }
    case NodeKind::kSetBlock:
      return run_set_block(static_cast<const BlockNode&>(node));
    case NodeKind::kFilterBlock:
      return run_filter_block(static_cast<const BlockNode&>(node));
    case NodeKind::kScope:
      return scoped(static_cast<const BlockNode&>(node).body);
    case NodeKind::kWith:
      return run_with(static_cast<const WithNode&>(node));
    case NodeKind::kMacro: {
      const auto& macro = static_cast<const MacroNode&>(node);
      set(macro.symbol, make_macro(macro));
      return Flow::kNext;
    }
    case NodeKind::kCallBlock:
      run_call_block(static_cast<const CallBlockNode&>(node));
      return Flow::kNext;
    case NodeKind::kBreak:
      return Flow::kBreak;
    case NodeKind::kContinue:
      return Flow::kContinue;
    default:
      throw EvalError("an expression stands where a statement should");
  }
}

Flow Interp::run_if(const IfNode& node) {
  for (const auto& [test, body] : node.branches)
    if (truth(eval(*test))) return run_body(body);
  return run_body(node.otherwise);
}

// Runs `body` in a scope of its own.
Flow Interp::scoped(const Body& body) {
  push_scope();
  const Flow flow = run_body(body);
  pop_scope();
  return flow;
}

// Redirects print() into `text` while `body` runs.
Flow Interp::capture(const Body& body, std::string& text) {
  std::string* const outer = std::exchange(out_, &text);
  const Flow flow = scoped(body);
  out_ = outer;
  budget.allocate(text.size());
  return flow;
}

// {% set name | filter %} body {% endset %}: assigns the text of the body.
Flow Interp::run_set_block(const BlockNode& node) {
  std::string captured;
  const Flow flow = capture(node.body, captured);
  if (flow != Flow::kNext) return flow;
  Value value = text(std::move(captured));
  if (node.filter) value = eval_filter(static_cast<const FilterNode&>(*node.filter), &value);
  assign(*node.target, value);
  return Flow::kNext;
}

// {% filter upper %} body {% endfilter %}: prints the filtered text of the body.
Flow Interp::run_filter_block(const BlockNode& node) {
  std::string captured;
  const Flow flow = capture(node.body, captured);
  if (flow != Flow::kNext) return flow;
  const Value value = text(std::move(captured));
  print_value(eval_filter(static_cast<const FilterNode&>(*node.filter), &value));
  return Flow::kNext;
}

// All values are evaluated in the outer scope before the first target is assigned.
Flow Interp::run_with(const WithNode& node) {
  std::vector<Value> values;
  for (const auto& entry : node.values) values.push_back(eval(*entry.second));
  push_scope();
  for (std::size_t i = 0; i < values.size(); ++i) assign(*node.values[i].first, values[i]);
  const Flow flow = run_body(node.body);
  pop_scope();
  return flow;
}

// --- loops

Flow Interp::run_for(const ForNode& node) {
  const Value items = eval(*node.items);
  position_ = node.items->pos;
  const bool sized = !node.test && !items.is(Kind::kIterator);
  return run_loop(node, elements(items, budget), sized, 0, scope_);
}

// Runs the loop over `source`. `sized`: loop.length is known without filtering. `depth0` is the depth of a recursive
// loop. `outer` is the scope in which the body's scopes are opened, also when a recursive loop is called from inside
// its body.
Flow Interp::run_loop(const ForNode& node, std::vector<Value> source, bool sized, std::int64_t depth0,
                      std::shared_ptr<Scope> outer) {
  const auto loop = std::make_shared<Loop>();
  budget.allocate(sizeof(Loop));
  loops_.push_back(loop);
  loop->node = &node;
  loop->scope = outer;
  loop->source = std::move(source);
  loop->sized = sized;
  loop->depth0 = depth0;
  const std::shared_ptr<Scope> before = std::exchange(scope_, outer);
  bool completed_iteration = false;
  while (advance(*loop)) {
    scope_ = std::make_shared<Scope>(Scope{outer, {}});
    assign(*node.target, *loop->current);
    set(program_.loop, Value::object(loop));
    const Flow flow = run_body(node.body);
    scope_ = outer;
    if (flow == Flow::kBreak) break;
    completed_iteration |= flow == Flow::kNext;
  }
  // As in jinja2: the else branch also runs if every iteration ended with break or continue.
  Flow flow = Flow::kNext;
  if (!completed_iteration && !node.otherwise.empty()) flow = scoped(node.otherwise);
  scope_ = before;
  return flow;
}

/// The next element that passes the loop's filter. The filter sees the loop's variable in a scope of its own.
std::optional<Value> Interp::next_item(Loop& loop) {
  while (loop.source_next < loop.source.size()) {
    budget.step();
    Value item = loop.source[loop.source_next++];
    if (!loop.node->test || loop.filtered) return item;
    const std::shared_ptr<Scope> before = std::exchange(scope_, std::make_shared<Scope>(Scope{loop.scope, {}}));
    assign(*loop.node->target, item);
    const bool wanted = truth(eval(*loop.node->test));
    scope_ = before;
    if (wanted) return item;
  }
  return std::nullopt;
}

// Moves on to the next element, which may have been fetched already by loop.last or loop.nextitem.
bool Interp::advance(Loop& loop) {
  std::optional<Value> next = loop.after ? std::exchange(loop.after, std::nullopt) : next_item(loop);
  if (!next) return false;
  ++loop.index0;
  loop.before = std::exchange(loop.current, std::move(next));
  return true;
}

// With a filter, all remaining elements must be fetched and tested to know the length. They become the new source.
std::int64_t Interp::loop_length(Loop& loop) {
  if (loop.length) return *loop.length;
  if (loop.sized) return *(loop.length = static_cast<std::int64_t>(loop.source.size()));
  std::vector<Value> rest;
  while (std::optional<Value> item = next_item(loop)) rest.push_back(std::move(*item));
  loop.length = static_cast<std::int64_t>(rest.size()) + loop.index0 + 1 + (loop.after ? 1 : 0);
  loop.source = std::move(rest);
  loop.source_next = 0;
  loop.filtered = true;
  return *loop.length;
}

// Attributes of `loop`, as documented for jinja2's LoopContext.
Value Interp::loop_attribute(const std::shared_ptr<Loop>& loop, std::string_view name) {
  const auto peek = [&] {
    if (!loop->after) loop->after = next_item(*loop);
    return loop->after;
  };
  if (name == "index") return Value::integer(loop->index0 + 1);
  if (name == "index0") return Value::integer(loop->index0);
  if (name == "first") return Value::boolean(loop->index0 == 0);
  if (name == "last") return Value::boolean(!peek());
  if (name == "length") return Value::integer(loop_length(*loop));
  if (name == "revindex") return Value::integer(loop_length(*loop) - loop->index0);
  if (name == "revindex0") return Value::integer(loop_length(*loop) - loop->index0 - 1);
  if (name == "depth") return Value::integer(loop->depth0 + 1);
  if (name == "depth0") return Value::integer(loop->depth0);
  if (name == "previtem")
    return loop->index0 == 0 ? Value::undefined("there is no previous item") : loop->before.value_or(Value());
  if (name == "nextitem") return peek().value_or(Value::undefined("there is no next item"));
  if (name == "cycle")
    return Value::callable("cycle", [loop](Interp&, CallArgs& arguments) {
      if (arguments.positional.empty()) throw EvalError("no items for cycling given");
      return arguments.positional[static_cast<std::size_t>(loop->index0) % arguments.positional.size()];
    });
  if (name == "changed")
    return Value::callable("changed", [loop](Interp& interp, CallArgs& arguments) {
      const Value fresh = Value::tuple(arguments.positional);
      const bool same = loop->changed && equal(Value::tuple(*loop->changed), fresh, interp.budget);
      if (!same) loop->changed = arguments.positional;
      return Value::boolean(!same);
    });
  return missing(Value::object(loop), Value::string(std::string(name)));
}

/// loop(items) in a recursive loop: runs the body over `items` one level deeper and returns the output.
Value Interp::call_loop(const std::shared_ptr<Loop>& loop, CallArgs& arguments) {
  if (!loop->node->recursive) throw EvalError("the loop must have the 'recursive' marker to be called recursively");
  const Bound bound("loop", arguments, {"iterable"});
  const Level level(*this);
  std::string captured;
  std::string* const outer = std::exchange(out_, &captured);
  const Value& items = bound.required(0);
  const bool sized = !loop->node->test && !items.is(Kind::kIterator);
  run_loop(*loop->node, elements(items, budget), sized, loop->depth0 + 1, loop->scope);
  out_ = outer;
  return text(std::move(captured));
}

// --- macros

// A macro as a value. Its attributes are those that jinja2 documents: name, arguments, catch_kwargs, catch_varargs,
// caller.
Value Interp::make_macro(const MacroNode& node) {
  retain(scope_);
  const std::shared_ptr<Scope> scope = scope_;
  auto macro = std::make_shared<Callable>();
  macro->name = node.name;
  macro->macro = true;
  // A weak pointer, because the scope usually holds the macro itself. retained_scopes_ keeps the scope alive for as
  // long as anything can be called.
  macro->call = [&node, weak = std::weak_ptr<Scope>(scope)](Interp& interp, CallArgs& arguments) {
    return interp.call_macro(node, weak.lock(), arguments);
  };
  macro->attribute = [&node, this](std::string_view name) {
    if (name == "name") return Value::string(node.name);
    if (name == "caller") return Value::boolean(node.uses_caller);
    if (name == "catch_kwargs") return Value::boolean(node.uses_kwargs);
    if (name == "catch_varargs") return Value::boolean(node.uses_varargs);
    std::vector<Value> names;
    for (const auto& parameter : node.parameters) names.push_back(Value::string(program_.names[parameter.first]));
    return Value::tuple(std::move(names));
  };
  return Value::object(std::shared_ptr<const Callable>(std::move(macro)));
}

// Runs the body in a new scope below the one where the macro was defined, and returns the captured output.
Value Interp::call_macro(const MacroNode& node, const std::shared_ptr<Scope>& scope, CallArgs& arguments) {
  const Level level(*this);
  const std::uint32_t position = position_;
  const std::shared_ptr<Scope> before = std::exchange(scope_, std::make_shared<Scope>(Scope{scope, {}}));
  bind_macro(node, arguments);
  std::string captured;
  std::string* const outer = std::exchange(out_, &captured);
  run_body(node.body);
  out_ = outer;
  scope_ = before;
  position_ = position;
  return text(std::move(captured));
}

/// Sets the parameters in the current scope: positional arguments, named ones, defaults, and caller, kwargs and varargs
/// if the body uses them. Throws EvalError for arguments that do not fit.
void Interp::bind_macro(const MacroNode& node, CallArgs& arguments) {
  std::vector<std::pair<std::string, Value>>& named = arguments.named;
  const auto take = [&](const std::string& name) -> std::optional<Value> {
    const auto it = std::ranges::find(named, name, &std::pair<std::string, Value>::first);
    if (it == named.end()) return std::nullopt;
    Value value = std::move(it->second);
    named.erase(it);
    return value;
  };
  bool caller_is_parameter = false;
  for (std::size_t i = 0; i < node.parameters.size(); ++i) {
    const auto& [symbol, otherwise] = node.parameters[i];
    const std::string& name = program_.names[symbol];
    caller_is_parameter |= symbol == program_.caller;
    if (i < arguments.positional.size()) {
      set(symbol, arguments.positional[i]);
    } else if (std::optional<Value> value = take(name)) {
      set(symbol, std::move(*value));
    } else if (otherwise) {
      set(symbol, eval(*otherwise));
    } else {
      set(symbol, Value::undefined(fmt::format("parameter '{}' was not provided", name)));
    }
  }
  if (node.uses_caller && !caller_is_parameter)
    set(program_.caller, take("caller").value_or(Value::undefined("No caller defined")));
  if (node.uses_kwargs) {
    Dict rest;
    for (auto& [name, value] : named) rest.set(name, value);
    set(program_.kwargs, Value::dict(std::move(rest)));
  } else if (!named.empty()) {
    throw EvalError(fmt::format("macro '{}' takes no keyword argument '{}'", node.name, named.front().first));
  }
  const std::size_t extra = std::min(arguments.positional.size(), node.parameters.size());
  if (node.uses_varargs) {
    set(program_.varargs,
        Value::tuple({arguments.positional.begin() + static_cast<std::ptrdiff_t>(extra), arguments.positional.end()}));
  } else if (arguments.positional.size() > node.parameters.size()) {
    throw EvalError(fmt::format("macro '{}' takes not more than {} argument(s)", node.name, node.parameters.size()));
  }
}

// The block's body becomes a macro that the called macro gets as `caller`.
void Interp::run_call_block(const CallBlockNode& node) {
  const Value caller = make_macro(*node.caller);
  print_value(eval_call(static_cast<const CallNode&>(*node.call), &caller));
}

// --- variables

// Assigns in the current scope only: as in Jinja, an inner scope cannot change variables of an outer one.
void Interp::set(Symbol symbol, Value value) {
  for (auto& [name, old] : scope_->variables) {
    if (name != symbol) continue;
    old = std::move(value);
    return;
  }
  budget.allocate(sizeof(Value) + sizeof(Symbol));
  scope_->variables.emplace_back(symbol, std::move(value));
}

// Scopes from the inside out, then the context, then the globals; otherwise an undefined value.
Value Interp::lookup(Symbol symbol) {
  for (const Scope* scope = scope_.get(); scope != nullptr; scope = scope->parent.get())
    for (const auto& [name, value] : scope->variables)
      if (name == symbol) return value;
  const std::string& name = program_.names[symbol];
  if (const Value* value = context_.find(name)) return *value;
  if (std::optional<Value> global = find_global(*this, name)) return *global;
  return Value::undefined(fmt::format("'{}' is undefined", name));
}

// Assigns to a name, to an attribute of a namespace, or element by element to a tuple of targets.
void Interp::assign(const Node& target, const Value& value) {
  if (target.kind == NodeKind::kName) return set(static_cast<const NameNode&>(target).symbol, value);
  if (target.kind == NodeKind::kNamespaceRef) {
    const auto& reference = static_cast<const NamespaceRefNode&>(target);
    const Value object = lookup(reference.symbol);
    position_ = target.pos;
    if (!object.is(Kind::kNamespace)) throw EvalError("cannot assign attribute on non-namespace object");
    for (auto& [name, old] : object.space().attributes) {
      if (name != reference.attribute) continue;
      old = value;
      return;
    }
    budget.allocate(sizeof(Value) + reference.attribute.size());
    object.space().attributes.emplace_back(reference.attribute, value);
    return;
  }
  const auto& targets = static_cast<const ItemsNode&>(target).items;
  const std::vector<Value> values = elements(value, budget);
  if (values.size() != targets.size())
    throw EvalError(fmt::format("{} values to unpack, expected {}", values.size(), targets.size()));
  for (std::size_t i = 0; i < targets.size(); ++i) assign(*targets[i], values[i]);
}

}  // namespace forge::text::jinja

#pragma once
// The evaluator: runs a parsed template by walking its tree, once for each render.
//
// Scopes follow Jinja's rules: for, with, macro, call, filter, set blocks and generation open a scope, if does not;
// each iteration of a loop starts with a new one. A variable is looked up in the scopes from the inside out, then in
// the context, then among the globals:
//
//    scope_ -> parent -> ... -> template's scope       context_ (messages, tools, ...)       find_global()
//
// Values are reference-counted. Macros, namespaces and loops can form cycles; the interpreter keeps a list of
// everything that can be part of one and empties it at the end, which breaks every cycle.

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "text/jinja/ast.h"
#include "text/jinja/builtins.h"
#include "text/jinja/template.h"
#include "text/jinja/value.h"

namespace forge::text::jinja {

/// The variables of one scope. Scopes hold few names, which are searched linearly.
struct Scope {
  std::shared_ptr<Scope> parent;
  std::vector<std::pair<Symbol, Value>> variables;
};

/// A running for loop: the object `loop` inside it. Elements are fetched one at a time, because the loop's filter may
/// depend on what the body did before.
struct Loop {
  const ForNode* node;           ///< of the program
  std::shared_ptr<Scope> scope;  ///< the scope around the loop
  std::vector<Value> source;     ///< all elements; source_next is the first not yet fetched
  std::size_t source_next = 0;
  bool sized = false;  ///< no filter and a source with a len(): the length is known at once
  std::int64_t index0 = -1, depth0 = 0;
  std::optional<Value> after, current, before;  ///< `after` only once loop.last or loop.nextitem needed it
  std::optional<std::int64_t> length;           ///< of the filtered elements, once asked for
  std::optional<std::vector<Value>> changed;    ///< the last arguments of loop.changed()
  bool filtered = false;                        ///< the rest of `source` has already passed the filter
};

/// Thrown by raise_exception(): the template itself rejects the conversation.
struct RaisedException {
  std::string message;
};

/// How a statement ends: run the next one, or leave or continue the innermost loop.
enum class Flow : std::uint8_t { kNext, kBreak, kContinue };

/// One render. Not reusable and not thread-safe. Only reads the program, the context and the clock, which must outlive
/// it.
class Interp {
 public:
  Interp(const Program& program, const Dict& context, const Clock& now, const RenderLimits& limits);
  ~Interp();
  Interp(const Interp&) = delete;
  Interp& operator=(const Interp&) = delete;

  /// The rendered text. Throws EvalError or RaisedException; position() then tells where.
  std::string run();
  [[nodiscard]] std::uint32_t position() const { return position_; }

  // Services for the built-ins. They charge the budget for what they make.
  Budget budget;
  // Each makes a value and charges the budget for it; text() also enforces the limit on the length of a text.
  [[nodiscard]] Value text(std::string text, bool markup = false);
  [[nodiscard]] Value list(std::vector<Value> items, ListKind kind = ListKind::kList);
  [[nodiscard]] Value generator(std::vector<Value> items, std::string name);
  [[nodiscard]] std::string str(const Value& value) { return to_str_charged(value); }
  [[nodiscard]] Value make_namespace(std::vector<std::pair<std::string, Value>> attributes);
  // object.name and object[key] with Jinja's fall-backs; missing() is the undefined value that they give for an absent
  // one.
  [[nodiscard]] Value get_attribute(const Value& object, std::string_view name);
  [[nodiscard]] Value get_item(const Value& object, const Value& key);
  [[nodiscard]] Value missing(const Value& object, const Value& key) const;
  // Calls a function, a method, a macro or a recursive loop.
  [[nodiscard]] Value call(const Value& callee, CallArgs& arguments);
  [[nodiscard]] Value binary(BinaryOp op, const Value& left, const Value& right);
  [[nodiscard]] bool contains(const Value& container, const Value& item);
  [[nodiscard]] Value loop_attribute(const std::shared_ptr<Loop>& loop, std::string_view name);
  [[nodiscard]] Value call_loop(const std::shared_ptr<Loop>& loop, CallArgs& arguments);
  [[nodiscard]] const Clock& now() const { return now_; }
  [[nodiscard]] std::uint64_t text_bytes_max() const { return limits_.output_bytes_max; }

 private:
  class Level;
  // Statements (interp.cc).
  Flow run_body(const Body& body);
  Flow run_statement(const Node& node);
  Flow run_if(const IfNode& node);
  Flow run_for(const ForNode& node);
  Flow run_loop(const ForNode& node, std::vector<Value> source, bool sized, std::int64_t depth0,
                std::shared_ptr<Scope> outer);
  Flow run_set_block(const BlockNode& node);
  Flow run_filter_block(const BlockNode& node);
  Flow run_with(const WithNode& node);
  void run_call_block(const CallBlockNode& node);
  Value make_macro(const MacroNode& node);
  Value call_macro(const MacroNode& node, const std::shared_ptr<Scope>& scope, CallArgs& arguments);
  void bind_macro(const MacroNode& node, CallArgs& arguments);
  /// Runs `body` in a scope of its own and puts its output into `text`.
  Flow capture(const Body& body, std::string& text);
  Flow scoped(const Body& body);
  void print(std::string_view text);
  void print_value(const Value& value);
  void assign(const Node& target, const Value& value);
  void set(Symbol symbol, Value value);
  [[nodiscard]] Value lookup(Symbol symbol);
  void push_scope();
  void pop_scope();
  void retain(const std::shared_ptr<Scope>& scope);
  // Loops: the next element that passes the filter; the step to it; loop.length, which fetches all elements.
  std::optional<Value> next_item(Loop& loop);
  bool advance(Loop& loop);
  std::int64_t loop_length(Loop& loop);

  // Expressions (interp_expr.cc).
  Value eval(const Node& node);
  /// The value that jinja2's compiler computes for a node that folds; empty if it fails there and is left to run time.
  std::optional<Value> fold(const Node& node);
  Value eval_compare(const CompareNode& node);
  Value eval_condition(const ConditionNode& node);
  Value eval_concat(const ItemsNode& node);
  Value eval_items(const ItemsNode& node, ListKind kind);
  Value eval_dict(const DictNode& node);
  Value eval_item(const BinaryNode& node);
  Value eval_slice(const Value& object, const ItemsNode& slice);
  Value eval_unary(const UnaryNode& node);
  Value eval_call(const CallNode& node, const Value* caller);
  Value eval_filter(const FilterNode& node, const Value* input);
  Value eval_test(const TestNode& node);
  bool compare_one(CompareOp op, const Value& left, const Value& right);
  CallArgs eval_arguments(const Arguments& arguments);
  std::string to_str_charged(const Value& value);

  const Program& program_;
  const Dict& context_;
  const Clock& now_;
  const RenderLimits& limits_;
  std::string* out_ = nullptr;  // where print() writes: the result, or what a macro or block captures
  std::shared_ptr<Scope> scope_;
  std::uint32_t position_ = 0, depth_ = 0;  // where in the source (for errors); the number of open Levels
  bool folding_ = false;                    // inside fold()
  // Everything that can be part of a reference cycle; emptied by the destructor.
  std::vector<std::shared_ptr<Namespace>> namespaces_;
  std::vector<std::shared_ptr<Scope>> retained_scopes_;
  std::vector<std::shared_ptr<Loop>> loops_;
};

/// Counts nested evaluations while it lives, charges a step, and stops a template that recurses too deeply.
class Interp::Level {
 public:
  explicit Level(Interp& interp) : interp_(interp) {
    interp_.budget.step();
    if (++interp_.depth_ > interp_.limits_.depth_max) {
      --interp_.depth_;
      throw EvalError("the template recurses too deeply");
    }
  }
  ~Level() { --interp_.depth_; }
  Level(const Level&) = delete;
  Level& operator=(const Level&) = delete;

 private:
  Interp& interp_;
};

}  // namespace forge::text::jinja

#pragma once
// The evaluator: walks the tree of one render. Scopes follow Jinja's rules: for, with, macro, call, filter, set blocks
// and generation open one, if does not; each turn of a loop starts with a fresh one.

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

struct Scope {
  std::shared_ptr<Scope> parent;
  std::vector<std::pair<Symbol, Value>> variables;
};

/// A running for loop: what `loop` is inside it. Elements are drawn one at a time, as the loop's filter may depend on
/// what the body did before.
struct Loop {
  const ForNode* node;
  std::shared_ptr<Scope> scope;  ///< around the loop
  std::vector<Value> source;
  std::size_t source_next = 0;
  bool sized = false;  ///< no filter and a source that has a len()
  std::int64_t index0 = -1, depth0 = 0;
  std::optional<Value> after, current, before;
  std::optional<std::int64_t> length;
  std::optional<std::vector<Value>> changed;
  bool filtered = false;  ///< what is left in `source` already passed the filter
};

/// raise_exception was called: the template's own refusal.
struct Refusal {
  std::string message;
};

enum class Flow : std::uint8_t { kNext, kBreak, kContinue };

class Interp {
 public:
  Interp(const Program& program, const Dict& context, const Clock& now, const RenderLimits& limits);
  ~Interp();
  Interp(const Interp&) = delete;
  Interp& operator=(const Interp&) = delete;

  /// Throws EvalError or Refusal; position() then tells where.
  std::string run();
  [[nodiscard]] std::uint32_t position() const { return position_; }

  // Services for builtins; they charge what they make.
  Budget budget;
  [[nodiscard]] Value text(std::string text, bool markup = false);
  [[nodiscard]] Value list(std::vector<Value> items, ListKind kind = ListKind::kList);
  [[nodiscard]] Value generator(std::vector<Value> items, std::string name);
  [[nodiscard]] std::string str(const Value& value) { return to_str_charged(value); }
  [[nodiscard]] Value make_namespace(std::vector<std::pair<std::string, Value>> attributes);
  [[nodiscard]] Value get_attribute(const Value& object, std::string_view name);
  [[nodiscard]] Value get_item(const Value& object, const Value& key);
  [[nodiscard]] Value missing(const Value& object, const Value& key) const;
  [[nodiscard]] Value call(const Value& callee, CallArgs& arguments);
  [[nodiscard]] Value binary(BinaryOp op, const Value& left, const Value& right);
  [[nodiscard]] bool contains(const Value& container, const Value& item);
  [[nodiscard]] Value loop_attribute(const std::shared_ptr<Loop>& loop, std::string_view name);
  [[nodiscard]] Value call_loop(const std::shared_ptr<Loop>& loop, CallArgs& arguments);
  [[nodiscard]] const Clock& now() const { return now_; }
  [[nodiscard]] std::uint64_t text_bytes_max() const { return limits_.output_bytes_max; }

 private:
  class Level;
  // statements (interp.cc)
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
  /// Runs `body` in a scope of its own and returns its text.
  Flow capture(const Body& body, std::string& text);
  Flow scoped(const Body& body);
  void print(std::string_view text);
  void print_value(const Value& value);
  void assign(const Node& target, const Value& value);
  void set(Symbol symbol, Value value);
  [[nodiscard]] Value lookup(Symbol symbol);
  void push_scope();
  void pop_scope();
  void keep(const std::shared_ptr<Scope>& scope);
  std::optional<Value> draw(Loop& loop);
  bool advance(Loop& loop);
  std::int64_t loop_length(Loop& loop);

  // expressions (interp_expr.cc)
  Value eval(const Node& node);
  /// What jinja2's compiler makes of a node that folds; empty when it fails there and is left to the render.
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
  std::string* out_ = nullptr;
  std::shared_ptr<Scope> scope_;
  std::uint32_t position_ = 0, depth_ = 0;
  bool folding_ = false;
  // What can refer to itself, kept to be emptied at the end.
  std::vector<std::shared_ptr<Namespace>> spaces_;
  std::vector<std::shared_ptr<Scope>> kept_;
  std::vector<std::shared_ptr<Loop>> loops_;
};

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

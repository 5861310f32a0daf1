#pragma once
// The recursive-descent parser of templates. Precedence from loose to tight, as in Jinja 3.1: if-else, or, and, not,
// comparison, + -, ~, * / // %, **, unary, postfix and filters. There is one function for each level; each parses the
// next tighter level for its operands.
//
// Recursion is bounded twice: Level bounds the parser's own, and update_from() bounds the height of the tree, which
// chains such as a.b.c... build in a loop.

#include <functional>
#include <initializer_list>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "text/jinja/ast.h"
#include "text/jinja/lexer.h"

namespace forge::text::jinja {

/// Bounds the parser's recursion and the height of the tree.
inline constexpr std::uint32_t kTreeDepthMax = 300;

/// Parses one Program in place: reads program.source, fills in the rest. Throws SyntaxError.
class Parser {
 public:
  explicit Parser(Program& program);
  void run();

 private:
  // Tokens: the current one, the next one, and helpers that test for, skip or demand a name or an operator.
  [[nodiscard]] const Token& current() const { return tokens_[at_]; }
  [[nodiscard]] const Token& peek() const { return tokens_[std::min(at_ + 1, tokens_.size() - 1)]; }
  [[nodiscard]] bool at_name(std::string_view name) const {
    return current().type == Tok::kName && current().text == name;
  }
  [[nodiscard]] bool at_op(std::string_view op) const {
    return current().type == Tok::kOperator && current().text == op;
  }
  bool skip_name(std::string_view name);
  bool skip_op(std::string_view op);
  void expect_op(std::string_view op);
  void expect_name(std::string_view name);
  std::string expect_identifier();
  [[noreturn]] void fail(std::uint32_t pos, std::string message) const;
  /// "expected `wanted`, found ...", at the current token.
  [[noreturn]] void fail_here(std::string_view wanted) const;

  /// Bounds the parser's recursion; one object for each nested call that can recurse.
  class Level;
  NodePtr binary(NodeKind kind, std::uint32_t pos, NodePtr left, NodePtr right, BinaryOp op = BinaryOp::kAdd);
  /// Takes over into `node` what depends on its children: height, `constant` and `sliced`. A null child changes
  /// nothing.
  void update_from(Node& node, const Node* child);
  void update_from(Node& node, const Body& body);
  void update_from(Node& node, const Arguments& arguments);
  /// The symbol of a name.
  Symbol intern(const std::string& name);
  /// A use of a name. Notes in the enclosing macros whether it is caller, kwargs or varargs.
  NodePtr make_name(std::uint32_t pos, const std::string& name);

  // statements (parser.cc)
  Body parse_body(std::initializer_list<std::string_view> ends, std::uint32_t opened, std::string_view tag);
  Body parse_block_body(std::initializer_list<std::string_view> ends, std::uint32_t opened, std::string_view tag);
  NodePtr parse_statement(Body& body);
  NodePtr parse_for(std::uint32_t pos);
  NodePtr parse_if(std::uint32_t pos);
  NodePtr parse_set(std::uint32_t pos);
  NodePtr parse_with(std::uint32_t pos);
  NodePtr parse_macro(std::uint32_t pos);
  NodePtr parse_call_block(std::uint32_t pos);
  NodePtr parse_filter_block(std::uint32_t pos);
  NodePtr parse_generation(std::uint32_t pos);
  void parse_print(Body& body);
  void parse_signature(MacroNode& macro);
  void parse_macro_body(MacroNode& macro, std::string_view end, std::string_view tag);
  NodePtr parse_target(bool with_namespace, bool ends_at_in);
  void check_target(const Node& target) const;
  void check_loop_not_assigned(const Node& target) const;

  // expressions (parser_expr.cc)
  NodePtr parse_expression(bool with_condition = true);
  NodePtr parse_tuple(bool simple, bool with_condition, std::string_view end_name, bool parentheses,
                      bool with_namespace = false);
  NodePtr parse_or();
  NodePtr parse_and();
  NodePtr parse_not();
  NodePtr parse_compare();
  NodePtr parse_sum();
  NodePtr parse_concat();
  NodePtr parse_product();
  NodePtr parse_power();
  NodePtr parse_unary(bool with_filter = true);
  NodePtr parse_primary(bool with_namespace = false);
  NodePtr parse_list();
  NodePtr parse_dict();
  NodePtr parse_postfix(NodePtr node);
  NodePtr parse_filter_expr(NodePtr node);
  NodePtr parse_subscript(NodePtr node);
  NodePtr parse_subscribed();
  Arguments parse_arguments();
  NodePtr parse_call(NodePtr callee);
  /// A chain of filters after `node`; with `bare` the first one has no '|', as in {% filter upper %}.
  NodePtr parse_filters(NodePtr node, bool bare);
  NodePtr parse_test(NodePtr node);

  Program& program_;
  std::vector<Token> tokens_;
  std::size_t at_ = 0;
  std::uint32_t level_ = 0;
  bool in_conditional_ = false;     ///< inside an if: unknown filters and tests are errors only when evaluated
  int loops_ = 0;                   ///< loops around the current position, for break and continue
  std::vector<MacroNode*> macros_;  ///< the macros around the current position
  std::unordered_map<std::string, Symbol> symbols_;
};

class Parser::Level {
 public:
  explicit Level(Parser& parser) : parser_(parser) {
    if (++parser_.level_ > kTreeDepthMax) parser_.fail(parser_.current().pos, "the template is nested too deeply");
  }
  ~Level() { --parser_.level_; }
  Level(const Level&) = delete;
  Level& operator=(const Level&) = delete;

 private:
  Parser& parser_;
};

}  // namespace forge::text::jinja

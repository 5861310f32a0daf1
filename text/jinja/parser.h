#pragma once
// The recursive-descent parser of templates. Precedence, from loose to tight: if-else, or, and, not, comparison, + -,
// ~, * / // %, **, unary, postfix and filters (as Jinja 3.1 has it).

#include <functional>
#include <initializer_list>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "text/jinja/ast.h"
#include "text/jinja/lexer.h"

namespace forge::text::jinja {

inline constexpr std::uint32_t kTreeDepthMax = 300;

class Parser {
 public:
  explicit Parser(Program& program);
  void run();

 private:
  // tokens
  [[nodiscard]] const Token& now() const { return tokens_[at_]; }
  [[nodiscard]] const Token& after() const { return tokens_[std::min(at_ + 1, tokens_.size() - 1)]; }
  [[nodiscard]] bool at_name(std::string_view name) const { return now().type == Tok::kName && now().text == name; }
  [[nodiscard]] bool at_op(std::string_view op) const { return now().type == Tok::kOperator && now().text == op; }
  bool skip_name(std::string_view name);
  bool skip_op(std::string_view op);
  void expect_op(std::string_view op);
  void expect_name(std::string_view name);
  std::string expect_identifier();
  [[noreturn]] void fail(std::uint32_t pos, std::string message) const;
  [[noreturn]] void fail_here(std::string_view wanted) const;

  /// Guards the parser's own recursion, for the life of the object.
  class Level;
  NodePtr binary(NodeKind kind, std::uint32_t pos, NodePtr left, NodePtr right, BinaryOp op = BinaryOp::kAdd);
  void grow(Node& node, const Node* child);
  void grow(Node& node, const Body& body);
  void grow(Node& node, const Arguments& arguments);
  Symbol intern(const std::string& name);
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
  void declare_loop_free(const Node& target) const;

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
  /// A chain of filters; with `bare` the first stands without its '|'.
  NodePtr parse_filters(NodePtr node, bool bare);
  NodePtr parse_test(NodePtr node);

  Program& program_;
  std::vector<Token> tokens_;
  std::size_t at_ = 0;
  std::uint32_t level_ = 0;
  bool soft_ = false;  ///< inside an if: unknown filters and tests are errors only when reached
  int loops_ = 0;      ///< loops around this place, for break and continue
  std::vector<MacroNode*> macros_;
  std::unordered_map<std::string, Symbol> symbols_;
};

class Parser::Level {
 public:
  explicit Level(Parser& parser) : parser_(parser) {
    if (++parser_.level_ > kTreeDepthMax) parser_.fail(parser_.now().pos, "the template is nested too deeply");
  }
  ~Level() { --parser_.level_; }
  Level(const Level&) = delete;
  Level& operator=(const Level&) = delete;

 private:
  Parser& parser_;
};

}  // namespace forge::text::jinja

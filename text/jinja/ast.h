#pragma once
// The syntax tree of a template. Every node knows its place in the source; how deep trees get is bounded by the parser.

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "text/jinja/value.h"

namespace forge::text::jinja {

using Symbol = std::uint32_t;  ///< index into Program::names
struct FilterRow;
struct TestRow;

enum class NodeKind : std::uint8_t {
  // expressions
  kConst,
  kName,
  kAnd,
  kOr,
  kNot,
  kNegate,
  kPlus,
  kBinary,
  kCompare,
  kConcat,
  kCondition,
  kAttribute,
  kItem,
  kSlice,
  kCall,
  kFilter,
  kTest,
  kList,
  kTuple,
  kDict,
  kNamespaceRef,
  // statements
  kText,
  kPrint,
  kFor,
  kIf,
  kSet,
  kSetBlock,
  kWith,
  kMacro,
  kCallBlock,
  kFilterBlock,
  kScope,
  kBreak,
  kContinue,
};

struct Node {
  Node(NodeKind kind, std::uint32_t pos)
      : kind(kind),
        constant(kind < NodeKind::kText && kind != NodeKind::kName && kind != NodeKind::kCall &&
                 kind != NodeKind::kNamespaceRef),
        sliced(kind == NodeKind::kSlice),
        pos(pos) {}
  Node(const Node&) = delete;
  Node& operator=(const Node&) = delete;
  virtual ~Node() = default;
  /// jinja2 works this expression out when it compiles the template, and there a slice of what cannot be sliced is
  /// undefined instead of an error. So it matters only where there is a slice.
  [[nodiscard]] bool folds() const { return constant && sliced; }
  NodeKind kind;
  bool constant;            ///< made of constants, operators, filters and tests without context, as far as needed
  bool sliced;              ///< is a slice, or has one below it
  std::uint32_t pos;        ///< byte offset into the normalised source
  std::uint32_t depth = 1;  ///< levels of nodes below and with this one
};
using NodePtr = std::unique_ptr<Node>;
using Body = std::vector<NodePtr>;

enum class BinaryOp : std::uint8_t { kAdd, kSubtract, kMultiply, kDivide, kFloorDivide, kModulo, kPower };
enum class CompareOp : std::uint8_t { kEqual, kNotEqual, kLess, kLessEqual, kGreater, kGreaterEqual, kIn, kNotIn };

struct ConstNode : Node {
  ConstNode(std::uint32_t pos, Value value) : Node(NodeKind::kConst, pos), value(std::move(value)) {}
  Value value;
};
struct NameNode : Node {
  NameNode(std::uint32_t pos, Symbol symbol) : Node(NodeKind::kName, pos), symbol(symbol) {}
  Symbol symbol;
};
/// kNot, kNegate, kPlus, kPrint, and kScope's kin with one child.
struct UnaryNode : Node {
  UnaryNode(NodeKind kind, std::uint32_t pos, NodePtr child) : Node(kind, pos), child(std::move(child)) {}
  NodePtr child;
};
/// kAnd, kOr, kBinary, kItem.
struct BinaryNode : Node {
  BinaryNode(NodeKind kind, std::uint32_t pos, NodePtr left, NodePtr right, BinaryOp op = BinaryOp::kAdd)
      : Node(kind, pos), left(std::move(left)), right(std::move(right)), op(op) {}
  NodePtr left, right;
  BinaryOp op;
};
struct CompareNode : Node {
  CompareNode(std::uint32_t pos, NodePtr first) : Node(NodeKind::kCompare, pos), first(std::move(first)) {}
  NodePtr first;
  std::vector<std::pair<CompareOp, NodePtr>> rest;
};
/// kConcat, kList, kTuple; kSlice with three children, each of which may be null.
struct ItemsNode : Node {
  ItemsNode(NodeKind kind, std::uint32_t pos) : Node(kind, pos) {}
  std::vector<NodePtr> items;
};
struct DictNode : Node {
  explicit DictNode(std::uint32_t pos) : Node(NodeKind::kDict, pos) {}
  std::vector<std::pair<NodePtr, NodePtr>> items;
};
struct ConditionNode : Node {
  explicit ConditionNode(std::uint32_t pos) : Node(NodeKind::kCondition, pos) {}
  NodePtr test, then, otherwise;  ///< `otherwise` may be null: undefined then
};
struct AttributeNode : Node {
  AttributeNode(std::uint32_t pos, NodePtr object, std::string name)
      : Node(NodeKind::kAttribute, pos), object(std::move(object)), name(std::move(name)) {}
  NodePtr object;
  std::string name;
};
struct Arguments {
  std::vector<NodePtr> positional;
  std::vector<std::pair<std::string, NodePtr>> named;
  NodePtr star, star_star;
};
struct CallNode : Node {
  CallNode(std::uint32_t pos, NodePtr callee) : Node(NodeKind::kCall, pos), callee(std::move(callee)) {}
  NodePtr callee;
  Arguments arguments;
};
struct FilterNode : Node {
  explicit FilterNode(std::uint32_t pos) : Node(NodeKind::kFilter, pos) {}
  NodePtr input;  ///< null: the text of the block
  std::string name;
  const FilterRow* row = nullptr;  ///< null: unknown, and an error only if it is reached
  Arguments arguments;
};
struct TestNode : Node {
  explicit TestNode(std::uint32_t pos) : Node(NodeKind::kTest, pos) {}
  NodePtr input;
  std::string name;
  const TestRow* row = nullptr;
  Arguments arguments;
};
struct NamespaceRefNode : Node {
  NamespaceRefNode(std::uint32_t pos, Symbol symbol, std::string attribute)
      : Node(NodeKind::kNamespaceRef, pos), symbol(symbol), attribute(std::move(attribute)) {}
  Symbol symbol;
  std::string attribute;
};

struct TextNode : Node {
  TextNode(std::uint32_t pos, std::string text) : Node(NodeKind::kText, pos), text(std::move(text)) {}
  std::string text;
};
struct ForNode : Node {
  explicit ForNode(std::uint32_t pos) : Node(NodeKind::kFor, pos) {}
  NodePtr target, items, test;  ///< `test` may be null
  bool recursive = false;
  Body body, otherwise;
};
struct IfNode : Node {
  explicit IfNode(std::uint32_t pos) : Node(NodeKind::kIf, pos) {}
  std::vector<std::pair<NodePtr, Body>> branches;
  Body otherwise;
};
struct SetNode : Node {
  SetNode(std::uint32_t pos, NodePtr target, NodePtr value)
      : Node(NodeKind::kSet, pos), target(std::move(target)), value(std::move(value)) {}
  NodePtr target, value;
};
/// kSetBlock (target, optional filter), kFilterBlock (filter), kScope.
struct BlockNode : Node {
  BlockNode(NodeKind kind, std::uint32_t pos) : Node(kind, pos) {}
  NodePtr target, filter;
  Body body;
};
struct WithNode : Node {
  explicit WithNode(std::uint32_t pos) : Node(NodeKind::kWith, pos) {}
  std::vector<std::pair<NodePtr, NodePtr>> values;
  Body body;
};
struct MacroNode : Node {
  explicit MacroNode(std::uint32_t pos) : Node(NodeKind::kMacro, pos) {}
  std::string name;  ///< "caller" for a call block's
  Symbol symbol = 0;
  std::vector<std::pair<Symbol, NodePtr>> parameters;  ///< with defaults, which may be null
  bool uses_caller = false, uses_kwargs = false, uses_varargs = false;
  Body body;
};
struct CallBlockNode : Node {
  explicit CallBlockNode(std::uint32_t pos) : Node(NodeKind::kCallBlock, pos) {}
  std::unique_ptr<MacroNode> caller;
  NodePtr call;
};

/// A parsed template.
struct Program {
  std::string source;              ///< normalised
  std::vector<std::string> names;  ///< by symbol
  Symbol loop = 0, caller = 0, kwargs = 0, varargs = 0;
  Body body;
};

/// Reads a template; `source` must be valid UTF-8. Throws SyntaxError (lexer.h).
[[nodiscard]] std::unique_ptr<const Program> parse_program(std::string source);

}  // namespace forge::text::jinja

#pragma once
// The syntax tree of a template: what the parser builds and the evaluator (interp.h) walks. Each node stores its
// position in the source for error messages. The parser bounds the depth of the tree, so recursion over it cannot
// overflow the stack.

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "text/jinja/value.h"

namespace forge::text::jinja {

using Symbol = std::uint32_t;  ///< an interned name: an index into Program::names
struct FilterRow;
struct TestRow;

/// The expressions come before the statements; Node relies on that order.
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

/// The base of all nodes. `kind` tells the derived type, to which the evaluator casts; each derived type lists its
/// kinds.
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
  /// True if jinja2 evaluates this expression while it compiles the template (constant folding) and that can change the
  /// result: a slice of a value that cannot be sliced is undefined there, but an error at run time. So it matters only
  /// for slices.
  [[nodiscard]] bool folds() const { return constant && sliced; }
  NodeKind kind;
  bool constant;            ///< jinja2 would fold it: constants, operators, filters and tests that need no context
  bool sliced;              ///< is a slice or contains one
  std::uint32_t pos;        ///< byte offset into the normalised source
  std::uint32_t depth = 1;  ///< height of the subtree, this node included
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
/// kNot, kNegate, kPlus, kPrint; kBreak and kContinue without a child.
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
/// A chain of comparisons as in Python: a < b <= c.
struct CompareNode : Node {
  CompareNode(std::uint32_t pos, NodePtr first) : Node(NodeKind::kCompare, pos), first(std::move(first)) {}
  NodePtr first;
  std::vector<std::pair<CompareOp, NodePtr>> rest;
};
/// kConcat, kList, kTuple; kSlice with the children start, stop and step, each of which may be null.
struct ItemsNode : Node {
  ItemsNode(NodeKind kind, std::uint32_t pos) : Node(kind, pos) {}
  std::vector<NodePtr> items;
};
struct DictNode : Node {
  explicit DictNode(std::uint32_t pos) : Node(NodeKind::kDict, pos) {}
  std::vector<std::pair<NodePtr, NodePtr>> items;
};
/// `then if test else otherwise`.
struct ConditionNode : Node {
  explicit ConditionNode(std::uint32_t pos) : Node(NodeKind::kCondition, pos) {}
  NodePtr test, then, otherwise;  ///< without `otherwise` (null) the value is undefined if the test fails
};
struct AttributeNode : Node {
  AttributeNode(std::uint32_t pos, NodePtr object, std::string name)
      : Node(NodeKind::kAttribute, pos), object(std::move(object)), name(std::move(name)) {}
  NodePtr object;
  std::string name;
};
/// The arguments of a call: f(positional, name=named, *star, **star_star). `star` and `star_star` may be null.
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
/// `input | name(arguments)`.
struct FilterNode : Node {
  explicit FilterNode(std::uint32_t pos) : Node(NodeKind::kFilter, pos) {}
  NodePtr input;  ///< null in a filter block: the block's text is the input
  std::string name;
  const FilterRow* row = nullptr;  ///< null if there is no such filter; an error only when it is evaluated
  Arguments arguments;
};
/// `input is name(arguments)`. `row` is null if there is no such test.
struct TestNode : Node {
  explicit TestNode(std::uint32_t pos) : Node(NodeKind::kTest, pos) {}
  NodePtr input;
  std::string name;
  const TestRow* row = nullptr;
  Arguments arguments;
};
/// `symbol.attribute` as the target of {% set %}: assigns to an attribute of a namespace.
struct NamespaceRefNode : Node {
  NamespaceRefNode(std::uint32_t pos, Symbol symbol, std::string attribute)
      : Node(NodeKind::kNamespaceRef, pos), symbol(symbol), attribute(std::move(attribute)) {}
  Symbol symbol;
  std::string attribute;
};

/// Literal text between tags, after white-space control.
struct TextNode : Node {
  TextNode(std::uint32_t pos, std::string text) : Node(NodeKind::kText, pos), text(std::move(text)) {}
  std::string text;
};
/// {% for target in items if test %} body {% else %} otherwise {% endfor %}
struct ForNode : Node {
  explicit ForNode(std::uint32_t pos) : Node(NodeKind::kFor, pos) {}
  NodePtr target, items, test;  ///< `test` may be null
  bool recursive = false;
  Body body, otherwise;
};
/// Each branch is a test with its body: if and elif, in order. `otherwise` is the else.
struct IfNode : Node {
  explicit IfNode(std::uint32_t pos) : Node(NodeKind::kIf, pos) {}
  std::vector<std::pair<NodePtr, Body>> branches;
  Body otherwise;
};
/// {% set target = value %}. The target is a name, a tuple of targets or a NamespaceRefNode.
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
/// A macro, or the body of a {% call %} block, which is passed to the called macro as `caller`.
struct MacroNode : Node {
  explicit MacroNode(std::uint32_t pos) : Node(NodeKind::kMacro, pos) {}
  std::string name;  ///< "caller" for a call block
  Symbol symbol = 0;
  std::vector<std::pair<Symbol, NodePtr>> parameters;                   ///< with their defaults, which may be null
  bool uses_caller = false, uses_kwargs = false, uses_varargs = false;  ///< whether the body mentions these names
  Body body;
};
/// {% call(parameters) call %} body {% endcall %}; `caller` holds the parameters and the body.
struct CallBlockNode : Node {
  explicit CallBlockNode(std::uint32_t pos) : Node(NodeKind::kCallBlock, pos) {}
  std::unique_ptr<MacroNode> caller;
  NodePtr call;
};

/// A parsed template. Immutable, so any number of renders may share it.
struct Program {
  std::string source;                                    ///< normalised; positions refer to it
  std::vector<std::string> names;                        ///< by symbol
  Symbol loop = 0, caller = 0, kwargs = 0, varargs = 0;  ///< the symbols of these names
  Body body;
};

/// Parses a normalised template, which must be valid UTF-8. Throws SyntaxError (lexer.h).
[[nodiscard]] std::unique_ptr<const Program> parse_program(std::string source);

}  // namespace forge::text::jinja

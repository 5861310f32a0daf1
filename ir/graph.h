#pragma once
// The graph: nodes with an op, attributes and typed results; an edge carries result index -> operand index.
// Boost.Graph holds it behind this interface (graph.cc is the only file that includes it).

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "ir/op.h"

namespace forge::ir {

using NodeId = std::uint32_t;
inline constexpr NodeId kNoNode = ~0u;

/// One result of one node.
struct Value {
  NodeId node = kNoNode;
  std::uint32_t result = 0;
  auto operator<=>(const Value&) const = default;
};

/// One use of a value: operand `operand` of `node`.
struct Use {
  NodeId node = kNoNode;
  std::uint32_t operand = 0;
  auto operator<=>(const Use&) const = default;
};

inline constexpr std::int32_t kNoLayer = -1;
inline constexpr std::uint32_t kNoGroup = 0;

class Graph {
 public:
  Graph();
  ~Graph();
  Graph(const Graph&);
  Graph& operator=(const Graph&);
  Graph(Graph&&) noexcept;
  Graph& operator=(Graph&&) noexcept;

  /// Adds a node; result types come from the op's shape rule. `layer` groups nodes in dumps.
  NodeId add(Op op, std::vector<Value> operands, Attrs attrs = {}, std::int32_t layer = kNoLayer);
  /// Removes a node none of whose results is used (invariant IR-003).
  void remove(NodeId node);
  /// Lets every use of `from` use `to` instead (graph outputs too); `except` keeps its uses. Types must be equal,
  /// except that uses may change between f32 and q8a_32 or q8a_16 where the user's shape rule allows it and gives the
  /// same results.
  void replace_uses(Value from, Value to, NodeId except = kNoNode);
  /// Both re-run the node's shape rule and store what it gives; users further down are not touched (the verifier
  /// tells).
  void set_operand(Use use, Value value);
  void set_attrs(NodeId node, Attrs attrs);

  [[nodiscard]] std::size_t size() const;  ///< live nodes
  [[nodiscard]] bool alive(NodeId node) const;
  [[nodiscard]] NodeId id_bound() const;  ///< all ids are below it
  [[nodiscard]] Op op(NodeId node) const;
  [[nodiscard]] const Attrs& attrs(NodeId node) const;
  template <class A>
  [[nodiscard]] const A& attrs_as(NodeId node) const {
    return std::get<A>(attrs(node));
  }
  /// Spans and references of a node are valid until the graph is next changed.
  [[nodiscard]] std::span<const Value> operands(NodeId node) const;
  [[nodiscard]] Value operand(NodeId node, std::size_t i) const { return operands(node)[i]; }
  [[nodiscard]] std::span<const TensorType> results(NodeId node) const;
  [[nodiscard]] const TensorType& type(Value value) const { return results(value.node)[value.result]; }
  [[nodiscard]] std::vector<Use> uses(Value value) const;      ///< in (node, operand) order
  [[nodiscard]] std::vector<NodeId> users(NodeId node) const;  ///< distinct, ascending
  [[nodiscard]] bool is_output(Value value) const;

  [[nodiscard]] std::int32_t layer(NodeId node) const;
  /// Nodes with the same group (not kNoGroup) are executed as one step. Fusion passes set it.
  [[nodiscard]] std::uint32_t group(NodeId node) const;
  void set_group(NodeId node, std::uint32_t group);
  std::uint32_t new_group();

  /// Named results of the whole graph ("logits", "kv0").
  struct Output {
    std::string name;
    Value value;
    bool operator==(const Output&) const = default;
  };
  [[nodiscard]] const std::vector<Output>& outputs() const;
  void add_output(std::string name, Value value);
  /// Puts another in the place of outputs()[i].
  void set_output(std::size_t i, std::string name, Value value);

  [[nodiscard]] std::vector<NodeId> nodes() const;  ///< live, ascending
  /// Operands before users; among ready nodes the smallest id first, so the order is stable. Throws on a cycle
  /// (IR-001).
  [[nodiscard]] std::vector<NodeId> topological_order() const;
  /// Is there a path of edges from `from` to `to`? A node reaches itself.
  [[nodiscard]] bool reaches(NodeId from, NodeId to) const;

  /// Drops dead slots and renumbers in topological order. Every NodeId held outside is void afterwards.
  void compact();
  /// 64-bit hash (XXH3) of ops, attributes, edges, groups and outputs; independent of node ids.
  [[nodiscard]] std::uint64_t hash() const;

 private:
  friend struct GraphAccess;
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

/// For the verifier and its tests only: looks at the stored edges, and damages a graph in ways the interface refuses.
struct GraphAccess {
  /// Stored edges into `node` as (operand index, value), ascending.
  static std::vector<std::pair<std::uint32_t, Value>> in_edges(const Graph& graph, NodeId node);
  static std::size_t edge_count(const Graph& graph);
  static void clear_edges(Graph& graph, NodeId node);
  static void set_alive(Graph& graph, NodeId node, bool alive);
  static void set_raw(Graph& graph, NodeId node, std::vector<Value> operands, Attrs attrs,
                      std::vector<TensorType> results);
};

/// Throws Error(kInternal) citing the number of the first broken invariant. The list stands in verify.cc.
void verify(const Graph& graph);

/// What a forward step costs under `bounds`, summed over nodes.
Cost total_cost(const Graph& graph, const Bounds& bounds);

}  // namespace forge::ir

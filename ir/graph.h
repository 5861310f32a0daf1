#pragma once
// The IR graph that model families build, passes rewrite and plans store. A node has an op, attributes, operands and
// typed results; an edge connects one result of a node to one operand of another:
//
//   %0 = input {kind = ids}      : i32[T]
//   %1 = weight {...}            : q8_0[49152,576]
//   %2 = embed(%1, %0)           : f32[T,576]       edges: (node 1, result 0) -> operand 0, (node 0, result 0) -> 1
//
// Boost.Graph holds the nodes and edges behind this interface. Its headers are slow to compile, so graph.cc alone
// includes them.
//
// Ids: a NodeId stays valid while nodes are added and removed, because a removed node leaves a dead slot. Only
// compact() renumbers.

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
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

/// Of nodes that belong to no layer (inputs, the embedding, the head), and of nodes in no fused group.
inline constexpr std::int32_t kNoLayer = -1;
inline constexpr std::uint32_t kNoGroup = 0;

/// Name of the output [R, width] of encoders, and of graphs for embeddings, in place of "logits".
inline constexpr std::string_view kHiddenOutput = "hidden";

class Graph {
 public:
  Graph();
  ~Graph();
  Graph(const Graph&);
  Graph& operator=(const Graph&);
  Graph(Graph&&) noexcept;
  Graph& operator=(Graph&&) noexcept;

  /// Adds a node; its result types come from the op's shape rule, which throws Error(kInternal) when it rejects the
  /// operands or attributes. `layer` is the decoder layer, for dumps and reports.
  NodeId add(Op op, std::vector<Value> operands, Attrs attrs = {}, std::int32_t layer = kNoLayer);
  /// Removes a node. Precondition: none of its results is used or is an output (IR-003).
  void remove(NodeId node);
  /// Redirects every use of `from` to `to`, graph outputs included; uses by the node `except` are kept. The types must
  /// be equal (IR-006), with one exception: f32 may become quantised activations of the same shape, or the reverse,
  /// when the shape rule of every user still gives the same result types.
  void replace_uses(Value from, Value to, NodeId except = kNoNode);
  /// set_operand and set_attrs re-run the node's shape rule and store the new result types. Nodes further down keep
  /// theirs: when a result type changes, the caller must update the users, or verify() reports IR-006.
  void set_operand(Use use, Value value);
  void set_attrs(NodeId node, Attrs attrs);

  [[nodiscard]] std::size_t size() const;  ///< live nodes
  [[nodiscard]] bool alive(NodeId node) const;
  [[nodiscard]] NodeId id_bound() const;  ///< all ids, dead ones too, are below it: the size of arrays indexed by id
  [[nodiscard]] Op op(NodeId node) const;
  [[nodiscard]] const Attrs& attrs(NodeId node) const;
  /// The attributes as struct A. Precondition: A is the alternative of the node's op.
  template <class A>
  [[nodiscard]] const A& attrs_as(NodeId node) const {
    return std::get<A>(attrs(node));
  }
  /// Returned spans and references are valid until the graph is next changed.
  [[nodiscard]] std::span<const Value> operands(NodeId node) const;
  [[nodiscard]] Value operand(NodeId node, std::size_t i) const { return operands(node)[i]; }
  [[nodiscard]] std::span<const TensorType> results(NodeId node) const;
  [[nodiscard]] const TensorType& type(Value value) const { return results(value.node)[value.result]; }
  [[nodiscard]] std::vector<TensorType> operand_types(NodeId node) const;
  [[nodiscard]] std::vector<Use> uses(Value value) const;      ///< in (node, operand) order
  [[nodiscard]] std::vector<NodeId> users(NodeId node) const;  ///< distinct, ascending
  [[nodiscard]] bool is_output(Value value) const;

  [[nodiscard]] std::int32_t layer(NodeId node) const;
  /// Nodes with the same group (other than kNoGroup) run as one step. Fusion passes set it.
  [[nodiscard]] std::uint32_t group(NodeId node) const;
  void set_group(NodeId node, std::uint32_t group);
  std::uint32_t new_group();  ///< a group number that no node has

  /// Named results of the whole graph ("logits", "kv0").
  struct Output {
    std::string name;
    Value value;
    bool operator==(const Output&) const = default;
  };
  [[nodiscard]] const std::vector<Output>& outputs() const;
  void add_output(std::string name, Value value);
  /// Replaces outputs()[i].
  void set_output(std::size_t i, std::string name, Value value);

  [[nodiscard]] std::vector<NodeId> nodes() const;  ///< live, ascending
  /// Live nodes, operands before users. Among nodes that are ready the smallest id comes first, so the order is the
  /// same for the same graph. Throws on a cycle (IR-001).
  [[nodiscard]] std::vector<NodeId> topological_order() const;
  /// True if a path of edges leads from `from` to `to`. A node reaches itself.
  [[nodiscard]] bool reaches(NodeId from, NodeId to) const;

  /// Drops dead slots and renumbers the nodes in topological order. Invalidates every NodeId held outside.
  void compact();
  /// 64-bit hash (XXH3) of ops, attributes, types, edges, layers, groups and outputs. It does not depend on node ids:
  /// compact() and a print/parse round trip keep it.
  [[nodiscard]] std::uint64_t hash() const;

 private:
  friend struct GraphAccess;
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

/// For the verifier and its tests only: reads the stored edges, and lets tests damage a graph in ways that Graph itself
/// does not allow.
struct GraphAccess {
  /// Stored edges into `node` as (operand index, value), ascending.
  static std::vector<std::pair<std::uint32_t, Value>> in_edges(const Graph& graph, NodeId node);
  static std::size_t edge_count(const Graph& graph);
  static void clear_edges(Graph& graph, NodeId node);
  static void set_alive(Graph& graph, NodeId node, bool alive);
  static void set_raw(Graph& graph, NodeId node, std::vector<Value> operands, Attrs attrs,
                      std::vector<TensorType> results);
};

/// Checks all invariants of a graph. Throws Error(kInternal) with the number (IR-nnn) of the first broken one;
/// verify.cc lists them.
void verify(const Graph& graph);

/// Bytes and FLOPs of a forward step with the given extents, summed over all nodes; sums saturate at INT64_MAX. Fusion
/// is not considered.
Cost total_cost(const Graph& graph, const Bounds& bounds);

}  // namespace forge::ir

#include "ir/graph.h"

#include <fmt/format.h>

#include <algorithm>
#include <boost/graph/adjacency_list.hpp>
#include <queue>

#include "support/error.h"

namespace forge::ir {
namespace {

/// A vertex of the Boost graph. Removing a vertex of a vecS graph would renumber all later ones, so a removed node
/// stays as a dead vertex until compact().
struct Node {
  Op op{};
  bool alive = true;
  std::int32_t layer = kNoLayer;
  std::uint32_t group = kNoGroup;
  Attrs attrs;
  std::vector<Value> operands;  // the same facts as the in-edges, in operand order: operands() returns a span of it
  std::vector<TensorType> results;
};

/// Connects result `result` of the source vertex to operand `operand` of the target vertex.
struct Edge {
  std::uint32_t result = 0, operand = 0;
};

using BoostGraph = boost::adjacency_list<boost::vecS, boost::vecS, boost::bidirectionalS, Node, Edge>;

/// "node 12 (matmul)", for errors.
std::string label(const BoostGraph& store, NodeId node) {
  return fmt::format("node {} ({})", node, op_def(store[node].op).name);
}

/// Adds one edge for each entry of the node's operand list.
void add_edges(BoostGraph& store, NodeId node) {
  const auto& operands = store[node].operands;
  for (std::uint32_t i = 0; i < operands.size(); ++i)
    boost::add_edge(operands[i].node, node, {operands[i].result, i}, store);
}

}  // namespace

struct Graph::Impl {
  BoostGraph store;
  std::vector<Output> outputs;
  std::size_t live = 0;
  std::uint32_t next_group = 1;

  [[nodiscard]] bool alive(NodeId node) const { return node < boost::num_vertices(store) && store[node].alive; }
  [[nodiscard]] const Node& at(NodeId node) const {
    if (!alive(node)) [[unlikely]]
      invariant(false, "IR-004", fmt::format("node {} is not in the graph", node));
    return store[node];
  }
  Node& at(NodeId node) { return const_cast<Node&>(std::as_const(*this).at(node)); }
  void check(Value value) const {
    if (value.result >= at(value.node).results.size()) [[unlikely]]
      invariant(false, "IR-004", fmt::format("{} has no result {}", label(store, value.node), value.result));
  }
  [[nodiscard]] std::vector<TensorType> operand_types(NodeId node) const {
    std::vector<TensorType> types;
    for (const Value& value : store[node].operands) types.push_back(store[value.node].results[value.result]);
    return types;
  }
  /// Stores new result types. An op such as split may have fewer results than before; the ones that go must be unused.
  void set_results(NodeId node, std::vector<TensorType> results) {
    if (results.size() < store[node].results.size()) {
      for (const auto& edge : boost::make_iterator_range(boost::out_edges(node, store)))
        invariant(store[edge].result < results.size(), "IR-004", "the change removes a result that is used");
      for (const Output& output : outputs)
        invariant(output.value.node != node || output.value.result < results.size(), "IR-004",
                  "the change removes a result that is an output");
    }
    store[node].results = std::move(results);
  }
  /// Replaces the edge into one operand. The caller checks the types.
  void redirect(Use use, Value value) {
    for (const auto& edge : boost::make_iterator_range(boost::in_edges(use.node, store)))
      if (store[edge].operand == use.operand) {
        boost::remove_edge(edge, store);
        break;
      }
    boost::add_edge(value.node, use.node, {value.result, use.operand}, store);
    store[use.node].operands[use.operand] = value;
  }
};

Graph::Graph() : impl_(std::make_unique<Impl>()) {}
Graph::~Graph() = default;
Graph::Graph(const Graph& other) : impl_(std::make_unique<Impl>(*other.impl_)) {}
Graph& Graph::operator=(const Graph& other) {
  if (this != &other) *impl_ = Impl(*other.impl_);
  return *this;
}
Graph::Graph(Graph&& other) noexcept = default;
Graph& Graph::operator=(Graph&& other) noexcept = default;

/// The shape rule runs before the graph changes, so an error leaves it as it was.
NodeId Graph::add(Op op, std::vector<Value> operands, Attrs attrs, std::int32_t layer) {
  std::vector<TensorType> types;
  for (const Value& value : operands) {
    impl_->check(value);
    types.push_back(type(value));
  }
  auto results = infer_types(op, attrs, types);
  Node node{.op = op,
            .layer = layer,
            .attrs = std::move(attrs),
            .operands = std::move(operands),
            .results = std::move(results)};
  const auto id = static_cast<NodeId>(boost::add_vertex(impl_->store));
  impl_->store[id] = std::move(node);
  add_edges(impl_->store, id);
  ++impl_->live;
  return id;
}

void Graph::remove(NodeId node) {
  Node& dead = impl_->at(node);
  bool used = boost::out_degree(node, impl_->store) > 0;
  for (const Output& output : impl_->outputs) used = used || output.value.node == node;
  if (used) invariant(false, "IR-003", label(impl_->store, node) + " is removed but used");
  boost::clear_vertex(node, impl_->store);
  dead = Node{.op = dead.op, .alive = false};
  --impl_->live;
}

/// With different types, every user's shape rule is checked before the first use is redirected, so that a refused
/// replacement leaves the graph unchanged.
void Graph::replace_uses(Value from, Value to, NodeId except) {
  impl_->check(from);
  impl_->check(to);
  const bool same_type = type(from) == type(to);
  if (!same_type) {
    const auto quantised_pair = [](DType a, DType b) { return a == DType::kF32 && is_quantized_activation(b); };
    const DType a = type(from).dtype;
    const DType b = type(to).dtype;
    invariant(type(from).shape == type(to).shape && (quantised_pair(a, b) || quantised_pair(b, a)), "IR-006",
              fmt::format("uses of {} cannot become {}", type(from).text(), type(to).text()));
    invariant(!is_output(from), "IR-006", "an output cannot change its type");
  }
  const auto all = uses(from);
  if (!same_type)
    for (const Use& use : all) {
      if (use.node == except) continue;
      auto types = impl_->operand_types(use.node);
      types[use.operand] = type(to);
      invariant(infer_types(op(use.node), attrs(use.node), types) == impl_->at(use.node).results, "IR-006",
                label(impl_->store, use.node) + " would have other result types");
    }
  for (const Use& use : all)
    if (use.node != except) impl_->redirect(use, to);
  for (Output& output : impl_->outputs)
    if (output.value == from) output.value = to;
}

void Graph::set_operand(Use use, Value value) {
  impl_->check(value);
  invariant(use.operand < impl_->at(use.node).operands.size(), "IR-004", "no such operand");
  auto types = impl_->operand_types(use.node);
  types[use.operand] = type(value);
  impl_->set_results(use.node, infer_types(op(use.node), attrs(use.node), types));
  impl_->redirect(use, value);
}

void Graph::set_attrs(NodeId node, Attrs attrs) {
  Node& changed = impl_->at(node);
  impl_->set_results(node, infer_types(changed.op, attrs, impl_->operand_types(node)));
  changed.attrs = std::move(attrs);
}

std::size_t Graph::size() const {
  return impl_->live;
}
bool Graph::alive(NodeId node) const {
  return impl_->alive(node);
}
NodeId Graph::id_bound() const {
  return static_cast<NodeId>(boost::num_vertices(impl_->store));
}
Op Graph::op(NodeId node) const {
  return impl_->at(node).op;
}
const Attrs& Graph::attrs(NodeId node) const {
  return impl_->at(node).attrs;
}
std::span<const Value> Graph::operands(NodeId node) const {
  return impl_->at(node).operands;
}
std::span<const TensorType> Graph::results(NodeId node) const {
  return impl_->at(node).results;
}
std::int32_t Graph::layer(NodeId node) const {
  return impl_->at(node).layer;
}
std::uint32_t Graph::group(NodeId node) const {
  return impl_->at(node).group;
}

void Graph::set_group(NodeId node, std::uint32_t group) {
  impl_->at(node).group = group;
  impl_->next_group = std::max(impl_->next_group, group == ~0u ? group : group + 1);
}
std::uint32_t Graph::new_group() {
  invariant(impl_->next_group != ~0u, "IR-012", "group numbers are used up");
  return impl_->next_group++;
}

const std::vector<Graph::Output>& Graph::outputs() const {
  return impl_->outputs;
}
void Graph::add_output(std::string name, Value value) {
  impl_->check(value);
  impl_->outputs.push_back({std::move(name), value});
}
void Graph::set_output(std::size_t i, std::string name, Value value) {
  impl_->check(value);
  impl_->outputs.at(i) = {std::move(name), value};
}
bool Graph::is_output(Value value) const {
  return std::ranges::any_of(impl_->outputs, [&](const Output& output) { return output.value == value; });
}

/// The order of stored edges depends on the history of changes, so the result is sorted.
std::vector<TensorType> Graph::operand_types(NodeId node) const {
  std::vector<TensorType> types;
  for (const Value& operand : operands(node)) types.push_back(type(operand));
  return types;
}

std::vector<Use> Graph::uses(Value value) const {
  impl_->check(value);
  std::vector<Use> found;
  for (const auto& edge : boost::make_iterator_range(boost::out_edges(value.node, impl_->store)))
    if (impl_->store[edge].result == value.result)
      found.push_back({static_cast<NodeId>(edge.m_target), impl_->store[edge].operand});
  std::ranges::sort(found);
  return found;
}

std::vector<NodeId> Graph::users(NodeId node) const {
  (void)impl_->at(node);
  std::vector<NodeId> found;
  for (const auto vertex : boost::make_iterator_range(boost::adjacent_vertices(node, impl_->store)))
    found.push_back(static_cast<NodeId>(vertex));
  std::ranges::sort(found);
  found.erase(std::ranges::unique(found).begin(), found.end());
  return found;
}

std::vector<NodeId> Graph::nodes() const {
  std::vector<NodeId> ids;
  for (NodeId node = 0; node < id_bound(); ++node)
    if (impl_->store[node].alive) ids.push_back(node);
  return ids;
}

/// Kahn's algorithm with a heap of ready nodes: `waiting` counts the operands that are not yet in the order. Nodes that
/// are left over belong to a cycle or follow one.
std::vector<NodeId> Graph::topological_order() const {
  const BoostGraph& store = impl_->store;
  std::vector<std::size_t> waiting(id_bound());
  std::priority_queue<NodeId, std::vector<NodeId>, std::greater<>> ready;
  for (NodeId node = 0; node < id_bound(); ++node) {
    waiting[node] = boost::in_degree(node, store);
    if (store[node].alive && waiting[node] == 0) ready.push(node);
  }
  std::vector<NodeId> order;
  order.reserve(size());
  while (!ready.empty()) {
    const NodeId node = ready.top();
    ready.pop();
    order.push_back(node);
    for (const auto user : boost::make_iterator_range(boost::adjacent_vertices(node, store)))
      if (--waiting[user] == 0) ready.push(static_cast<NodeId>(user));
  }
  invariant(order.size() == size(), "IR-001", "the graph has a cycle");
  return order;
}

/// Depth-first search along the edges, with an explicit stack.
bool Graph::reaches(NodeId from, NodeId to) const {
  (void)impl_->at(from);
  (void)impl_->at(to);
  std::vector<bool> seen(id_bound());
  std::vector<NodeId> open{from};
  while (!open.empty()) {
    const NodeId node = open.back();
    open.pop_back();
    if (node == to) return true;
    for (const auto user : boost::make_iterator_range(boost::adjacent_vertices(node, impl_->store)))
      if (!seen[user]) {
        seen[user] = true;
        open.push_back(static_cast<NodeId>(user));
      }
  }
  return false;
}

/// Rebuilds the graph. Topological order guarantees that an operand has its new id before its users are added.
void Graph::compact() {
  const auto order = topological_order();
  std::vector<NodeId> new_ids(id_bound(), kNoNode);
  auto rebuilt = std::make_unique<Impl>();
  for (const NodeId old : order) {
    Node node = std::move(impl_->store[old]);
    for (Value& value : node.operands) value.node = new_ids[value.node];
    new_ids[old] = static_cast<NodeId>(boost::add_vertex(rebuilt->store));
    rebuilt->store[new_ids[old]] = std::move(node);
    add_edges(rebuilt->store, new_ids[old]);
  }
  rebuilt->outputs = std::move(impl_->outputs);
  for (Output& output : rebuilt->outputs) output.value.node = new_ids[output.value.node];
  rebuilt->live = order.size();
  rebuilt->next_group = impl_->next_group;
  impl_ = std::move(rebuilt);
}

std::vector<std::pair<std::uint32_t, Value>> GraphAccess::in_edges(const Graph& graph, NodeId node) {
  const BoostGraph& store = graph.impl_->store;
  std::vector<std::pair<std::uint32_t, Value>> edges;
  for (const auto& edge : boost::make_iterator_range(boost::in_edges(node, store)))
    edges.emplace_back(store[edge].operand, Value{static_cast<NodeId>(edge.m_source), store[edge].result});
  std::ranges::sort(edges);
  return edges;
}

std::size_t GraphAccess::edge_count(const Graph& graph) {
  return boost::num_edges(graph.impl_->store);
}
void GraphAccess::clear_edges(Graph& graph, NodeId node) {
  boost::clear_vertex(node, graph.impl_->store);
}
void GraphAccess::set_alive(Graph& graph, NodeId node, bool alive) {
  bool& now = graph.impl_->store[node].alive;
  graph.impl_->live += static_cast<std::size_t>(alive) - static_cast<std::size_t>(now);
  now = alive;
}
void GraphAccess::set_raw(Graph& graph, NodeId node, std::vector<Value> operands, Attrs attrs,
                          std::vector<TensorType> results) {
  Node& raw = graph.impl_->store[node];
  raw.operands = std::move(operands);
  raw.attrs = std::move(attrs);
  raw.results = std::move(results);
}

}  // namespace forge::ir

// What is said of a graph as a whole: its hash and its cost.

#include <xxhash.h>

#include <algorithm>

#include "ir/graph.h"
#include "ir/text/attrs_io.h"

namespace forge::ir {
namespace {

void append(std::string& bytes, std::uint64_t number) {
  bytes.append(reinterpret_cast<const char*>(&number), sizeof number);
}

std::uint64_t digest(const std::string& bytes) {
  return XXH3_64bits(bytes.data(), bytes.size());
}

/// Each node's own text, without its edges.
std::string own_bytes(const Graph& graph, NodeId node) {
  std::string bytes;
  append(bytes, static_cast<std::uint64_t>(graph.op(node)));
  append(bytes, static_cast<std::uint64_t>(graph.layer(node)));
  append(bytes, graph.group(node));
  append_attrs(bytes, graph.attrs(node));
  for (const TensorType& type : graph.results(node)) append_type(bytes, type);
  return bytes;
}

void saturating_add(std::int64_t& sum, std::int64_t more) {
  if (__builtin_add_overflow(sum, more, &sum)) sum = INT64_MAX;
}

}  // namespace

/// Each node is hashed from what it is made of, then once more together with who uses it, so that a value computed
/// twice differs from one that is shared; the sorted hashes of all nodes are the graph's.
std::uint64_t Graph::hash() const {
  const auto order = topological_order();
  std::vector<std::uint64_t> above(id_bound());
  for (const NodeId node : order) {
    std::string bytes = own_bytes(*this, node);
    for (const Value& value : operands(node)) {
      append(bytes, above[value.node]);
      append(bytes, value.result);
    }
    above[node] = digest(bytes);
  }
  std::vector<std::vector<std::uint64_t>> used_by(id_bound());
  for (const NodeId node : order)
    for (std::uint32_t i = 0; i < operands(node).size(); ++i) {
      std::string bytes;
      append(bytes, above[node]);
      append(bytes, i);
      append(bytes, operand(node, i).result);
      used_by[operand(node, i).node].push_back(digest(bytes));
    }
  std::vector<std::uint64_t> whole(id_bound());
  std::vector<std::uint64_t> all;
  for (const NodeId node : order) {
    std::ranges::sort(used_by[node]);
    std::string bytes;
    append(bytes, above[node]);
    for (const std::uint64_t use : used_by[node]) append(bytes, use);
    whole[node] = digest(bytes);
    all.push_back(whole[node]);
  }
  std::ranges::sort(all);
  std::string bytes;
  for (const std::uint64_t node : all) append(bytes, node);
  for (const Output& output : outputs()) {
    append(bytes, output.name.size());
    bytes += output.name;
    append(bytes, whole[output.value.node]);
    append(bytes, output.value.result);
  }
  return digest(bytes);
}

Cost total_cost(const Graph& graph, const Bounds& bounds) {
  Cost total;
  for (const NodeId node : graph.nodes()) {
    std::vector<TensorType> types;
    for (const Value& value : graph.operands(node)) types.push_back(graph.type(value));
    const Cost cost = op_def(graph.op(node)).cost(graph.attrs(node), types, graph.results(node), bounds);
    saturating_add(total.weight_bytes, cost.weight_bytes);
    saturating_add(total.activation_bytes, cost.activation_bytes);
    saturating_add(total.flops, cost.flops);
  }
  return total;
}

}  // namespace forge::ir

// Properties of a whole graph: Graph::hash and total_cost.

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

/// A node's contribution to the hash without its edges: op, layer, group, attributes and result types.
std::string node_bytes(const Graph& graph, NodeId node) {
  std::string bytes;
  append(bytes, static_cast<std::uint64_t>(graph.op(node)));
  append(bytes, static_cast<std::uint64_t>(graph.layer(node)));
  append(bytes, graph.group(node));
  append_attrs(bytes, graph.attrs(node));
  for (const TensorType& type : graph.results(node)) append_type(bytes, type);
  return bytes;
}

/// Hostile shapes may overflow a sum; it then stays at the largest value.
void saturating_add(std::int64_t& sum, std::int64_t more) {
  if (__builtin_add_overflow(sum, more, &sum)) sum = INT64_MAX;
}

}  // namespace

/// Three passes:
///   upstream[n]  hash of node n and of everything above it: its own bytes and the upstream hashes of its operands
///   whole[n]     hash of upstream[n] and, sorted, of all uses of n (the user's upstream hash and the operand index)
///   result       hash of the sorted whole[] of all nodes and of the outputs in order
/// Sorting removes the dependence on node ids. upstream alone could not tell a value that two nodes share from the same
/// value computed twice; the uses in `whole` can.
std::uint64_t Graph::hash() const {
  const auto order = topological_order();
  std::vector<std::uint64_t> upstream(id_bound());
  for (const NodeId node : order) {
    std::string bytes = node_bytes(*this, node);
    for (const Value& value : operands(node)) {
      append(bytes, upstream[value.node]);
      append(bytes, value.result);
    }
    upstream[node] = digest(bytes);
  }
  std::vector<std::vector<std::uint64_t>> used_by(id_bound());
  for (const NodeId node : order)
    for (std::uint32_t i = 0; i < operands(node).size(); ++i) {
      std::string bytes;
      append(bytes, upstream[node]);
      append(bytes, i);
      append(bytes, operand(node, i).result);
      used_by[operand(node, i).node].push_back(digest(bytes));
    }
  std::vector<std::uint64_t> whole(id_bound());
  std::vector<std::uint64_t> all;
  for (const NodeId node : order) {
    std::ranges::sort(used_by[node]);
    std::string bytes;
    append(bytes, upstream[node]);
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
    const Cost cost =
        op_def(graph.op(node)).cost(graph.attrs(node), graph.operand_types(node), graph.results(node), bounds);
    saturating_add(total.weight_bytes, cost.weight_bytes);
    saturating_add(total.activation_bytes, cost.activation_bytes);
    saturating_add(total.flops, cost.flops);
  }
  return total;
}

}  // namespace forge::ir

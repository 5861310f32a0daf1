// The invariants of a graph. An error cites the number.
//   IR-000  every op has exactly one row in the op table
//   IR-001  no cycles
//   IR-002  attributes are of the op's kind, operands are as many as it takes
//   IR-003  a removed node has no users and no operands
//   IR-004  operands and outputs are existing results of live nodes
//   IR-005  the stored edges say exactly what the operand lists say
//   IR-006  result types are those of the shape rule
//   IR-007  outputs have names, each its own
//   IR-008  concat_rows takes weights, slices or concatenations of them, slice_rows a weight: both are done at load
//   time IR-009  a state goes to at most one store or output; a store's state to exactly one, so no write is lost
//   IR-010  a store or attention fits the geometry of the KV group its state comes from
//   IR-011  a chain stores a layer once, and attention to a stored layer reads a state behind that store
//   IR-012  groups can be executed as single steps: nothing outside a group lies between two of its nodes, and no two
//           groups wait for each other
//   IR-013  each KV group has one kv_state, each weight name one type
//   IR-014  stores and attention take positions, sequence, block_table and kv_length from those inputs of the step
//   IR-015  the experts of expert_matmul and expert_add were chosen by a route among as many as the weight has

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>

#include "ir/graph.h"
#include "ir/text/attrs_io.h"
#include "support/error.h"

namespace forge::ir {
namespace {

class Verifier {
 public:
  explicit Verifier(const Graph& graph) : graph_(graph), nodes_(graph.nodes()) {}

  void run() {
    edges();
    order_ = graph_.topological_order();  // IR-001
    types();
    outputs();
    concats();
    state_chains();
    inputs_of_state_ops();
    experts();
    groups();
    sources();
  }

 private:
  [[noreturn]] void broken(const char* number, NodeId node, const std::string& why) const {
    invariant(false, number, fmt::format("node {} ({}): {}", node, op_def(graph_.op(node)).name, why));
    __builtin_unreachable();
  }
  void want(bool holds, const char* number, NodeId node, const char* why) const {
    if (!holds) [[unlikely]]
      broken(number, node, why);
  }
  [[nodiscard]] bool exists(Value value) const {
    return graph_.alive(value.node) && value.result < graph_.results(value.node).size();
  }

  void edges() const {
    std::size_t count = 0;
    for (const NodeId node : nodes_) {
      const auto operands = graph_.operands(node);
      for (const Value& value : operands) want(exists(value), "IR-004", node, "an operand does not exist");
      const auto stored = GraphAccess::in_edges(graph_, node);
      want(stored.size() == operands.size(), "IR-005", node, "edges and operands differ in number");
      for (std::size_t i = 0; i < stored.size(); ++i)
        want(stored[i].first == i && stored[i].second == operands[i], "IR-005", node, "an edge is not its operand");
      count += operands.size();
    }
    invariant(count == GraphAccess::edge_count(graph_), "IR-003", "a removed node still has edges");
  }

  void types() const {
    for (const NodeId node : order_) {
      const OpDef& def = op_def(graph_.op(node));
      const auto operands = graph_.operands(node);
      want(graph_.attrs(node).index() == def.attrs_index, "IR-002", node, "attributes are of another op's kind");
      want(operands.size() >= def.operands_min && (def.operands_max == 255 || operands.size() <= def.operands_max),
           "IR-002", node, "wrong number of operands");
      std::vector<TensorType> types;
      for (const Value& value : operands) types.push_back(graph_.type(value));
      std::vector<TensorType> expected;
      try {
        expected = infer_types(graph_.op(node), graph_.attrs(node), types);
      } catch (const Error& error) {
        broken("IR-006", node, std::string("the shape rule refuses: ") + error.what());
      }
      if (!std::ranges::equal(expected, graph_.results(node)))
        broken("IR-006", node,
               fmt::format("results are {}, the shape rule gives {}", list(graph_.results(node)), list(expected)));
    }
  }

  static std::string list(std::span<const TensorType> types) {
    std::string out;
    for (const TensorType& type : types) out += (out.empty() ? "" : ", ") + type.text();
    return out;
  }

  void outputs() {
    std::set<std::string_view> names;
    for (const auto& [name, value] : graph_.outputs()) {
      invariant(exists(value), "IR-004", "an output does not exist");
      output_values_.insert(value);
      invariant(!name.empty() && names.insert(name).second, "IR-007",
                "output name " + quoted(name) + " is empty or used twice");
    }
  }

  void concats() const {
    for (const NodeId node : nodes_) {
      const bool slice = graph_.op(node) == Op::kSliceRows;
      if (!slice && graph_.op(node) != Op::kConcatRows) continue;
      for (const Value& value : graph_.operands(node)) {
        const Op producer = graph_.op(value.node);
        const bool made = producer == Op::kConcatRows || producer == Op::kSliceRows;
        want(producer == Op::kWeight || (!slice && made), "IR-008", node, "an operand is not a weight");
      }
    }
  }

  [[nodiscard]] bool is_store(NodeId node) const { return graph_.op(node) == Op::kKvStore; }

  /// Walks each chain from its kv_state through the stores.
  void state_chains() const {
    for (const NodeId node : nodes_)
      if (graph_.op(node) == Op::kKvState) state_chain(node);
  }

  void state_chain(NodeId root) const {
    const auto& geometry = graph_.attrs_as<KvStateAttrs>(root);
    std::map<std::int64_t, std::size_t> stored_at;  // layer -> place of its store in the chain
    std::vector<std::pair<NodeId, std::size_t>> readers;
    std::size_t place = 0;
    for (NodeId node = root; node != kNoNode; ++place) {
      NodeId next = kNoNode;
      auto ends = output_values_.count({node, 0});
      for (const Use& use : graph_.uses({node, 0})) {
        if (is_store(use.node)) {
          next = use.node;
          ++ends;
        } else {
          readers.emplace_back(use.node, place);
        }
      }
      want(ends <= 1, "IR-009", node, "its state goes two ways");
      want(ends == 1 || node == root, "IR-009", node,
           "what it stores is lost: its state is neither stored to nor output");
      if (next != kNoNode) {
        check_geometry(next, geometry);
        const bool fresh = stored_at.emplace(graph_.attrs_as<KvStoreAttrs>(next).layer, place + 1).second;
        want(fresh, "IR-011", next, "its layer is stored twice");
      }
      node = next;
    }
    for (const auto& [reader, at] : readers) {
      if (graph_.op(reader) != Op::kAttention) continue;
      check_geometry(reader, geometry);
      const auto stored = stored_at.find(graph_.attrs_as<AttentionAttrs>(reader).layer);
      want(stored == stored_at.end() || stored->second <= at, "IR-011", reader,
           "reads a state before its layer is stored");
    }
  }

  void check_geometry(NodeId node, const KvStateAttrs& geometry) const {
    std::int64_t layer = 0;
    if (is_store(node)) {
      layer = graph_.attrs_as<KvStoreAttrs>(node).layer;
      const bool values = graph_.operands(node).size() == 6;
      want(graph_.type(graph_.operand(node, 1)).cols() == geometry.kv_heads * geometry.head_dim, "IR-010", node,
           "rows are not kv_heads * head_dim wide");
      want(values == (geometry.shared_row == 0), "IR-010", node,
           values ? "values are stored where they share the keys' rows" : "no values are stored");
      want(!values || graph_.type(graph_.operand(node, 2)).cols() == geometry.kv_heads * value_dim_of(geometry),
           "IR-010", node, "rows are not kv_heads * value_dim wide");
    } else {
      const auto& attention = graph_.attrs_as<AttentionAttrs>(node);
      layer = attention.layer;
      want(attention.kv_heads == geometry.kv_heads && attention.head_dim == geometry.head_dim &&
               value_dim_of(attention) == value_dim_of(geometry),
           "IR-010", node, "other heads than the KV group's");
      want(geometry.window == 0 || (attention.window > 0 && attention.window <= geometry.window), "IR-010", node,
           "sees further back than the KV group keeps");
    }
    want(layer < geometry.layers, "IR-010", node, "its layer is not in the KV group");
  }

  void inputs_of_state_ops() const {
    static constexpr std::array kKinds{InputKind::kPositions, InputKind::kSequence, InputKind::kBlockTable,
                                       InputKind::kKvLength};
    for (const NodeId node : nodes_) {
      const Op op = graph_.op(node);
      if (op != Op::kKvStore && op != Op::kAttention) continue;
      const std::size_t first = op == Op::kKvStore ? graph_.operands(node).size() - 3 : 2;
      for (std::size_t i = first; i < std::min(graph_.operands(node).size(), first + kKinds.size()); ++i) {
        const NodeId source = graph_.operand(node, i).node;
        const InputKind kind = kKinds[i - first];
        if (graph_.op(source) != Op::kInput || graph_.attrs_as<InputAttrs>(source).kind != kind)
          broken("IR-014", node, fmt::format("operand {} is not the input {}", i, enum_name(kind)));
      }
    }
  }

  void experts() const {
    for (const NodeId node : nodes_) {
      if (graph_.op(node) != Op::kExpertMatmul && graph_.op(node) != Op::kExpertAdd) continue;
      const Value chosen = graph_.operand(node, 2);
      want(graph_.op(chosen.node) == Op::kRoute && chosen.result == 0, "IR-015", node, "its experts are of no route");
      want(graph_.type(graph_.operand(chosen.node, 0)).cols() == graph_.type(graph_.operand(node, 1)).shape[0].value,
           "IR-015", node, "its weight has other experts than were to choose from");
    }
  }

  /// Sorts the graph with each group drawn together into one step; a rest means that some group cannot be one step.
  void groups() const {
    std::map<std::uint32_t, std::uint32_t> step_of_group;
    std::vector<std::uint32_t> step(graph_.id_bound());
    std::uint32_t steps = 0;
    for (const NodeId node : nodes_) {
      const auto group = graph_.group(node);
      step[node] = group == kNoGroup ? steps : step_of_group.try_emplace(group, steps).first->second;
      if (step[node] == steps) ++steps;
    }
    std::vector<std::vector<std::uint32_t>> next(steps), before(steps);
    std::vector<std::size_t> waiting(steps);
    for (const NodeId node : nodes_)
      for (const Value& value : graph_.operands(node))
        if (step[value.node] != step[node]) {
          next[step[value.node]].push_back(step[node]);
          before[step[node]].push_back(step[value.node]);
          ++waiting[step[node]];
        }
    std::vector<std::uint32_t> ready;
    for (std::uint32_t i = 0; i < steps; ++i)
      if (waiting[i] == 0) ready.push_back(i);
    while (!ready.empty()) {
      const auto current = ready.back();
      ready.pop_back();
      for (const auto user : next[current])
        if (--waiting[user] == 0) ready.push_back(user);
    }
    const auto stuck = std::ranges::find_if(waiting, [](std::size_t count) { return count > 0; });
    if (stuck == waiting.end()) return;
    // Whoever waits has a producer that waits: walking up ends in a ring, and a ring has a group in it.
    auto current = static_cast<std::uint32_t>(stuck - waiting.begin());
    const auto up = [&](std::uint32_t from) {
      return *std::ranges::find_if(before[from], [&](std::uint32_t b) { return waiting[b] > 0; });
    };
    for (std::uint32_t i = 0; i < steps; ++i) current = up(current);
    std::set<std::uint32_t> ring;
    while (ring.insert(current).second) current = up(current);
    for (const auto& [group, number] : step_of_group)
      invariant(!ring.contains(number), "IR-012",
                fmt::format("group {} needs, through nodes outside of it, its own results", group));
  }

  void sources() const {
    std::map<std::int64_t, NodeId> kv_groups, recurrent_groups;
    std::map<std::string_view, NodeId> weights;
    for (const NodeId node : nodes_) {
      if (graph_.op(node) == Op::kKvState)
        want(kv_groups.emplace(graph_.attrs_as<KvStateAttrs>(node).group, node).second, "IR-013", node,
             "its KV group has a state already");
      if (graph_.op(node) == Op::kRecurrentState)
        want(recurrent_groups.emplace(graph_.attrs_as<RecurrentStateAttrs>(node).group, node).second, "IR-013", node,
             "its group has a state already");
      if (graph_.op(node) == Op::kWeight) {
        const auto [first, fresh] = weights.emplace(graph_.attrs_as<WeightAttrs>(node).name, node);
        want(fresh || graph_.type({first->second, 0}) == graph_.type({node, 0}), "IR-013", node,
             "its tensor has another type elsewhere");
      }
    }
  }

  const Graph& graph_;
  std::vector<NodeId> nodes_, order_;
  std::multiset<Value> output_values_;
};

}  // namespace

void verify(const Graph& graph) {
  Verifier(graph).run();
}

}  // namespace forge::ir

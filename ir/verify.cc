// The verifier. It runs after every pass; an error cites the number of the broken invariant:
//   IR-000  every op has exactly one row in the op table
//   IR-001  the graph has no cycle
//   IR-002  attributes are the op's kind, and the number of operands is one that the op takes
//   IR-003  a removed node has no users and no operands
//   IR-004  operands and outputs are existing results of live nodes
//   IR-005  the stored edges agree with the operand lists
//   IR-006  result types are those of the op's shape rule
//   IR-007  outputs have names, and no two have the same
//   IR-008  concat_rows takes weights or results of concat_rows and slice_rows, slice_rows takes a weight: both run at
//           load time
//   IR-009  a state has at most one successor, which is a kv_store or an output; the state of a kv_store has exactly
//           one, so that no write is lost
//   IR-010  a kv_store, attention or select_keys matches the geometry of the KV group that its state belongs to
//   IR-011  a chain of stores stores each half of a layer once, neither alone, and attention to a stored layer, or
//           select_keys of it, reads a state after these stores
//   IR-012  each group can run as one step: no path leaves a group and returns to it, and no two groups depend on each
//           other
//   IR-013  each KV group has one kv_state, each recurrent group one recurrent_state, each weight name one type
//   IR-014  positions, sequence, block_table and kv_length of kv_store, attention and select_keys are those inputs of
//           the step, as are sequence, state_read and state_write of ops with recurrent state, and sequence of
//           self_attention
//   IR-015  the experts operand of expert_matmul, expert_add and expert_scale comes from a route over as many experts
//   as the
//           weight has, or over as many for each of them as the route says
//   IR-016  the operand `selected` of attention comes from a select_keys with lists of the same blocks
//
// A state chain (IR-009 to IR-011), one for each KV group; attention reads the chain at any point after its layer's
// store:
//   kv_state -> kv_store layer 0 -> kv_store layer 1 -> ... -> output "kv0"
//                     \-> attention      \-> attention
// A recurrent state has the same rules; each op that updates it is one link of its chain.

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
    check_edges();
    order_ = graph_.topological_order();  // IR-001
    check_types();
    check_outputs();
    check_load_time_ops();
    check_state_chains();
    check_recurrent_chains();
    check_state_op_inputs();
    check_experts();
    check_selections();
    check_groups();
    check_sources();
  }

 private:
  [[noreturn]] void fail(const char* number, NodeId node, const std::string& why) const {
    invariant(false, number, fmt::format("node {} ({}): {}", node, op_def(graph_.op(node)).name, why));
    __builtin_unreachable();
  }
  void require(bool holds, const char* number, NodeId node, const char* why) const {
    if (!holds) [[unlikely]]
      fail(number, node, why);
  }
  [[nodiscard]] bool exists(Value value) const {
    return graph_.alive(value.node) && value.result < graph_.results(value.node).size();
  }

  /// IR-003 to IR-005. Runs first, because all later checks follow operands. Edges of removed nodes are found by
  /// counting: each live operand has exactly one edge, and there must be no others.
  void check_edges() const {
    std::size_t count = 0;
    for (const NodeId node : nodes_) {
      const auto operands = graph_.operands(node);
      for (const Value& value : operands) require(exists(value), "IR-004", node, "an operand does not exist");
      const auto stored = GraphAccess::in_edges(graph_, node);
      require(stored.size() == operands.size(), "IR-005", node, "edges and operands differ in number");
      for (std::size_t i = 0; i < stored.size(); ++i)
        require(stored[i].first == i && stored[i].second == operands[i], "IR-005", node, "an edge is not its operand");
      count += operands.size();
    }
    invariant(count == GraphAccess::edge_count(graph_), "IR-003", "a removed node still has edges");
  }

  /// IR-002 and IR-006, in topological order, so that the first error is the one nearest to the sources.
  void check_types() const {
    for (const NodeId node : order_) {
      const OpDef& def = op_def(graph_.op(node));
      const auto operands = graph_.operands(node);
      require(graph_.attrs(node).index() == def.attrs_index, "IR-002", node, "attributes are of another op's kind");
      require(operands.size() >= def.operands_min && (def.operands_max == 255 || operands.size() <= def.operands_max),
              "IR-002", node, "wrong number of operands");
      std::vector<TensorType> expected;
      try {
        expected = infer_types(graph_.op(node), graph_.attrs(node), graph_.operand_types(node));
      } catch (const Error& error) {
        fail("IR-006", node, std::string("the shape rule refuses: ") + error.what());
      }
      if (!std::ranges::equal(expected, graph_.results(node)))
        fail("IR-006", node,
             fmt::format("results are {}, the shape rule gives {}", list(graph_.results(node)), list(expected)));
    }
  }

  static std::string list(std::span<const TensorType> types) {
    std::string out;
    for (const TensorType& type : types) out += (out.empty() ? "" : ", ") + type.text();
    return out;
  }

  /// IR-004 and IR-007. Also collects the output values for the state chains.
  void check_outputs() {
    std::set<std::string_view> names;
    for (const auto& [name, value] : graph_.outputs()) {
      invariant(exists(value), "IR-004", "an output does not exist");
      output_values_.insert(value);
      invariant(!name.empty() && names.insert(name).second, "IR-007",
                "output name " + quoted(name) + " is empty or used twice");
    }
  }

  /// IR-008: concat_rows and slice_rows run when weights are loaded, so nothing computed may reach them.
  void check_load_time_ops() const {
    for (const NodeId node : nodes_) {
      const bool slice = graph_.op(node) == Op::kSliceRows;
      if (!slice && graph_.op(node) != Op::kConcatRows) continue;
      for (const Value& value : graph_.operands(node)) {
        const Op producer = graph_.op(value.node);
        const bool made = producer == Op::kConcatRows || producer == Op::kSliceRows;
        require(producer == Op::kWeight || (!slice && made), "IR-008", node, "an operand is not a weight");
      }
    }
  }

  [[nodiscard]] bool is_store(NodeId node) const { return graph_.op(node) == Op::kKvStore; }

  /// Checks the state chain of each kv_state.
  void check_state_chains() const {
    for (const NodeId node : nodes_)
      if (graph_.op(node) == Op::kKvState) check_state_chain(node);
  }

  /// Walks from the kv_state through the stores and counts places: kv_state is 0, the first store 1, ... A reader at
  /// place p sees the stores at places up to p.
  void check_state_chain(NodeId root) const {
    const auto& geometry = graph_.attrs_as<KvStateAttrs>(root);
    std::map<std::pair<std::int64_t, KvHalf>, std::size_t>
        stored_at;  // layer and half -> place of its store in the chain
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
      require(ends <= 1, "IR-009", node, "its state has more than one successor");
      require(ends == 1 || node == root, "IR-009", node,
              "its write is lost: the state goes neither to another store nor to an output");
      if (next != kNoNode) {
        check_geometry(next, geometry);
        const auto& store = graph_.attrs_as<KvStoreAttrs>(next);
        for (const auto half : {KvHalf::kKeys, KvHalf::kValues})
          if (store.half == KvHalf::kBoth || store.half == half)
            require(stored_at.emplace(std::pair(store.layer, half), place + 1).second, "IR-011", next,
                    "its layer is stored twice");
      }
      node = next;
    }
    for (const auto& [reader, at] : readers) {
      const bool selects = graph_.op(reader) == Op::kSelectKeys;
      if (!selects && graph_.op(reader) != Op::kAttention) continue;
      check_geometry(reader, geometry);
      const auto layer =
          selects ? graph_.attrs_as<SelectKeysAttrs>(reader).layer : graph_.attrs_as<AttentionAttrs>(reader).layer;
      for (const auto half : {KvHalf::kKeys, KvHalf::kValues}) {
        const auto stored = stored_at.find({layer, half});
        require(stored == stored_at.end() || stored->second <= at, "IR-011", reader,
                "reads a state before its layer is stored");
      }
    }
    for (const auto& [stored, at] : stored_at) {
      const auto other = stored.second == KvHalf::kKeys ? KvHalf::kValues : KvHalf::kKeys;
      require(stored_at.contains({stored.first, other}), "IR-011", root, "only one half of a layer is stored");
    }
  }

  /// Checks the chain of each recurrent_state: every op that updates it takes the state of the one before, and the last
  /// state is an output.
  void check_recurrent_chains() const {
    for (const NodeId root : nodes_) {
      if (graph_.op(root) != Op::kRecurrentState) continue;
      const auto& group = graph_.attrs_as<RecurrentStateAttrs>(root);
      std::set<std::int64_t> updated;
      for (Value state{root, 0}; state.node != kNoNode;) {
        const auto uses = graph_.uses(state);
        const auto ends = uses.size() + output_values_.count(state);
        require(ends <= 1, "IR-009", state.node, "its state has more than one successor");
        require(ends == 1 || state.node == root, "IR-009", state.node,
                "its write is lost: the state goes neither to another layer nor to an output");
        if (uses.empty()) break;
        const NodeId next = uses[0].node;
        const auto use = recurrent_use_of(next);
        require(use.has_value(), "IR-009", next, "it takes a recurrent state and does not update it");
        require(use->floats == group.floats, "IR-010", next, "it keeps more or fewer floats than its group has");
        require(use->layer < group.layers, "IR-010", next, "its layer is not in the recurrent group");
        require(updated.insert(use->layer).second, "IR-011", next, "its layer is updated twice");
        state = {next, 1};
      }
    }
  }

  [[nodiscard]] std::optional<RecurrentUse> recurrent_use_of(NodeId node) const {
    return recurrent_use(graph_.op(node), graph_.attrs(node), graph_.operand_types(node));
  }

  /// IR-010: heads, dimensions, window and layer number of a kv_store, attention or select_keys against its KV group.
  void check_geometry(NodeId node, const KvStateAttrs& geometry) const {
    std::int64_t layer = 0;
    if (is_store(node)) {
      const auto& store = graph_.attrs_as<KvStoreAttrs>(node);
      layer = store.layer;
      const bool both = graph_.operands(node).size() == 6, keys = store.half != KvHalf::kValues, values = both || !keys;
      require(!keys || graph_.type(graph_.operand(node, 1)).cols() == geometry.kv_heads * geometry.head_dim, "IR-010",
              node, "rows are not kv_heads * head_dim wide");
      require(geometry.shared_row == 0 || store.half == KvHalf::kBoth, "IR-010", node,
              "it stores one half, but the KV group has shared rows");
      require(store.half != KvHalf::kBoth || values == (geometry.shared_row == 0), "IR-010", node,
              values ? "it stores values, but the KV group has shared rows" : "it stores no values");
      require(!values ||
                  graph_.type(graph_.operand(node, both ? 2 : 1)).cols() == geometry.kv_heads * value_dim_of(geometry),
              "IR-010", node, "rows are not kv_heads * value_dim wide");
    } else if (graph_.op(node) == Op::kSelectKeys) {
      const auto& select = graph_.attrs_as<SelectKeysAttrs>(node);
      layer = select.layer;
      require(geometry.kv_heads == 1 && geometry.head_dim == select.head_dim && geometry.shared_row == 1, "IR-010",
              node, "its keys are not the rows of the KV group");
      require(geometry.window == 0, "IR-010", node, "its keys are in a KV group with a window");
    } else {
      const auto& attention = graph_.attrs_as<AttentionAttrs>(node);
      layer = attention.layer;
      require(attention.kv_heads == geometry.kv_heads && attention.head_dim == geometry.head_dim &&
                  value_dim_of(attention) == value_dim_of(geometry),
              "IR-010", node, "its heads or dimensions differ from the KV group's");
      require(geometry.window == 0 || (attention.window > 0 && attention.window <= geometry.window), "IR-010", node,
              "it attends further back than the KV group keeps");
    }
    require(layer < geometry.layers, "IR-010", node, "its layer is not in the KV group");
  }

  /// IR-014: back-ends read these inputs from the step itself, not through operands, so they must be the right ones.
  void check_state_op_inputs() const {
    static constexpr std::array kKinds{InputKind::kPositions, InputKind::kSequence, InputKind::kBlockTable,
                                       InputKind::kKvLength};
    static constexpr std::array kSelfKinds{InputKind::kSequence};
    static constexpr std::array kRecurrentKinds{InputKind::kSequence, InputKind::kStateRead, InputKind::kStateWrite};
    for (const NodeId node : nodes_) {
      const Op op = graph_.op(node);
      const std::size_t count = graph_.operands(node).size();
      if (op == Op::kKvStore)
        require_inputs(node, count - 3, kKinds);
      else if (op == Op::kAttention || op == Op::kSelectKeys)
        require_inputs(node, 2, kKinds);
      else if (op == Op::kSelfAttention)
        require_inputs(node, 3, kSelfKinds);
      else if (recurrent_use_of(node))
        require_inputs(node, count - kRecurrentKinds.size(), kRecurrentKinds);
    }
  }

  /// Operands from `first` on must be the inputs `kinds`, as far as there are operands.
  void require_inputs(NodeId node, std::size_t first, std::span<const InputKind> kinds) const {
    for (std::size_t i = first; i < std::min(graph_.operands(node).size(), first + kinds.size()); ++i) {
      const NodeId source = graph_.operand(node, i).node;
      const InputKind kind = kinds[i - first];
      if (graph_.op(source) != Op::kInput || graph_.attrs_as<InputAttrs>(source).kind != kind)
        fail("IR-014", node, fmt::format("operand {} is not the input {}", i, enum_name(kind)));
    }
  }

  /// IR-015: an expert number must be below the number of experts in the weight.
  void check_experts() const {
    for (const NodeId node : nodes_) {
      const Op op = graph_.op(node);
      if (op != Op::kExpertMatmul && op != Op::kExpertAdd && op != Op::kExpertScale) continue;
      const Value chosen = graph_.operand(node, 2);
      require(graph_.op(chosen.node) == Op::kRoute && chosen.result == 0, "IR-015", node,
              "its experts do not come from a route");
      const auto ranked = graph_.type(graph_.operand(chosen.node, 0)).cols();
      const auto named = ranked / graph_.attrs_as<RouteAttrs>(chosen.node).experts_per_adjugate;
      require(named == graph_.type(graph_.operand(node, 1)).shape[0].value, "IR-015", node,
              "its weight has another number of experts than the route");
    }
  }

  /// IR-016: which positions an entry of a list stands for, and how many there are, must be the same for both.
  void check_selections() const {
    for (const NodeId node : nodes_) {
      if (graph_.op(node) != Op::kAttention) continue;
      const auto& attention = graph_.attrs_as<AttentionAttrs>(node);
      if (attention.selected == 0) continue;
      const NodeId source = graph_.operands(node).back().node;
      require(graph_.op(source) == Op::kSelectKeys, "IR-016", node, "its keys do not come from a select_keys");
      const auto& select = graph_.attrs_as<SelectKeysAttrs>(source);
      require(select.top_k == attention.selected && select.block == attention.selected_block, "IR-016", node,
              "it expects lists of other blocks than the select_keys gives");
    }
  }

  /// IR-012. Contracts each group into one step (ungrouped nodes are steps of their own) and sorts the steps
  /// topologically. If some steps are left over, they contain a cycle through a group; the error names that group.
  void check_groups() const {
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
    // Every stuck step has a stuck producer, so walking up `steps` times ends inside a cycle. The graph itself has no
    // cycle (IR-001), so this one contains a group.
    auto current = static_cast<std::uint32_t>(stuck - waiting.begin());
    const auto up = [&](std::uint32_t from) {
      return *std::ranges::find_if(before[from], [&](std::uint32_t b) { return waiting[b] > 0; });
    };
    for (std::uint32_t i = 0; i < steps; ++i) current = up(current);
    std::set<std::uint32_t> cycle;
    while (cycle.insert(current).second) current = up(current);
    for (const auto& [group, number] : step_of_group)
      invariant(!cycle.contains(number), "IR-012",
                fmt::format("group {} depends on its own results through nodes outside it", group));
  }

  /// IR-013. Several nodes may name the same weight, as for tied embeddings, but with the same type.
  void check_sources() const {
    std::map<std::int64_t, NodeId> kv_groups, recurrent_groups;
    std::map<std::string_view, NodeId> weights;
    for (const NodeId node : nodes_) {
      if (graph_.op(node) == Op::kKvState)
        require(kv_groups.emplace(graph_.attrs_as<KvStateAttrs>(node).group, node).second, "IR-013", node,
                "its KV group already has a state");
      if (graph_.op(node) == Op::kRecurrentState)
        require(recurrent_groups.emplace(graph_.attrs_as<RecurrentStateAttrs>(node).group, node).second, "IR-013", node,
                "its group already has a state");
      if (graph_.op(node) == Op::kWeight) {
        const auto [first, fresh] = weights.emplace(graph_.attrs_as<WeightAttrs>(node).name, node);
        require(fresh || graph_.type({first->second, 0}) == graph_.type({node, 0}), "IR-013", node,
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

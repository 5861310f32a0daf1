#include "codegen/tile_draft.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>
#include <set>
#include <utility>

#include "passes/passes.h"

namespace forge::codegen {
namespace {

using ir::Op;
using plan::TileOpKind;

constexpr std::int64_t kTileColumnsMax = 16 * 1024;  // columns that a tile of runtime/cpu has room for
constexpr std::int64_t kHeadColumnsMax = 512;        // most columns of a norm after a matmul

/// Thrown inside Drafter: why the members are not one tile program.
struct Refusal {
  std::string why;
};

bool is_source(Op op) {
  return passes::is_matmul(op) || op == Op::kEmbed || op == Op::kGatherRows;
}

/// Builds a draft: walks from the source along the uses within the group, adds each node as an operation to the current
/// section, and starts a section for each part of a split. Throws Refusal.
class Drafter {
 public:
  Drafter(const ir::Graph& graph, std::span<const ir::NodeId> members, const DraftRules& rules)
      : graph_(graph), members_(members.begin(), members.end()), rules_(rules) {}

  /// order: the members in topological order, so that the source, if there is one, comes first. Without a source, the
  /// rows of the first node's operand 0 are loaded.
  TileDraft run(std::span<const ir::NodeId> order) {
    const ir::NodeId first = order.front();
    for (const auto node : order)
      if (is_source(graph_.op(node)) && node != first && !is_identity(node))
        throw Refusal{"a source that is not the first node"};
    if (is_source(graph_.op(first)) || graph_.op(first) == Op::kExpertSum) {
      draft_.source = first;
      draft_.input = graph_.operand(first, graph_.op(first) == Op::kEmbed ? 1 : 0);
      visited_.insert(first);
      begin({first, 0}, /*stored=*/true);
    } else {
      draft_.input = graph_.operand(first, 0);
      if (graph_.op(first) == Op::kKvStore) {
        if (order.size() > 1) throw Refusal{"a KV store of loaded rows is a step of its own"};
        return kv_store_alone(first);
      }
      begin(draft_.input, /*stored=*/false);
    }
    for (const auto node : members_)
      if (!visited_.contains(node))
        throw Refusal{fmt::format("{} is not reached from the source", ir::op_def(graph_.op(node)).name)};
    cut_at_weight_parts();
    return std::move(draft_);
  }

 private:
  /// Starts at the source's output, `root`. stored: root must be stored if it is used outside the group (false for
  /// loaded rows, which are in memory already).
  void begin(ir::Value root, bool stored) {
    const auto& type = graph_.type(root);
    const std::size_t rank = type.shape.size();
    if (type.is_state() || rank < 2 || rank > 3) throw Refusal{"the source is not a matrix of rows and columns"};
    if (type.dtype != DType::kF32) throw Refusal{"the source is not f32"};
    draft_.rows = type.shape[0];
    draft_.slots = rank == 3 ? type.shape[1].value : 1;
    draft_.cols = type.cols();
    walk(root, {.begin = 0, .end = draft_.cols}, 0, stored);
  }

  /// A KV store that nothing is fused with: a section for each half, which loads k or v.
  TileDraft kv_store_alone(ir::NodeId node) {
    const auto& kv = kv_state_of(graph_, graph_.operand(node, 0));
    const auto part = [&](std::size_t operand, TileOpKind kind, std::int64_t unit) {
      const auto rows = graph_.operand(node, operand);
      const auto begin = draft_.cols;
      draft_.cols += graph_.type(rows).cols();
      draft_.sections.push_back(
          {begin, draft_.cols, unit, {{TileOpKind::kLoad, node, rows, begin}, {kind, node, {}, begin}}});
    };
    draft_.rows = graph_.type(graph_.operand(node, 1)).shape[0];
    const auto half = graph_.attrs_as<ir::KvStoreAttrs>(node).half;
    if (half != ir::KvHalf::kValues) part(1, TileOpKind::kStoreK, kv.head_dim);
    if (half != ir::KvHalf::kKeys && kv.shared_row == 0)
      part(half == ir::KvHalf::kValues ? 1 : 2, TileOpKind::kStoreV, value_dim_of(kv));
    return std::move(draft_);
  }

  static bool commutes(const ir::FunctionCall& call) {
    return elementwise::function_def(call.function).form == elementwise::Form::kCommutative;
  }

  bool inside(ir::NodeId node) const { return members_.contains(node); }

  bool is_identity(ir::NodeId node) const { return rules_.one_row && graph_.op(node) == Op::kGatherRows; }

  /// Tiles of the section must be multiples of `unit` columns wide.
  void need_unit(DraftSection& section, std::int64_t unit) { section.unit = std::lcm(section.unit, unit); }

  /// Follows the uses of `value`, the current tile of `section`; its column 0 is column `origin` of the source. Sinks
  /// are recorded first. Only one use may be a transform (or a split), since there is only one tile, unless the rules
  /// allow branches.
  void walk(ir::Value value, DraftSection section, std::int64_t origin, bool stored) {
    std::vector<ir::Use> transforms;
    ir::NodeId split = ir::kNoNode;
    const auto uses = graph_.uses(value);
    // A value that nothing reads has a buffer too (passes/schedule/liveness.h), so it is stored.
    bool leaves = graph_.is_output(value) || uses.empty();
    for (const auto& use : uses) {
      if (!inside(use.node)) {
        leaves = true;
      } else if (!sink(value, use, section, origin)) {
        if (graph_.op(use.node) == Op::kSplit)
          split = use.node;
        else
          transforms.push_back(use);
      }
    }
    if (leaves && stored) section.ops.push_back({TileOpKind::kStore, value.node, value, origin});
    const bool several = transforms.size() + (split != ir::kNoNode ? 1 : 0) > 1;
    if (several && (!rules_.branches || split != ir::kNoNode)) throw Refusal{"a value has two transforms"};
    if (several) return walk_branches(value, transforms, std::move(section), origin);
    if (split != ir::kNoNode) return walk_split(split, std::move(section), origin);
    if (transforms.empty()) {
      draft_.sections.push_back(std::move(section));
      return;
    }
    const auto use = transforms.front();
    visited_.insert(use.node);
    transform(value, use, section, origin);
    walk({use.node, 0}, std::move(section), origin, true);
  }

  /// Each transform of `value` starts a chain of operations. All chains are in one section, one after another.
  void walk_branches(ir::Value value, std::span<const ir::Use> transforms, DraftSection section, std::int64_t origin) {
    const int number = kept_++;
    for (const auto& use : transforms) {
      const auto at = section.ops.size();
      if (!visited_.insert(use.node).second) throw Refusal{"an operation reads a value twice"};
      transform(value, use, section, origin);
      (&use == transforms.data() ? section.ops[at].keeps : section.ops[at].from) = number;
      const auto sections = draft_.sections.size();
      walk({use.node, 0}, std::move(section), origin, true);
      if (draft_.sections.size() != sections + 1) throw Refusal{"a branch is split into parts"};
      section = std::move(draft_.sections.back());
      draft_.sections.pop_back();
    }
    draft_.sections.push_back(std::move(section));
  }

  /// Adds the use as a sink; false if it is not a sink.
  bool sink(ir::Value value, const ir::Use& use, DraftSection& section, std::int64_t origin) {
    const auto cols = graph_.type(value).cols();
    switch (graph_.op(use.node)) {
      case Op::kSumSquares:
        need_unit(section, kActivationUnit);
        section.ops.push_back({TileOpKind::kSumSquares, use.node, {use.node, 0}, origin});
        break;
      case Op::kQuantize:
        if (cols % kActivationUnit != 0) throw Refusal{"the columns are not a multiple of 32"};
        need_unit(section, kActivationUnit);
        section.ops.push_back({TileOpKind::kQuantize, use.node, {use.node, 0}, origin});
        break;
      case Op::kKvStore: {
        const auto& kv = kv_state_of(graph_, graph_.operand(use.node, 0));
        const auto half = graph_.attrs_as<ir::KvStoreAttrs>(use.node).half;
        const bool keys = half != ir::KvHalf::kValues && use.operand == 1;
        need_unit(section, keys ? kv.head_dim : value_dim_of(kv));
        section.ops.push_back({keys ? TileOpKind::kStoreK : TileOpKind::kStoreV, use.node, {}, origin});
        // A store with keys and values counts as visited once both have been reached.
        if (half != ir::KvHalf::kBoth || kv.shared_row == 1 || !kv_half_.insert(use.node).second)
          visited_.insert(use.node);
        return true;
      }
      default:
        return false;
    }
    for (const auto& next : graph_.uses({use.node, 0}))
      if (inside(next.node)) throw Refusal{"a sink's result is read in the same group"};
    visited_.insert(use.node);
    return true;
  }

  /// Each part of a split by columns becomes a section that starts with the operations so far.
  void walk_split(ir::NodeId split, DraftSection section, std::int64_t origin) {
    visited_.insert(split);
    const auto& parts = graph_.attrs_as<ir::PartsAttrs>(split);
    if (parts.unit > 0) return walk_glu(split, parts, std::move(section), origin);
    std::int64_t begin = origin;
    for (std::uint32_t i = 0; i < parts.sizes.size(); ++i) {
      const std::int64_t end = begin + parts.sizes[i];
      DraftSection part{.begin = begin, .end = end, .unit = section.unit, .ops = section.ops};
      walk({split, i}, std::move(part), begin, true);
      begin = end;
    }
  }

  /// An interleaved split is fused only together with the GLU that consumes both parts.
  void walk_glu(ir::NodeId split, const ir::PartsAttrs& parts, DraftSection section, std::int64_t origin) {
    const auto gate = graph_.uses({split, 0});
    if (parts.sizes.size() != 2 || gate.size() != 1 || graph_.op(gate[0].node) != Op::kGlu || !inside(gate[0].node))
      throw Refusal{"an interleaved split without its GLU"};
    const auto glu = gate[0].node;
    if (graph_.operand(glu, 0) != ir::Value{split, 0} || graph_.operand(glu, 1) != ir::Value{split, 1} ||
        graph_.uses({split, 1}).size() != 1 || graph_.is_output({split, 0}) || graph_.is_output({split, 1}))
      throw Refusal{"the parts of an interleaved split have other users than their GLU"};
    if (origin != 0 || section.end - section.begin != draft_.cols) throw Refusal{"a GLU of only a part of the columns"};
    need_unit(section, 2 * parts.unit);
    visited_.insert(glu);
    section.ops.push_back({TileOpKind::kPairs, glu, {split, 0}, 0});
    halved_ = true;
    walk({glu, 0}, std::move(section), 0, true);
  }

  /// A norm over runs of `dim` columns: tiles must hold whole runs. After a matmul only runs up to kHeadColumnsMax are
  /// fused (norms of heads): longer ones would leave too few tiles for the threads, and rows in memory can be
  /// normalised by a step of their own just as well.
  void norm(ir::Value value, ir::NodeId node, DraftSection& section, std::int64_t origin) {
    const auto dim = graph_.attrs_as<ir::NormAttrs>(node).dim;
    if (dim > (draft_.source == ir::kNoNode || rules_.row_norms ? kTileColumnsMax : kHeadColumnsMax))
      throw Refusal{fmt::format("a norm over {} columns does not fit a tile", dim)};
    if (graph_.type(value).cols() % dim != 0) throw Refusal{"the columns are not a multiple of the norm's"};
    need_unit(section, dim);
    const bool rms = graph_.op(node) == Op::kRmsNorm;
    section.ops.push_back({rms ? TileOpKind::kRmsNorm : TileOpKind::kLayerNorm, node, graph_.operand(node, 1), origin});
  }

  /// Adds the use as a transform of the tile. The tile must be the first operand, any operand of a commutative
  /// function, or the second of a gated product.
  void transform(ir::Value value, const ir::Use& use, DraftSection& section, std::int64_t origin) {
    const auto node = use.node;
    const auto other = [&](std::uint32_t i) {
      const auto operand = graph_.operand(node, i);
      if (inside(operand.node)) throw Refusal{"an operand is computed in the same group"};
      return operand;
    };
    const auto op = graph_.op(node);
    if (is_identity(node)) return;
    const auto call = ir::function_call(op, graph_.attrs(node));
    const bool gated =
        call && use.operand == 1 && elementwise::function_def(call->function).form == elementwise::Form::kGate;
    if (!(call && commutes(*call)) && !gated && use.operand != 0) throw Refusal{"the tile is not the first operand"};
    if (call) {
      if (graph_.type(value).shape.size() < 2) throw Refusal{"a vector is broadcast over the tile"};
      const bool unary = graph_.operands(node).size() == 1;
      section.ops.push_back({unary ? TileOpKind::kUnary : TileOpKind::kBinary, node,
                             unary ? ir::Value() : other(1 - use.operand), origin, gated});
      return;
    }
    switch (op) {
      case Op::kExpertAdd:
        section.ops.push_back({TileOpKind::kAddExpertVector, node, other(1), origin});
        return;
      case Op::kExpertScale:
        section.ops.push_back({TileOpKind::kScaleExpert, node, other(1), origin});
        return;
      case Op::kExpertSum:
        if (draft_.source == ir::kNoNode || graph_.op(draft_.source) != Op::kExpertMatmul)
          throw Refusal{"experts are summed only after their matmul"};
        if (origin != 0 || graph_.type(value).cols() != draft_.cols)
          throw Refusal{"experts are summed over only a part of the columns"};
        if (graph_.op(other(1).node) == Op::kSplit) throw Refusal{"the routing weights are columns of another value"};
        section.ops.push_back({TileOpKind::kSumExperts, node, other(1), origin});
        return;
      case Op::kInvRmsScale:
        section.ops.push_back({TileOpKind::kInvRms, node, other(1), origin});
        return;
      case Op::kRmsNorm:
      case Op::kLayerNorm:
        return norm(value, node, section, origin);
      case Op::kRope: {
        const auto head = graph_.attrs_as<ir::RopeAttrs>(node).head_dim;
        if (graph_.type(value).cols() % head != 0) throw Refusal{"the columns are not whole heads"};
        need_unit(section, head);
        section.ops.push_back({TileOpKind::kRope, node, other(1), origin});
        return;
      }
      case Op::kHadamard:
        need_unit(section, ir::kHadamardColumns);
        section.ops.push_back({TileOpKind::kHadamard, node, {}, origin});
        return;
      default:
        throw Refusal{fmt::format("{} is not a tile operation", ir::op_def(op).name)};
    }
  }

  /// Rows of each part of the source's weight; in a batched weight each batch is a part.
  std::vector<std::int64_t> source_part_rows() const {
    const auto weight = graph_.operand(draft_.source, 1);
    if (graph_.op(draft_.source) != Op::kBatchedMatmul) return weight_part_rows(graph_, weight);
    const auto& shape = graph_.type(weight).shape;
    return std::vector<std::int64_t>(static_cast<std::size_t>(shape[0].value), shape[1].value);
  }

  /// Cuts sections at the parts of a concatenated weight, because each part starts at its own group of 16 packed rows
  /// and tiles must not cross that.
  void cut_at_weight_parts() {
    if (draft_.source == ir::kNoNode || !passes::is_matmul(graph_, draft_.source)) return;
    const auto parts = source_part_rows();
    if (halved_ && parts.size() > 1) throw Refusal{"a GLU needs an interleaved weight"};
    std::vector<DraftSection> cut;
    for (const auto& section : draft_.sections) {
      std::int64_t part_begin = 0;
      for (const auto rows : parts) {
        const auto begin = std::max(section.begin, part_begin), end = std::min(section.end, part_begin + rows);
        if (begin < end) {
          if ((begin - part_begin) % 16 != 0) throw Refusal{"a section begins inside a group of packed rows"};
          cut.push_back({begin, end, section.unit, section.ops});
        }
        part_begin += rows;
      }
    }
    for (const auto& section : cut)
      for (const auto& op : section.ops)
        if ((op.kind == TileOpKind::kQuantize || op.kind == TileOpKind::kSumSquares) &&
            (section.begin - op.origin) % kActivationUnit != 0)
          throw Refusal{"a section begins inside a quantised block"};
    draft_.sections = std::move(cut);
  }

  const ir::Graph& graph_;
  std::set<ir::NodeId> members_, visited_, kv_half_;  ///< kv_half_: KV stores of which only one half has been reached
  DraftRules rules_;
  int kept_ = 0;         ///< values that branches start from
  bool halved_ = false;  ///< the draft has a GLU, which makes one column of two
  TileDraft draft_;
};

/// The operation's name in labels: that of the node, with these exceptions; "" to omit it.
std::string_view label_of(const ir::Graph& graph, const DraftOp& op) {
  constexpr std::pair<TileOpKind, std::string_view> kOthers[] = {{TileOpKind::kLoad, ""},
                                                                 {TileOpKind::kStore, ""},
                                                                 {TileOpKind::kInvRms, "inv_rms"},
                                                                 {TileOpKind::kAddExpertVector, "bias"},
                                                                 {TileOpKind::kSumExperts, "sum_experts"},
                                                                 {TileOpKind::kStoreK, "store_k"},
                                                                 {TileOpKind::kStoreV, "store_v"}};
  for (const auto& [kind, name] : kOthers)
    if (op.kind == kind) return name;
  const auto node = graph.op(op.node);
  return node == Op::kAdd && graph.type(op.operand).shape.size() == 1 ? "bias" : ir::op_def(node).name;
}

}  // namespace

// An RMSNorm or LayerNorm over rows in memory is a step of its own too; within a larger group it is a tile operation.
bool stands_alone(const ir::Graph& graph, ir::NodeId node) {
  switch (graph.op(node)) {
    case Op::kRoute:
    case Op::kArrange:
    case Op::kRmsNorm:
    case Op::kLayerNorm:
    case Op::kMatchRms:
    case Op::kGaussianTopk:
    case Op::kRopeFreqs:
    case Op::kRopeTable:
    case Op::kSelfAttention:
    case Op::kSelectKeys:
    case Op::kShortConv:
    case Op::kDeltaRule:
    case Op::kSelectiveScan:
    case Op::kRwkv7:
      return true;
    case Op::kSplit:
      return graph.attrs_as<ir::PartsAttrs>(node).unit > 0;
    default:
      return false;
  }
}

bool stores_attention(const ir::Graph& graph, std::span<const ir::NodeId> nodes) {
  const ir::Value result{nodes[0], 0};
  return nodes.size() == 1 || graph.is_output(result) ||
         std::ranges::any_of(graph.uses(result), [&](const auto& use) { return use.node != nodes[1]; });
}

bool is_one_number(const ir::TensorType& type) {
  return type.shape.size() == 1 && type.cols() == 1;
}

const ir::KvStateAttrs& kv_state_of(const ir::Graph& graph, ir::Value state) {
  while (graph.op(state.node) == Op::kKvStore) state = graph.operand(state.node, 0);
  return graph.attrs_as<ir::KvStateAttrs>(state.node);
}

const ir::RecurrentStateAttrs& recurrent_state_of(const ir::Graph& graph, ir::NodeId node) {
  while (graph.op(node) != Op::kRecurrentState)
    node = graph.operand(node, graph.operands(node).size() - ir::kStateOperands).node;
  return graph.attrs_as<ir::RecurrentStateAttrs>(node);
}

std::int64_t state_rows_of(const ir::Graph& graph, ir::NodeId node) {
  switch (graph.op(node)) {
    case Op::kDeltaRule:
      return graph.attrs_as<ir::DeltaRuleAttrs>(node).key_dim;
    case Op::kSelectiveScan:
      return graph.attrs_as<ir::SelectiveScanAttrs>(node).state_dim;
    case Op::kRwkv7:
      return graph.attrs_as<ir::Rwkv7Attrs>(node).head_dim;
    default:
      return 0;
  }
}

std::optional<std::string> refuses_conv(const ir::Graph& graph, std::span<const ir::NodeId> members,
                                        std::size_t parameters_max) {
  if (members.size() == 1) return std::nullopt;
  const auto call = ir::function_call(graph.op(members[1]), graph.attrs(members[1]));
  const bool unary = graph.operands(members[1]).size() == 1 && call;
  if (members.size() > 2 || graph.op(members[0]) != Op::kShortConv || !unary)
    return "a convolution can only be fused with an activation";
  if (const auto& def = elementwise::function_def(call->function); def.parameter_count > parameters_max)
    return fmt::format("{} has more than {} parameters", def.name, parameters_max);
  if (graph.is_output({members[0], 0}) || graph.uses({members[0], 0}).size() != 1)
    return "the convolution's result is also used without the activation";
  return std::nullopt;
}

std::vector<std::int64_t> weight_part_rows(const ir::Graph& graph, ir::Value weight) {
  if (graph.op(weight.node) == Op::kConcatRows) {
    const auto& parts = graph.attrs_as<ir::PartsAttrs>(weight.node);
    if (parts.unit == 0) return parts.sizes;
  }
  const auto& shape = graph.type(weight).shape;
  return {shape[shape.size() == 3 ? 1 : 0].value};
}

std::string TileDraft::label(const ir::Graph& graph) const {
  std::string text;
  if (source != ir::kNoNode) {
    text = ir::op_def(graph.op(source)).name;
    if (passes::is_matmul(graph, source)) {
      const auto& weight = graph.type(graph.operand(source, 1));
      text += fmt::format(" {} ", dtype_name(weight.dtype));
      for (std::size_t i = 0; i < weight.shape.size(); ++i)
        text += fmt::format("{}{}", i == 0 ? "" : "x", weight.shape[i].value);
    }
  } else {
    text = "rows";
  }
  std::set<std::string_view> seen;
  for (const auto& section : sections)
    for (const auto& op : section.ops) {
      const auto name = label_of(graph, op);
      if (!name.empty() && seen.insert(name).second) text += fmt::format(" + {}", name);
    }
  return text;
}

std::expected<TileDraft, std::string> draft_tile_program(const ir::Graph& graph, std::span<const ir::NodeId> members,
                                                         const DraftRules& rules) {
  try {
    return Drafter(graph, members, rules).run(members);
  } catch (const Refusal& refusal) {
    return std::unexpected(refusal.why);
  }
}

}  // namespace forge::codegen

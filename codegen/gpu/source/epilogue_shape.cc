#include <fmt/format.h>

#include <algorithm>
#include <numeric>
#include <utility>

#include "codegen/gpu/source/draft_chains.h"
#include "codegen/gpu/source/epilogue_source.h"
#include "codegen/gpu/tile_sizes.h"
#include "passes/passes.h"

// What an epilogue asks of a block: epilogue_shape.

namespace forge::codegen {
namespace {

using plan::TileOpKind;

constexpr std::int64_t kOwnNormMax = 8192;  // floats of a block's tile: 32 KiB of shared memory

/// Why blocks cannot normalise their own columns by norm number `at` of a chain; empty if they can. The run that is
/// normalised is a block, so all norms of a draft have runs of the same length. Operations in front of a norm are
/// computed in place (before() in tile.h), where no lane has the columns of a quantised block or of RoPE's pair.
std::string own_norm_problem(const ir::Graph& graph, const TileDraft& draft, Chain ops, std::size_t at,
                             EpilogueShape& shape, float& eps) {
  const auto& norm = graph.attrs_as<ir::NormAttrs>(ops[at].node);
  const bool several = chains_of(draft.sections[0]).size() > 1 || draft.sections.size() > 1;
  if (ops[at].kind != TileOpKind::kRmsNorm || (draft.source != ir::kNoNode && passes::is_matmul(graph, draft.source)))
    return "a norm needs columns of other blocks";
  const bool staged = is_staged(ops, at);
  if (staged && (several || has_combine(ops))) return "a norm of a value that is computed in the same step";
  for (std::size_t i = 0; i <= at && staged; ++i) {
    if (ops[i].keeps >= 0 || ops[i].from >= 0) return "a norm is one of several operations on a value";
    if (i < at && ops[i].kind != TileOpKind::kRmsNorm &&
        (!is_lane_local(ops[i].kind) || ops[i].kind == TileOpKind::kStore))
      return "a value is stored or combined before a norm in the same step";
  }
  if (norm.dim % kResultColumns != 0 || norm.dim > kOwnNormMax)
    return fmt::format("a norm over {} columns is not of a whole block", norm.dim);
  if (shape.norm_columns != 0 && (shape.norm_columns != norm.dim || eps != norm.eps))
    return "norms of different lengths";
  shape.norm_columns = norm.dim;
  eps = norm.eps;
  return {};
}

/// Why a chain of operations cannot run on a block's columns; empty if it can. Adds its demands to `shape`.
std::string chain_problem(const ir::Graph& graph, const TileDraft& draft, const KvFormat& kv, Chain ops,
                          EpilogueShape& shape, float& eps) {
  int combines = 0;
  for (std::size_t i = 0; i < ops.size(); ++i) {
    const auto& op = ops[i];
    if (i > 0 && (op.keeps >= 0 || op.from >= 0) && has_combine(ops))
      return "several operations on a value that is combined (RoPE or GLU)";
    if (op.kind == TileOpKind::kRmsNorm || op.kind == TileOpKind::kLayerNorm)
      if (auto why = own_norm_problem(graph, draft, ops, i, shape, eps); !why.empty()) return why;
    if (is_combine(op.kind) && ++combines > 1) return "columns are combined twice (RoPE or GLU)";
    if (op.kind == TileOpKind::kHadamard) {
      if (op.origin % ir::kHadamardColumns != 0) return "a run of Hadamard's columns begins inside a block's";
      shape.multiple_of = std::lcm(shape.multiple_of, ir::kHadamardColumns);
    }
    if ((op.kind >= TileOpKind::kStore || op.kind == TileOpKind::kHadamard) && combines == 0 && has_combine(ops))
      return "a value is stored or transformed before its columns are combined (RoPE or GLU)";
    if ((op.kind == TileOpKind::kQuantize || op.kind == TileOpKind::kSumSquares) && op.origin % kResultColumns != 0)
      return "a quantised block begins inside a block's columns";
    if (op.kind == TileOpKind::kStoreK || op.kind == TileOpKind::kStoreV) {
      if (op.origin % kv.columns != 0) return "a quantised block of keys or values begins inside a block's columns";
      shape.multiple_of = std::lcm(shape.multiple_of, kv.columns);
    }
    if (op.kind == TileOpKind::kPairs) {
      if (graph.attrs_as<ir::PartsAttrs>(op.operand.node).unit != kGluUnit)
        return "gate and up are not interleaved every 16 columns";
      shape.columns_in = 2 * kGluUnit;
    }
    if (op.kind == TileOpKind::kRope && graph.attrs_as<ir::RopeAttrs>(op.node).mode == ir::RopeMode::kHalves)
      shape.multiple_of = std::lcm(shape.multiple_of, graph.attrs_as<ir::RopeAttrs>(op.node).head_dim);
  }
  return {};
}

}  // namespace

// A block has whole heads if RoPE pairs columns half a head apart, and whole groups of 32 columns with a GLU, or where
// keys and values are quantised. Section borders must be multiples of that, and a block must not cross one, so its
// columns divide all borders.
std::expected<EpilogueShape, std::string> epilogue_shape(const ir::Graph& graph, const TileDraft& draft,
                                                         const KvFormat& kv) {
  EpilogueShape shape;
  const ir::Value* squares = nullptr;
  float eps = 0;
  for (std::size_t i = 0; i < draft.sections.size(); ++i) {
    const auto& section = draft.sections[i];
    if (i > 0 && section.ops != draft.sections[i - 1].ops && !is_free_border(draft, i - 1))
      shape.divides = std::gcd(shape.divides, section.begin);
    const auto chains = chains_of(section);
    const auto pairs = [](const auto& op) { return op.kind == TileOpKind::kPairs; };
    if (chains.size() > 1 && std::ranges::any_of(section.ops, pairs))
      return std::unexpected("several operations on the gate and up columns of a GLU");
    for (const auto chain : chains)
      if (auto why = chain_problem(graph, draft, kv, chain, shape, eps); !why.empty())
        return std::unexpected(std::move(why));
    for (const auto& op : section.ops) {
      if (op.kind != TileOpKind::kInvRms) continue;
      if (squares != nullptr && *squares != op.operand) return std::unexpected("two different norms are applied");
      squares = &op.operand;
    }
  }
  shape.multiple_of = std::lcm(shape.multiple_of, shape.columns_in);
  if (shape.norm_columns > 0 && squares != nullptr) return std::unexpected("two different norms are applied");
  if (shape.norm_columns > 0) shape.multiple_of = std::lcm(shape.multiple_of, shape.norm_columns);
  if (shape.norm_columns > 0 && shape.multiple_of != shape.norm_columns)
    return std::unexpected("a norm's columns are not those of a block");
  if (shape.divides % shape.multiple_of != 0)
    return std::unexpected(fmt::format("a part does not begin at a multiple of {} columns", shape.multiple_of));
  return shape;
}

std::vector<ir::Value> squares_of(const TileDraft& draft) {
  std::vector<ir::Value> out;
  for (const auto& section : draft.sections)
    for (const auto& op : section.ops)
      if (op.kind == TileOpKind::kSumSquares && std::ranges::find(out, op.operand) == out.end())
        out.push_back(op.operand);
  return out;
}

}  // namespace forge::codegen

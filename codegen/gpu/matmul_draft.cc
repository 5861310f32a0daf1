#include "codegen/gpu/matmul_draft.h"

#include <algorithm>
#include <numeric>

#include "codegen/gpu/gpu_chooser.h"
#include "codegen/gpu/tile_sizes.h"
#include "passes/passes.h"
#include "passes/schedule/schedule.h"

namespace forge::codegen {

using ir::NodeId;
using ir::Op;
using ir::Value;

std::optional<MatmulDraft> matmul_of(const ir::Graph& graph, std::span<const NodeId> nodes, const KvFormat& kv) {
  if (!std::ranges::any_of(nodes, [&](NodeId node) { return passes::is_matmul(graph, node); })) return std::nullopt;
  const auto step = draft_step(graph, nodes, kv);
  if (!step) return std::nullopt;
  if (step->routed) return MatmulDraft{step->routed->matmul, step->routed->shape};
  if (step->halves) return MatmulDraft{step->halves->matmul, step->halves->matmul_shape};
  if (step->draft.source == ir::kNoNode || !passes::is_matmul(graph, step->draft.source)) return std::nullopt;
  return MatmulDraft{step->draft, step->shape};
}

MatmulWeight weight_of(const ir::Graph& graph, NodeId matmul) {
  const auto value = graph.operand(matmul, 1);
  const auto& type = graph.type(value);
  MatmulWeight out{.value = value, .dtype = type.dtype, .k = type.cols()};
  if (graph.op(matmul) == Op::kExpertMatmul) out.experts = type.shape[0].value;
  if (graph.op(matmul) == Op::kBatchedMatmul) out.heads = type.shape[0].value;
  out.columns = type.shape[type.shape.size() - 2].value;
  return out;
}

std::optional<TilesConfig> tiles_of(const GpuTarget& target, const Tuning& tuning, const ir::Graph& graph,
                                    const MatmulDraft& matmul, const ir::Bounds& bounds) {
  const auto& draft = matmul.draft;
  const auto weight = weight_of(graph, draft.source);
  const auto columns = weight.heads * weight.columns;
  const auto rows = draft.rows.symbol == ir::Symbol::kRows ? bounds.rows : bounds.tokens;
  auto shape = matmul.shape;  // a tile's columns must lie in one head
  if (weight.heads > 1) shape.divides = std::gcd(shape.divides, weight.columns);
  const auto own = tuning_for(tuning, columns, weight.k, rows * draft.slots);
  if (draft.rows.symbol != ir::Symbol::kTokens && bounds.rows < bounds.tokens)
    return choose_few_rows(target, weight.dtype, columns, weight.k, bounds.rows, shape, own);
  return choose_tiles(target, weight.dtype, columns, weight.k, bounds.tokens, draft.slots, weight.experts, shape, own);
}

// BF16 weights are multiplied as they are; all others in F16, which needs fewer instructions, except on gfx90a, whose
// MFMA takes F16's smallest numbers for zero.
DType tile_rows_type(const GpuTarget& target, DType weight, DType activation) {
  if (is_float(weight)) return weight;
  return target.matrix == MatrixKind::kMfmaGfx90a && activation_terms(activation) == 1 ? DType::kBF16 : DType::kF16A;
}

std::string_view tile_name(DType rows) {
  return rows == DType::kBF16 ? "NativeBf16Tile" : "NativeTile";
}

namespace {

/// True if the kernel of the step can store `value`, rows of f32 or quantised ones, in another type.
bool stores_rows(const ir::Graph& graph, std::span<const NodeId> nodes, Value value) {
  if (graph.op(value.node) == Op::kSplit) return false;
  if (graph.op(nodes.front()) == Op::kAttention) return true;
  if (nodes.size() == 1 && stands_alone(graph, nodes.front())) return false;
  if (graph.type(value).dtype != DType::kF32) return true;
  return graph.type(value).shape.size() == 2;
}

}  // namespace

passes::StoredForms stored_rows(const GpuTarget& target, const Tuning& tuning, const ir::Graph& graph,
                                std::span<const std::vector<NodeId>> steps, const ir::Bounds& bounds,
                                const KvFormat& kv) {
  passes::StoredForms out;
  if (bounds.tokens < kTiledTokensLeast || !may_use_matrix_instructions(target, tuning)) return out;
  const auto step_of = passes::step_of_node(graph, steps);
  // What each step with tiles reads as x.
  std::vector<std::optional<Value>> x_of(steps.size());
  for (std::size_t i = 0; i < steps.size(); ++i) {
    const auto matmul = matmul_of(graph, steps[i], kv);
    if (matmul && tiles_of(target, tuning, graph, *matmul, bounds)) x_of[i] = matmul->draft.input;
  }
  for (std::size_t i = 0; i < steps.size(); ++i) {
    if (!x_of[i] || step_of[x_of[i]->node] < 0) continue;
    const Value x = *x_of[i];
    const auto own = step_of[x.node];
    std::optional<DType> wanted;
    bool all = !graph.is_output(x) && stores_rows(graph, steps[static_cast<std::size_t>(own)], x);
    for (const auto& use : graph.uses(x)) {
      const auto user = step_of[use.node];
      if (user < 0 || user == own) continue;
      if (!passes::is_matmul(graph, use.node) || x_of[static_cast<std::size_t>(user)] != x) {
        all = false;
        break;
      }
      const auto type = tile_rows_type(target, weight_of(graph, use.node).dtype, graph.type(x).dtype);
      if (wanted && *wanted != type) all = false;
      wanted = type;
    }
    if (all && wanted) out.emplace(x, passes::StoredForm{.dtype = *wanted});
  }
  // Sums of squares that only epilogues of tiles read.
  for (std::size_t i = 0; i < steps.size(); ++i)
    for (const auto node : steps[i]) {
      if (graph.op(node) != ir::Op::kSumSquares) continue;
      const Value squares{node, 0};
      const auto uses = graph.uses(squares);
      const bool all = !graph.is_output(squares) && !uses.empty() && std::ranges::all_of(uses, [&](const auto& use) {
        const auto user = step_of[use.node];
        return user >= 0 && x_of[static_cast<std::size_t>(user)] && graph.op(use.node) == ir::Op::kInvRmsScale;
      });
      if (all) out.emplace(squares, passes::StoredForm{.dtype = DType::kF32, .total = true});
    }
  return out;
}

}  // namespace forge::codegen

#include "codegen/gpu/row_norm.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "passes/passes.h"

namespace forge::codegen {

using plan::TileOpKind;

std::expected<std::optional<RowNormDraft>, std::string> split_at_row_norm(const ir::Graph& graph,
                                                                          const TileDraft& draft, const KvFormat& kv) {
  if (draft.source == ir::kNoNode || !passes::is_matmul(graph, draft.source) || draft.sections.size() != 1)
    return std::nullopt;
  const auto& ops = draft.sections[0].ops;
  const auto first = std::ranges::find_if(
      ops, [](const auto& op) { return op.kind == TileOpKind::kRmsNorm || op.kind == TileOpKind::kSumExperts; });
  if (first == ops.end()) return std::nullopt;
  const bool sum = first->kind == TileOpKind::kSumExperts;
  if (!sum && (draft.slots > 1 || graph.attrs_as<ir::NormAttrs>(first->node).dim != draft.cols)) return std::nullopt;
  if (std::any_of(ops.begin(), first + 1, [](const auto& op) { return op.keeps >= 0; }))
    return std::unexpected("several operations on a matmul's rows before a norm of them");
  RowNormDraft out;
  out.matmul = out.rows = draft;
  out.matmul.sections[0] = {.begin = 0, .end = draft.cols, .unit = 1, .ops = {ops.begin(), first}};
  out.matmul.sections[0].ops.push_back({.kind = TileOpKind::kStore, .node = first->node});
  out.rows.source = sum ? first->node : ir::kNoNode;
  out.rows.input = {};
  out.rows.slots = 1;
  out.rows.sections[0].ops = {first + (sum ? 1 : 0), ops.end()};
  const auto matmul = epilogue_shape(graph, out.matmul, kv);
  if (!matmul) return std::unexpected(matmul.error());
  const auto rows = epilogue_shape(graph, out.rows, kv);
  if (!rows) return std::unexpected(rows.error());
  if (sum && rows->norm_columns == 0 && kActivationUnit % rows->multiple_of != 0)
    return std::unexpected("the sum of experts is combined by columns (RoPE)");
  out.matmul_shape = *matmul;
  out.rows_shape = *rows;
  return out;
}

std::expected<std::optional<RoutedDraft>, std::string> split_at_route(const ir::Graph& graph,
                                                                      std::span<const ir::NodeId> members,
                                                                      const KvFormat& kv) {
  std::vector<ir::NodeId> others(members.begin(), members.end());
  const auto route = std::ranges::find_if(others, [&](auto node) { return graph.op(node) == ir::Op::kRoute; });
  if (route == others.end() || members.size() == 1) return std::nullopt;
  RoutedDraft out{.matmul = {}, .shape = {}, .route = *route};
  others.erase(route);
  auto draft = draft_tile_program(graph, others, kGpuDraftRules);
  if (!draft) return std::unexpected(draft.error());
  const auto logits = graph.operand(out.route, 0);
  if (draft->source == ir::kNoNode || graph.op(draft->source) != ir::Op::kMatmul || draft->sections.size() != 1)
    return std::unexpected("the router's logits are not the rows of a matmul");
  auto& store = draft->sections[0].ops.back();
  if (store.kind != TileOpKind::kStore || store.operand != logits || graph.uses(logits).size() != 1 ||
      graph.is_output(logits))
    return std::unexpected("the router's logits are used by something else");
  if (graph.attrs_as<ir::RouteAttrs>(out.route).groups > 1) return std::unexpected("group-limited routing");
  store.operand = {};
  const auto shape = epilogue_shape(graph, *draft, kv);
  if (!shape) return std::unexpected(shape.error());
  out.matmul = std::move(*draft);
  out.shape = *shape;
  return out;
}

}  // namespace forge::codegen

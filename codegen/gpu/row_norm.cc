#include "codegen/gpu/row_norm.h"

#include <algorithm>

namespace forge::codegen {

using plan::TileOpKind;

std::expected<std::optional<RowNormDraft>, std::string> split_at_row_norm(const ir::Graph& graph,
                                                                          const TileDraft& draft) {
  if (draft.source == ir::kNoNode || graph.op(draft.source) != ir::Op::kMatmul || draft.sections.size() != 1)
    return std::nullopt;
  const auto& ops = draft.sections[0].ops;
  const auto norm = std::ranges::find_if(ops, [](const auto& op) { return op.kind == TileOpKind::kRmsNorm; });
  if (norm == ops.end() || graph.attrs_as<ir::NormAttrs>(norm->node).dim != draft.cols) return std::nullopt;
  RowNormDraft out;
  out.matmul = out.rows = draft;
  out.matmul.sections[0] = {.begin = 0, .end = draft.cols, .unit = 1, .ops = {ops.begin(), norm}};
  out.matmul.sections[0].ops.push_back({.kind = TileOpKind::kStore, .node = norm->node});
  out.rows.source = ir::kNoNode;
  out.rows.input = {};
  out.rows.sections[0].ops = {norm, ops.end()};
  const auto matmul = epilogue_shape(graph, out.matmul);
  if (!matmul) return std::unexpected(matmul.error());
  const auto rows = epilogue_shape(graph, out.rows);
  if (!rows) return std::unexpected(rows.error());
  out.matmul_shape = *matmul;
  out.rows_shape = *rows;
  return out;
}

}  // namespace forge::codegen

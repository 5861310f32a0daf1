#include "passes/schedule/output_hidden_rows.h"

#include <algorithm>
#include <string>
#include <utility>

#include "passes/passes.h"
#include "support/error.h"

namespace forge::passes {
namespace {

using ir::Op;
using ir::Value;

/// The x operand of the LM head's matmul. Scales, soft-caps and the file's biases and factors between that matmul and
/// the logits are skipped.
Value rows_before_head(const ir::Graph& graph, Value logits) {
  while (graph.op(logits.node) == Op::kScale || graph.op(logits.node) == Op::kSoftcap ||
         ((graph.op(logits.node) == Op::kAdd || graph.op(logits.node) == Op::kMul) &&
          is_weight(graph, graph.operand(logits.node, 1))))
    logits = graph.operand(logits.node, 0);
  if (graph.op(logits.node) != Op::kMatmul)
    throw Error(ErrorCode::kModelUnsupported, "no embeddings: the model's logits come from no matmul");
  return graph.operand(logits.node, 0);
}

}  // namespace

ir::Graph output_hidden_rows(ir::Graph graph) {
  for (std::size_t i = 0; i < graph.outputs().size(); ++i)
    if (const auto& [name, value] = graph.outputs()[i]; name == "logits")
      graph.set_output(i, std::string(ir::kHiddenOutput), rows_before_head(graph, value));
  return graph;
}

bool is_encoder(const ir::Graph& graph) {
  return std::ranges::any_of(graph.outputs(), [](const auto& output) { return output.name == ir::kHiddenOutput; });
}

}  // namespace forge::passes

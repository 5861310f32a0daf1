#include <algorithm>

#include "codegen/cpu/cpu_chooser.h"

namespace forge::codegen {

using ir::Op;
using plan::Operand;
using plan::Space;

plan::RowCount row_count(const ir::Dim& rows) {
  return rows.symbol == ir::Symbol::kRows ? plan::RowCount::LogitRows : plan::RowCount::Tokens;
}

Operand CpuChooser::rows(ir::Value value) const {
  const auto& type = graph_.type(value);
  const auto operand = operands_.of(value);
  return type.shape.size() == 3 ? with_row_bytes(operand, row_bytes_of(type.dtype, type.cols())) : operand;
}

Operand CpuChooser::state(ir::Value value, std::int64_t layer) const {
  return plan::operand_at(Space::Kv, static_cast<std::uint16_t>(kv_state_of(graph_, value).group),
                          static_cast<std::uint64_t>(layer));
}

// Attention and stand-alone nodes have steps of their own, everything else is a tile program. A LayerNorm alone is a
// tile program as well: the step NormRows is for RMSNorm only.
std::expected<passes::Choice, std::string> CpuChooser::choose(std::span<const ir::NodeId> nodes) {
  const auto node = nodes.front();
  const bool alone = nodes.size() == 1 && stands_alone(graph_, node);
  passes::Choice out;
  if (alone) out.step.label = ir::op_def(graph_.op(node)).name;
  if (graph_.op(node) == Op::kAttention) {
    out.step.body.Set(attention(nodes, out));
  } else if (graph_.op(node) == Op::kSelfAttention) {
    out.step.body.Set(self_attention(node, out));
  } else if (graph_.op(node) == Op::kSelectKeys) {
    out.step.body.Set(select_keys(node, out));
  } else if (graph_.op(node) == Op::kShortConv) {
    out.step.label = nodes.size() > 1 ? "short_conv + activation" : "short_conv";
    out.step.body.Set(short_conv(nodes));
  } else if (alone && graph_.op(node) != Op::kLayerNorm) {
    step_of_one(node, out.step.body);
  } else {
    const auto draft = draft_tile_program(graph_, nodes);
    if (!draft) return std::unexpected(draft.error());
    if (!alone) out.step.label = draft->label(graph_);
    out.step.body.Set(tile(*draft));
  }
  out.step.operands = operands_.take();
  return out;
}

void CpuChooser::step_of_one(ir::NodeId node, plan::BodyUnion& body) {
  switch (graph_.op(node)) {
    case Op::kRoute:
      return body.Set(route(node));
    case Op::kArrange:
      return body.Set(arrange(node));
    case Op::kRopeFreqs:
      return body.Set(rope_frequencies(node));
    case Op::kRopeTable:
      return body.Set(rope_angles(node));
    case Op::kSplit:
      return body.Set(split_pairs(node));
    case Op::kDeltaRule:
      return body.Set(delta_rule(node));
    case Op::kSelectiveScan:
      return body.Set(selective_scan(node));
    case Op::kRwkv7:
      return body.Set(rwkv7(node));
    case Op::kMatchRms:
      return body.Set(match_rms(node));
    case Op::kGaussianTopk:
      return body.Set(gaussian_topk(node));
    default:
      return body.Set(norm_rows(node));
  }
}

}  // namespace forge::codegen

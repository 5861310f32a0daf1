// Tile programs of the CPU: turns a draft (tile_draft.h) into the body of a plan's step, with its operands.

#include <utility>

#include "codegen/cpu/cpu_chooser.h"
#include "codegen/place_weights.h"
#include "passes/passes.h"
#include "support/error.h"

namespace forge::codegen {

using ir::Op;
using plan::TileOpKind;

namespace {

template <class Body>
plan::TileOpBodyUnion as_op(Body body) {
  plan::TileOpBodyUnion out;
  out.Set(std::move(body));
  return out;
}

std::uint8_t function_number(elementwise::Function function) {
  return static_cast<std::uint8_t>(function);
}
std::vector<float> parameters_of(const ir::FunctionCall& call) {
  const auto count = elementwise::function_def(call.function).parameter_count;
  return {call.parameters.begin(), call.parameters.begin() + static_cast<std::ptrdiff_t>(count)};
}

}  // namespace

plan::TileT CpuChooser::tile(const TileDraft& draft) {
  plan::TileT out;
  out.rows = row_count(draft.rows);
  out.slots = static_cast<std::int32_t>(draft.slots);
  out.cols = draft.cols;
  out.source = source(draft);
  for (const auto& from : draft.sections) out.sections.push_back(section(draft, from));
  return out;
}

/// The body of the tile program's source. Weights are not mentioned here: each section has its own part
/// (section_source).
plan::SourceUnion CpuChooser::source(const TileDraft& draft) {
  plan::SourceUnion out;
  const auto node = draft.source;
  if (node == ir::kNoNode) {
    out.Set(plan::LoadedRowsT());
    return out;
  }
  switch (graph_.op(node)) {
    case Op::kMatmul: {
      plan::MatmulRowsT matmul;
      matmul.x = role(draft.input);
      matmul.k = graph_.type(graph_.operand(node, 1)).cols();
      out.Set(matmul);
      return out;
    }
    case Op::kExpertMatmul: {
      const auto weight = graph_.operand(node, 1);
      const auto& type = graph_.type(weight);
      plan::ExpertMatmulRowsT matmul;
      matmul.x = role(draft.input);
      matmul.chosen = role(graph_.operand(node, 2));
      matmul.k = type.cols();
      matmul.experts = static_cast<std::int32_t>(type.shape[0].value);
      matmul.expert_bytes = static_cast<std::int64_t>(packed_slice_bytes(graph_, weight));
      matmul.shared_x = graph_.type(draft.input).shape.size() == 2;
      out.Set(matmul);
      return out;
    }
    case Op::kBatchedMatmul: {
      const auto& type = graph_.type(graph_.operand(node, 1));
      plan::BatchedMatmulRowsT matmul;
      matmul.x = role(draft.input);
      matmul.k = type.cols();
      matmul.batches = static_cast<std::int32_t>(type.shape[0].value);
      out.Set(matmul);
      return out;
    }
    case Op::kExpertSum: {
      plan::ExpertSumRowsT sum;
      sum.shares = role(graph_.operand(node, 1));
      sum.slots = static_cast<std::int32_t>(graph_.type(draft.input).shape[1].value);
      out.Set(sum);
      return out;
    }
    case Op::kEmbed: {
      const auto table = graph_.operand(node, 0);
      plan::EmbeddedRowsT embed;
      embed.ids = role(draft.input);
      embed.k = graph_.type(table).cols();
      embed.table_rows = graph_.type(table).shape[0].value;
      out.Set(embed);
      return out;
    }
    default: {
      plan::GatheredRowsT gather;
      gather.indices = role(graph_.operand(node, 1));
      out.Set(gather);
      return out;
    }
  }
}

std::unique_ptr<plan::SectionT> CpuChooser::section(const TileDraft& draft, const DraftSection& from) {
  auto out = std::make_unique<plan::SectionT>();
  out->begin = from.begin;
  out->end = from.end;
  out->unit = from.unit;
  auto ops = std::span(from.ops);
  if (!ops.empty() && ops.front().kind == TileOpKind::kLoad) {  // a section that loads its own rows (KV store)
    out->from = role(ops.front().operand, from.begin - ops.front().origin);
    ops = ops.subspan(1);
  } else {
    out->from = role(section_source(draft, from));
  }
  for (const auto& op : ops) out->ops.push_back(tile_op(from, op));
  return out;
}

/// What a section reads: of a matmul the packed weight rows of the section's columns, of embeddings the whole table,
/// else the source's rows from the section's first column on.
plan::Operand CpuChooser::section_source(const TileDraft& draft, const DraftSection& section) const {
  const auto node = draft.source;
  if (node != ir::kNoNode && passes::is_matmul(graph_, node)) {
    const auto weight = graph_.operand(node, 1);
    const bool batched = graph_.op(node) == Op::kBatchedMatmul;
    const auto rows = batched ? graph_.type(weight).shape[1].value : draft.cols;  // weight rows of one batch
    const auto offset = packed_offset(graph_, weight, section.begin % rows) +
                        static_cast<std::uint64_t>(section.begin / rows) * packed_slice_bytes(graph_, weight);
    return moved(operands_.of(weight), static_cast<std::int64_t>(offset));
  }
  if (node != ir::kNoNode && graph_.op(node) == Op::kEmbed) return operands_.of(graph_.operand(node, 0));
  return moved(rows(draft.input), section.begin * kFloatBytes);
}

std::unique_ptr<plan::TileOpT> CpuChooser::tile_op(const DraftSection& section, const DraftOp& draft) {
  const std::int64_t first = section.begin - draft.origin;  // column of the operand at the section's first column
  auto op = std::make_unique<plan::TileOpT>();
  switch (draft.kind) {
    case TileOpKind::kInvRms:
      op->body = inv_rms(draft);
      break;
    case TileOpKind::kUnary:
    case TileOpKind::kBinary:
    case TileOpKind::kPairs:
      op->body = elementwise(draft, first);
      break;
    case TileOpKind::kAddExpertVector:
      op->body = expert_vector(draft, first);
      break;
    case TileOpKind::kScaleExpert: {
      plan::ScaleExpertT scale;
      scale.factors = role(draft.operand);
      scale.chosen = role(graph_.operand(draft.node, 2));
      scale.experts = static_cast<std::int32_t>(graph_.type(draft.operand).shape[0].value);
      op->body.Set(scale);
      break;
    }
    case TileOpKind::kSumExperts: {
      plan::SumExpertsT sum;
      sum.shares = role(draft.operand);
      op->body.Set(sum);
      break;
    }
    case TileOpKind::kRmsNorm:
    case TileOpKind::kLayerNorm:
      op->body = norm(draft, first);
      break;
    case TileOpKind::kRope: {
      const auto& attrs = graph_.attrs_as<ir::RopeAttrs>(draft.node);
      plan::RopeT rope;
      rope.angles = role(draft.operand);
      rope.head_dim = attrs.head_dim;
      rope.rotary_dims = attrs.rotary_dims;
      rope.mode = attrs.mode == ir::RopeMode::kHalves ? plan::RopeMode::Halves : plan::RopeMode::Pairs;
      op->body.Set(rope);
      break;
    }
    default:
      op->body = sink(draft, first);
  }
  return op;
}

plan::TileOpBodyUnion CpuChooser::inv_rms(const DraftOp& draft) {
  const auto& norm = graph_.attrs_as<ir::NormAttrs>(draft.node);
  const auto& shape = graph_.type({draft.node, 0}).shape;
  plan::InvRmsT out;
  out.squares = role(draft.operand);
  out.dim = norm.dim;
  out.eps = norm.eps;
  out.slots = shape.size() == 3 ? static_cast<std::int32_t>(shape[1].value) : 1;
  return as_op(out);
}

/// A bias with one vector per expert; the row's expert selects the vector.
plan::TileOpBodyUnion CpuChooser::expert_vector(const DraftOp& draft, std::int64_t first) {
  const auto& shape = graph_.type(draft.operand).shape;  // [experts, columns, 1]
  const auto row_bytes = static_cast<std::uint32_t>(shape[1].value * kFloatBytes);
  plan::AddExpertVectorT out;
  out.vectors = role(with_row_bytes(moved(rows(draft.operand), first * kFloatBytes), row_bytes));
  out.chosen = role(graph_.operand(draft.node, 2));
  out.experts = static_cast<std::int32_t>(shape[0].value);
  return as_op(out);
}

plan::TileOpBodyUnion CpuChooser::elementwise(const DraftOp& draft, std::int64_t first) {
  const auto call = *ir::function_call(graph_.op(draft.node), graph_.attrs(draft.node));
  if (draft.kind == TileOpKind::kPairs) {
    plan::ElementwisePairsT out;
    out.function = function_number(call.function);
    out.parameters = parameters_of(call);
    out.unit = graph_.attrs_as<ir::PartsAttrs>(draft.operand.node).unit;
    return as_op(out);
  }
  plan::ElementwiseT out;
  out.function = function_number(call.function);
  out.parameters = parameters_of(call);
  if (draft.kind == TileOpKind::kBinary) {
    const auto& type = graph_.type(draft.operand);
    out.single = is_one_number(type);
    out.broadcast = type.shape.size() == 1 && !out.single;
    out.operand = role(draft.operand, out.single ? 0 : first);
  }
  return as_op(out);
}

/// Norms each run of `dim` columns of a section, whose first column is `first`. A weight (and bias) of [dim] is the
/// same for all runs and is read from its start; one with a number for each column is read from `first` on.
plan::TileOpBodyUnion CpuChooser::norm(const DraftOp& draft, std::int64_t first) {
  const auto& norm = graph_.attrs_as<ir::NormAttrs>(draft.node);
  plan::NormT out;
  out.kind = draft.kind == TileOpKind::kRmsNorm ? plan::NormKind::Rms : plan::NormKind::Layer;
  out.shared = graph_.type(draft.operand).shape.size() == 1;
  const auto vectors = graph_.operands(draft.node).subspan(1);
  const std::int64_t column = out.shared ? 0 : first;
  out.weight = role(vectors[0], column);
  if (vectors.size() > 1) out.bias = role(vectors[1], column);
  out.dim = norm.dim;
  out.eps = norm.eps;
  return as_op(out);
}

/// Sinks write a column range of their output: floats from column `first` on, one partial sum per kSumSquaresBlock
/// columns, or quantised blocks from a block number on.
plan::TileOpBodyUnion CpuChooser::sink(const DraftOp& draft, std::int64_t first) {
  switch (draft.kind) {
    case TileOpKind::kStore: {
      plan::StoreT out;
      out.out = role(draft.operand, first);
      return as_op(out);
    }
    case TileOpKind::kSumSquares: {
      plan::SumSquaresT out;
      out.out = role(draft.operand, first / ir::kSumSquaresBlock);
      return as_op(out);
    }
    case TileOpKind::kQuantize: {
      plan::QuantizeT out;
      out.out = role(draft.operand);
      out.cols = graph_.type(draft.operand).cols();
      out.block = first / dtype_info(DType::kQ8A_32).block_elems;
      return as_op(out);
    }
    case TileOpKind::kStoreK:
    case TileOpKind::kStoreV: {
      const auto layer = graph_.attrs_as<ir::KvStoreAttrs>(draft.node).layer;
      plan::StoreKvT out;
      out.state = role(state(graph_.operand(draft.node, 0), layer));
      out.part = draft.kind == TileOpKind::kStoreK ? plan::KvPart::Keys : plan::KvPart::Values;
      out.first_column = first;
      return as_op(out);
    }
    default:
      throw Error(ErrorCode::kInternal, "a draft has a source where a tile op is expected");
  }
}

}  // namespace forge::codegen

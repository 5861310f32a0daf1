#include "codegen/cpu/lower_cpu.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "codegen/cpu/cpu_lowering.h"
#include "codegen/describe_step.h"
#include "kernels/cpu/attention.h"
#include "passes/give_hidden.h"
#include "support/error.h"

namespace forge::codegen {

using ir::Op;
using plan::Operand;
using plan::Space;

namespace {

std::unique_ptr<plan::StepT> load_step(const plan::WeightT& weight, std::size_t index) {
  auto step = std::make_unique<plan::StepT>();
  plan::LoadWeightT load;
  load.weight = static_cast<std::uint32_t>(index);
  step->body.Set(load);
  step->label = weight.name;
  step->weight_bytes = static_cast<std::int64_t>(weight.bytes);
  return step;
}

}  // namespace

plan::RowCount row_count(const ir::Dim& rows) {
  return rows.symbol == ir::Symbol::kRows ? plan::RowCount::LogitRows : plan::RowCount::Tokens;
}

CpuLowering::CpuLowering(const passes::Program& program, const ModelFile& model, DType kv_type)
    : program_(program),
      graph_(program.graph),
      model_(model),
      places_(program, model, quant::Layout::kX16),
      kv_type_(kv_type) {}

std::unique_ptr<plan::ProgramT> CpuLowering::run(const passes::Program* hidden) {
  auto out = std::make_unique<plan::ProgramT>();
  places_.place_all();
  out->kv_groups = places_.kv_groups(static_cast<std::int64_t>(cpu::kKvBlockTokens),
                                     [&](const auto& kv) { return kv_block_bytes_of(kv); });
  for (const auto& variant : program_.variants) out->variants.push_back(lower_variant(variant));
  out->arena_bytes = program_.arena_bytes;
  out->arena_bound_bytes = program_.arena_bound_bytes;
  if (hidden != nullptr) CpuLowering(*hidden, model_, kv_type_).add_hidden(places_, *out);
  places_.take(*out);
  for (std::size_t i = 0; i < out->weights.size(); ++i) out->load_steps.push_back(load_step(*out->weights[i], i));
  return out;
}

/// This program's variants, on the weights of the one that `places` is of; its constants join that one's.
void CpuLowering::add_hidden(ValuePlaces& places, plan::ProgramT& out) {
  places_.place_beside(places);
  const auto& outputs = graph_.outputs();
  const auto hidden = std::ranges::find(outputs, passes::kHiddenOutput, &ir::Graph::Output::name);
  invariant(hidden != outputs.end(), "CG-006", "a program for embeddings gives hidden rows");
  for (const auto& variant : program_.variants) {
    out.variants.push_back(lower_variant(variant));
    out.variants.back()->hidden_width = graph_.type(hidden->value).cols();
  }
  places.take_constants(places_);
  if (program_.arena_bytes <= out.arena_bytes) return;
  out.arena_bytes = program_.arena_bytes;
  out.arena_bound_bytes = program_.arena_bound_bytes;
}

std::int64_t CpuLowering::kv_block_bytes_of(const ir::KvStateAttrs& kv) const {
  const auto head_dim = static_cast<std::size_t>(kv.head_dim);
  if (!cpu::kv_type_fits(kv_type_, head_dim))
    throw Error(ErrorCode::kModelUnsupported, fmt::format("no KV cache in {} for this model", dtype_name(kv_type_)),
                fmt::format("its heads have {} columns, no multiple of {}", head_dim, cpu::kKvScaleColumns),
                "compile it with --kv-type f16");
  return static_cast<std::int64_t>(cpu::kv_block_bytes({kv_type_, static_cast<std::size_t>(kv.kv_heads), head_dim}));
}

Operand CpuLowering::place_of(ir::Value value) const {
  const auto place = places_.rows_of(value).ref;
  const auto& type = graph_.type(value);
  return type.shape.size() == 3 ? with_row_bytes(place, row_bytes_of(type.dtype, type.cols())) : place;
}

Operand CpuLowering::state_place(ir::Value state, std::int64_t layer) const {
  return plan::operand_at(Space::Kv, static_cast<std::uint16_t>(kv_state_of(graph_, state).group),
                          static_cast<std::uint64_t>(layer));
}

std::uint16_t CpuLowering::role(const Operand& operand) {
  auto& operands = step_->operands;
  const auto found = std::ranges::find_if(operands, [&](const auto& other) { return same(operand, other); });
  const auto at = static_cast<std::uint16_t>(found - operands.begin());
  if (found == operands.end()) operands.push_back(operand);
  return at;
}

std::unique_ptr<plan::VariantT> CpuLowering::lower_variant(const passes::Variant& variant) {
  places_.enter(variant);
  auto out = describe_variant(variant);
  for (const auto& step : variant.steps) out->steps.push_back(lower_step(step));
  return out;
}

std::unique_ptr<plan::StepT> CpuLowering::lower_step(const passes::Step& step) {
  auto out = describe_step(step);
  step_ = out.get();
  const auto node = step.nodes.front();
  const bool alone = step.nodes.size() == 1;
  switch (graph_.op(node)) {
    case Op::kAttention:
      out->body.Set(attention(step));
      return out;
    case Op::kRoute:
      out->body.Set(route(node));
      return out;
    case Op::kArrange:
      out->body.Set(arrange(node));
      return out;
    case Op::kRopeFreqs:
      out->body.Set(rope_frequencies(node));
      return out;
    case Op::kRopeTable:
      out->body.Set(rope_angles(node));
      return out;
    case Op::kRmsNorm:
      if (!alone) break;
      out->body.Set(norm_rows(node));
      return out;
    case Op::kSplit:
      if (!alone || graph_.attrs_as<ir::PartsAttrs>(node).unit == 0) break;
      out->body.Set(split_pairs(node));
      return out;
    default:
      break;
  }
  out->body.Set(tile(step.nodes));
  return out;
}

std::unique_ptr<plan::ProgramT> lower_cpu(const passes::Program& program, const ModelFile& model, DType kv_type,
                                          const passes::Program* hidden) {
  return CpuLowering(program, model, kv_type).run(hidden);
}

}  // namespace forge::codegen

#include "codegen/cpu/lower_cpu.h"

#include <fmt/format.h>

#include <algorithm>

#include "codegen/value_places.h"
#include "kernels/cpu/attention/attention.h"
#include "support/error.h"

namespace forge::codegen {
namespace {

/// The step that loads weight number `index` when the plan is opened.
std::unique_ptr<plan::StepT> load_step(const plan::WeightT& weight, std::size_t index) {
  auto step = std::make_unique<plan::StepT>();
  plan::LoadWeightT load;
  load.weight = static_cast<std::uint32_t>(index);
  step->body.Set(load);
  step->label = weight.name;
  step->weight_bytes = static_cast<std::int64_t>(weight.bytes);
  return step;
}

/// Bytes of a KV block of one layer. Errors: kModelUnsupported if the heads do not fit kv_type.
std::int64_t kv_block_bytes_of(const ir::KvStateAttrs& kv, DType kv_type) {
  const cpu::KvShape shape{.type = kv_type,
                           .heads = static_cast<std::size_t>(kv.kv_heads),
                           .head_dim = static_cast<std::size_t>(kv.head_dim),
                           .value_dim = static_cast<std::size_t>(value_dim_of(kv)),
                           .shared_row = kv.shared_row == 1};
  if (!cpu::kv_type_fits(shape))
    throw Error(ErrorCode::kModelUnsupported, fmt::format("no KV cache in {} for this model", dtype_name(kv_type)),
                fmt::format("its keys have {} columns and its values {}, which must be multiples of {}", shape.head_dim,
                            shape.value_dim, cpu::kKvScaleColumns),
                "compile it with --kv-type f16");
  return static_cast<std::int64_t>(cpu::kv_block_bytes(shape));
}

/// Columns of the rows that the graph outputs instead of logits; 0 if it outputs logits.
std::int64_t hidden_width_of(const ir::Graph& graph) {
  const auto& outputs = graph.outputs();
  const auto hidden = std::ranges::find(outputs, ir::kHiddenOutput, &ir::Graph::Output::name);
  return hidden == outputs.end() ? 0 : graph.type(hidden->value).cols();
}

/// Adds the variants that output hidden rows. They use the weights that `places` has placed; their constants are
/// appended, and the arena is as large as the larger program needs.
void add_hidden(passes::Program& program, const ModelFile& model, ValuePlaces& places, plan::ProgramT& out) {
  ValuePlaces beside(program.graph, model, quant::Layout::kX16);
  beside.place_with_weights_of(places);
  const auto width = hidden_width_of(program.graph);
  invariant(width > 0, "CG-006", "a program for embeddings has no output of hidden rows");
  for (auto& variant : program.variants) {
    out.variants.push_back(beside.lower(variant));
    out.variants.back()->hidden_width = width;
  }
  places.take_constants(beside);
  if (program.arena_bytes <= out.arena_bytes) return;
  out.arena_bytes = program.arena_bytes;
  out.arena_bound_bytes = program.arena_bound_bytes;
}

}  // namespace

std::unique_ptr<plan::ProgramT> lower_cpu(passes::Program program, std::optional<passes::Program> hidden,
                                          const ModelFile& model, DType kv_type) {
  auto out = std::make_unique<plan::ProgramT>();
  ValuePlaces places(program.graph, model, quant::Layout::kX16);
  places.place_all();
  places.place_states(
      static_cast<std::int64_t>(cpu::kKvBlockTokens), kv_type,
      [&](const auto& kv) { return kv_block_bytes_of(kv, kv_type); }, *out);
  for (auto& variant : program.variants) {
    out->variants.push_back(places.lower(variant));
    out->variants.back()->hidden_width = hidden_width_of(program.graph);
  }
  out->arena_bytes = program.arena_bytes;
  out->arena_bound_bytes = program.arena_bound_bytes;
  if (hidden) add_hidden(*hidden, model, places, *out);
  places.take(*out);
  for (std::size_t i = 0; i < out->weights.size(); ++i) out->load_steps.push_back(load_step(*out->weights[i], i));
  return out;
}

}  // namespace forge::codegen

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

}  // namespace

std::unique_ptr<plan::ProgramT> lower_cpu(passes::Program program, std::optional<passes::Program> hidden,
                                          const ModelFile& model, DType kv_type) {
  auto out = std::make_unique<plan::ProgramT>();
  ValuePlaces places(program.graph, model, quant::Layout::kX16);
  places.place_all();
  places.place_states(
      static_cast<std::int64_t>(cpu::kKvBlockTokens), kv_type,
      [&](const auto& kv) { return kv_block_bytes_of(kv, kv_type); }, *out);
  lower_variants(program, places, {}, *out);
  if (hidden) {
    ValuePlaces beside(hidden->graph, model, quant::Layout::kX16);
    lower_beside(*hidden, places, beside, {}, *out);
  }
  places.take(*out);
  for (std::size_t i = 0; i < out->weights.size(); ++i) out->load_steps.push_back(load_step(*out->weights[i], i));
  return out;
}

}  // namespace forge::codegen

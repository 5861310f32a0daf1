#include "codegen/describe_step.h"

namespace forge::codegen {

std::unique_ptr<plan::VariantT> describe_variant(const passes::Variant& variant) {
  auto out = std::make_unique<plan::VariantT>();
  const auto& bounds = variant.bounds;
  out->name = variant.name;
  out->bounds = plan::Bounds(bounds.tokens, bounds.rows, bounds.sequences, bounds.table_blocks);
  out->arena_bytes = variant.arena_bytes;
  out->arena_bound_bytes = variant.arena_bound_bytes;
  return out;
}

std::unique_ptr<plan::StepT> describe_step(const passes::Step& step) {
  auto out = std::make_unique<plan::StepT>();
  out->label = step.kernel.kernel;
  out->layer = step.layer;
  out->weight_bytes = step.cost.weight_bytes;
  out->activation_bytes = step.cost.activation_bytes;
  out->flops = step.cost.flops;
  return out;
}

}  // namespace forge::codegen

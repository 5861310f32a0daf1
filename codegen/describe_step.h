#pragma once
// What a plan says of a variant and of a step on every target; the rest is the lowering's.

#include <memory>

#include "passes/program.h"
#include "runtime/plan/plan_generated.h"

namespace forge::codegen {

/// Name, bounds and arena; no steps yet.
std::unique_ptr<plan::VariantT> describe_variant(const passes::Variant& variant);

/// Label, layer and cost; no body and no operands yet.
std::unique_ptr<plan::StepT> describe_step(const passes::Step& step);

}  // namespace forge::codegen

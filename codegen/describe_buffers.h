#pragma once
// The arena's buffers as a plan keeps them, so that it can be drawn.

#include <memory>
#include <vector>

#include "ir/value_numbers.h"
#include "passes/program.h"
#include "runtime/plan/plan_generated.h"

namespace forge::codegen {

/// Of a variant that is not lowered yet. Steps are counted as they will stand in the plan, without those that have no
/// body; what only such a step touches is left out.
std::vector<std::unique_ptr<plan::BufferT>> describe_buffers(const ir::Graph& graph, const ir::ValueNumbers& numbers,
                                                             const passes::Variant& variant);

}  // namespace forge::codegen

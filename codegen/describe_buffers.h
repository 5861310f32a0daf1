#pragma once
// The arena's buffers as rows of a plan, from which tools draw the arena (forge-inspect).

#include <memory>
#include <vector>

#include "ir/value_numbers.h"
#include "passes/program.h"
#include "runtime/plan/plan_generated.h"

namespace forge::codegen {

/// Describes the buffers of a variant that is not lowered yet: lifetimes in steps, offset, bytes, and the values in
/// each; then each step's scratch. Steps are numbered as in the plan, which omits steps without a body; buffers that
/// only such steps touch are omitted too.
std::vector<std::unique_ptr<plan::BufferT>> describe_buffers(const ir::Graph& graph, const ir::ValueNumbers& numbers,
                                                             const passes::Variant& variant);

}  // namespace forge::codegen

#pragma once
// Which steps of a schedule run side by side: two that do not depend on each other may be one launch, where each alone
// would not fill the device. Used by bind_variants.

#include <functional>
#include <span>
#include <vector>

#include "passes/schedule/schedule.h"
#include "passes/schedule/views.h"

namespace forge::passes {

/// A turn of the execution order: a step, and possibly one that runs beside it.
struct Turn {
  StepNodes step, beside;  ///< beside: empty if the step runs alone

  /// The nodes of both, in topological order.
  [[nodiscard]] StepNodes nodes() const;
};

/// The turns of a schedule. A step moves forward to the turn of an earlier one if all that it needs was there before
/// that one, and `wanted(earlier, step)`. Every step follows the producers of its operands, as before, except that
/// stores of a KV cache may change places among themselves.
using Wanted = std::function<bool(const StepNodes&, const StepNodes&)>;
std::vector<Turn> pair_steps(const ir::Graph& graph, std::span<const StepNodes> order, const Views& views,
                             const Wanted& wanted);

}  // namespace forge::passes

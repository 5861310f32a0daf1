#pragma once
// Which steps of a schedule share a launch. Two that do not depend on each other may run side by side, where each alone
// would not fill the device; and the blocks of a step may do the work of the step before it first, where each needs
// little of that. Used by bind_variants.

#include <functional>
#include <span>
#include <vector>

#include "passes/schedule/schedule.h"
#include "passes/schedule/views.h"

namespace forge::passes {

/// A turn of the execution order: a step, and possibly a second one in the same launch.
struct Turn {
  StepNodes step, second;  ///< second: empty if the step runs alone
  bool joined = false;     ///< the second one needs the step, whose results nothing else reads

  /// The nodes of both, in topological order.
  [[nodiscard]] StepNodes nodes() const;
};

/// The turns of a schedule. A step is joined with the one that follows it if `joins(step, next)`. Else a step moves
/// forward to the turn of an earlier one if all that it needs was there before that one, and `beside(earlier, step)`.
/// Every step follows the producers of its operands, as before, except that stores of a KV cache may change places
/// among themselves.
using Wanted = std::function<bool(const StepNodes&, const StepNodes&)>;
std::vector<Turn> pair_steps(const ir::Graph& graph, std::span<const StepNodes> order, const Views& views,
                             const Wanted& beside, const Wanted& joins);

}  // namespace forge::passes

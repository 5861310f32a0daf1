#pragma once
// What the passes produce for one target: variants of chosen steps with buffers placed in one arena. codegen lowers it
// to a plan.

#include <cstdint>
#include <string>
#include <vector>

#include "ir/graph.h"
#include "passes/schedule/row_layout.h"
#include "passes/target.h"

namespace forge::passes {

struct Step {
  /// In topological order; sources (inputs, weights, constants, states) are not in steps.
  std::vector<ir::NodeId> nodes;
  Choice choice;
  std::int64_t scratch_offset = 0;  ///< into the arena
};

struct Variant {
  std::string name;  ///< "decode4", "prefill512"
  ir::Bounds bounds;
  std::vector<Step> steps;
  std::vector<Step> sample_steps;  ///< the target's own; they run when nothing of the arena is alive
  std::vector<Buffer> buffers;
  std::int64_t arena_bytes = 0, arena_bound_bytes = 0;
};

/// Move-only, as steps are.
struct Program {
  ir::Graph graph;  ///< after all graph passes; the variants' steps name its nodes
  std::vector<Variant> variants;
  std::int64_t arena_bytes = 0;        ///< the largest variant's, and at least the scratch of any sampling step
  std::int64_t arena_bound_bytes = 0;  ///< that variant's live-set bound, the same
};

}  // namespace forge::passes

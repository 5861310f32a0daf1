#pragma once
// The result of the pass pipeline for one target: variants, each a list of steps with kernels, whose buffers are placed
// in one arena. codegen lowers it to a plan.
//
//   Program
//     Variant "decode4"      bounds T=4 ...     steps: [embed] [QKV matmul + RoPE + KV write] [attention] ...
//     Variant "prefill512"   bounds T=512 ...   the same graph and groups, other kernels and offsets

#include <cstdint>
#include <string>
#include <vector>

#include "ir/graph.h"
#include "passes/schedule/row_layout.h"
#include "passes/target.h"

namespace forge::passes {

/// One fused group, or a single node, with the kernel that runs it.
struct Step {
  /// In topological order; sources (inputs, weights, constants, states) are not in steps.
  std::vector<ir::NodeId> nodes;
  Choice choice;
  std::int64_t scratch_offset = 0;  ///< of the step's scratch, bytes into the arena
};

/// The program for one set of upper bounds. A step of the engine runs the first variant that holds it.
struct Variant {
  std::string name;  ///< "decode4", "prefill512"
  ir::Bounds bounds;
  StoredForms stored;
  std::vector<Step> steps;         ///< in execution order
  std::vector<Step> sample_steps;  ///< sampling on the device, if the target has it; runs after all steps, with the
                                   ///< whole arena as scratch
  std::vector<Buffer> buffers;
  std::int64_t arena_bytes = 0;        ///< size of this variant's arena
  std::int64_t arena_bound_bytes = 0;  ///< lower bound: most bytes live at one step
};

/// A compiled program. Move-only, because steps are.
struct Program {
  ir::Graph graph;  ///< after all graph passes; the steps of all variants refer to its nodes
  std::vector<Variant> variants;
  std::int64_t arena_bytes = 0;        ///< of the largest variant, and at least the scratch of any sampling step
  std::int64_t arena_bound_bytes = 0;  ///< that variant's lower bound, likewise
};

}  // namespace forge::passes

#pragma once
// What the passes produce for one target: variants of steps with buffers placed in one arena. codegen lowers it to a
// plan.

#include <cstdint>
#include <string>
#include <vector>

#include "ir/graph.h"
#include "passes/target_model.h"

namespace forge::passes {

/// A value that lives in the arena: produced by one step and read by later ones. Outputs of the graph (logits) live in
/// a block of their own: their readers are outside, and nothing may overwrite them.
struct Buffer {
  ir::Value value;                 ///< the first value that takes this space
  std::vector<ir::Value> aliases;  ///< values computed in place of it
  std::int64_t bytes = 0;
  std::int32_t first = 0, last = 0;  ///< steps
  std::int64_t offset = 0;           ///< into the arena
};

struct Step {
  std::vector<ir::NodeId>
      nodes;  ///< in topological order; sources (inputs, weights, constants, states) are not in steps
  KernelChoice kernel;
  std::int32_t layer = ir::kNoLayer;
  std::int64_t scratch_offset = 0;
  ir::Cost cost;  ///< weights read, and bytes crossing the step's border
};

struct Variant {
  std::string name;  ///< "decode4", "prefill512"
  ir::Bounds bounds;
  std::vector<Step> steps;
  std::vector<Buffer> buffers;
  std::int64_t arena_bytes = 0, arena_bound_bytes = 0;

  /// Where a value lives, or nullptr: it stays inside one step, or is no arena value.
  [[nodiscard]] const Buffer* buffer_of(ir::Value value) const;
};

struct Program {
  ir::Graph graph;  ///< after all graph passes; the variants' steps name its nodes
  std::vector<Variant> variants;
  std::int64_t arena_bytes = 0;        ///< the largest variant's
  std::int64_t arena_bound_bytes = 0;  ///< that variant's live-set bound
};

}  // namespace forge::passes

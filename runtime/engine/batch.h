#pragma once
// Converts a step that the scheduler has planned (StepPlan) into the flat arrays that executors take (StepBatch).

#include <cstddef>
#include <cstdint>
#include <vector>

#include "runtime/engine/scheduler.h"
#include "runtime/executor.h"
#include "runtime/step_batch.h"

namespace forge::engine {

/// What one step of a program can hold: the bounds of its largest variant, and the longest sequence (context).
struct BatchLimits {
  std::size_t tokens = 0, sequences = 0, context = 0, table_blocks = 0, kv_groups = 0;
  bool states = false;         ///< the program has recurrent state
  bool whole_prompts = false;  ///< the program is an encoder's: all tokens of a prompt are in one step
  /// Errors: kPlan if the program has no room for a single token.
  static BatchLimits of(const runtime::Executor& executor);
};

/// Owns the arrays of one StepBatch. All memory is allocated by the constructor.
class BatchBuilder {
 public:
  explicit BatchBuilder(const BatchLimits& limits);
  /// Fills the arrays. The result is valid until the next call and as long as the plan's spans. The plan must respect
  /// the limits.
  [[nodiscard]] runtime::StepBatch build(const StepPlan& plan);

 private:
  std::size_t table_blocks_, kv_groups_;
  bool states_;
  std::vector<std::int32_t> ids_, positions_, sequence_, rows_, kv_length_, block_table_, state_read_, state_write_;
  std::vector<std::uint8_t> prompt_;
};

}  // namespace forge::engine

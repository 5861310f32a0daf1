#pragma once
// A planned step as the arrays that executors take.

#include <cstddef>
#include <cstdint>
#include <vector>

#include "runtime/engine/scheduler.h"
#include "runtime/executor.h"
#include "runtime/step_batch.h"

namespace forge::engine {

/// What one step of a program can hold: the bounds of its largest variant.
struct BatchLimits {
  std::size_t tokens = 0, sequences = 0, context = 0, table_blocks = 0, kv_groups = 0;
  /// Errors: kPlan for a program without room for a token.
  static BatchLimits of(const runtime::Executor& executor);
};

/// All memory is taken when it is made.
class BatchBuilder {
 public:
  explicit BatchBuilder(const BatchLimits& limits);
  /// Valid until the next call and as long as the plan's spans. The plan keeps within the limits.
  [[nodiscard]] runtime::StepBatch build(const StepPlan& plan);

 private:
  std::size_t table_blocks_, kv_groups_;
  std::vector<std::int32_t> ids_, positions_, sequence_, rows_, kv_length_, block_table_;
  std::vector<std::uint8_t> prompt_;
};

}  // namespace forge::engine

#pragma once
// The size of one step of the engine, for forge-bench --roofline.

#include <cstdint>

namespace forge::tools {

/// `tokens` new ones in `sequences` sequences, which all have `context` positions cached; `rows` of logits are wanted.
/// Either one sequence, or one token each.
struct StepShape {
  std::int64_t tokens = 1, rows = 1, sequences = 1, context = 0;
};

}  // namespace forge::tools

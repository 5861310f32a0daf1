#include "tools/bench/step_bytes.h"

#include <algorithm>

namespace forge::tools {
namespace {

/// The share of the variant's rows that are real.
double filled(const plan::VariantT& variant, const StepShape& shape) {
  return static_cast<double>(shape.tokens) / static_cast<double>(std::max<std::int64_t>(variant.bounds.tokens(), 1));
}

}  // namespace

double kv_bytes(const plan::ProgramT& program, const plan::StepT& step, const StepShape& shape) {
  if (step.weight_bytes > 0) return 0;
  for (const auto& operand : step.operands) {
    if (operand.space() != plan::Space::Kv || operand.index() >= program.kv_groups.size()) continue;
    const auto& group = program.kv_groups[operand.index()];
    const std::int64_t per_sequence = shape.tokens / std::max<std::int64_t>(shape.sequences, 1);
    std::int64_t positions = shape.context + per_sequence;
    if (group.window() > 0) positions = std::min(positions, group.window() + per_sequence);
    return static_cast<double>(positions * shape.sequences) * static_cast<double>(group.block_bytes()) /
           std::max(group.block_tokens(), 1);
  }
  return 0;
}

double step_bytes(const plan::ProgramT& program, const plan::VariantT& variant, const plan::StepT& step,
                  const StepShape& shape) {
  return static_cast<double>(step.weight_bytes) + static_cast<double>(step.activation_bytes) * filled(variant, shape) +
         kv_bytes(program, step, shape);
}

double step_flops(const plan::VariantT& variant, const plan::StepT& step, const StepShape& shape) {
  return static_cast<double>(step.flops) * filled(variant, shape);
}

}  // namespace forge::tools

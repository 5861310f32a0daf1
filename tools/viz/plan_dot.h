#pragma once
// Draws a variant of a plan as a Graphviz graph: its steps and the values between them.

#include <cstdint>
#include <string>

#include "runtime/plan/plan_generated.h"

namespace forge::tools {

inline constexpr std::int32_t kAllLayers = -2;

/// Returns DOT text. Each step is a box with its kernel, the reason for it, and the bytes of weights it reads. Each
/// value is an arrow from its producer to its reader, with type and arena offset. KV groups are cylinders. `layer`:
/// draw only this layer's steps, and as dashed boxes the neighbours that they exchange values with. Precondition: the
/// variant comes from variant_to_draw (plan_to_draw.h), which checks it.
[[nodiscard]] std::string plan_dot(const plan::VariantT& variant, std::int32_t layer);

}  // namespace forge::tools

#pragma once
// A variant as a graph for Graphviz: steps, and the values that they hand on.

#include <cstdint>
#include <string>

#include "runtime/plan/plan_generated.h"

namespace forge::tools {

inline constexpr std::int32_t kAllLayers = -2;

/// DOT text. A box a step with what it runs, why, and the weights it reads; an arrow a value with its type and place in
/// the arena; KV caches, inputs and outputs beside them. layer: only that one's steps, and as dashed boxes the steps
/// that they take values from or hand them to. Precondition: variant_to_draw (plan_to_draw.h) gave the variant.
[[nodiscard]] std::string plan_dot(const plan::VariantT& variant, std::int32_t layer);

}  // namespace forge::tools

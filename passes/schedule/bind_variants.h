#pragma once
// The last stage: one variant for each set of bounds that the target wants, with kernels, costs and places.

#include <span>

#include "passes/program.h"

namespace forge::passes {

/// Takes the graph after all passes. Throws Error of the target where it has no kernel.
Program bind_variants(ir::Graph graph, const Target& target, std::span<const Target::VariantSpec> variants);

}  // namespace forge::passes

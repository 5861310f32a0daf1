#pragma once
// The last stage of the pipeline: makes one variant for each set of bounds that the target lists, with scheduled steps,
// kernels, costs and arena offsets.

#include <span>

#include "passes/program.h"

namespace forge::passes {

/// `graph` has been through all passes. Throws Error(kModelUnsupported) with the target's reason if it has no kernel
/// for a step.
Program bind_variants(ir::Graph graph, const Target& target, std::span<const Target::VariantSpec> variants);

}  // namespace forge::passes

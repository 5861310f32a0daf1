#pragma once
// The text form of a graph. print(parse(x)) == x for printed graphs, and parse(print(g)) has g's hash: every dump is a
// reproducer, and the plan stores the portable graph in this form.

#include <string>
#include <string_view>

#include "ir/graph.h"

namespace forge::ir {

/// One node a line, in topological order:
///   %12 = matmul(%8, %11) : f32[T,576]            @layer 3 #group 7
///   %13, %14 = split(%12) {sizes = [576, 192]; unit = 0} : f32[T,576], f32[T,192]
/// Types of weights, constants and all results are printed; the parser checks them against the shape rules.
std::string print(const Graph& graph);

/// Throws Error(kPlan) with line and column for text that is not a graph; hostile text is safe.
Graph parse(std::string_view text);

}  // namespace forge::ir

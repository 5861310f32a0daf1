#pragma once
// The text form of a graph: dumps, tests and plans use it. It round-trips: print(parse(x)) == x for printed text x, and
// parse(print(g)) has the hash of g. So every dump can be fed to a pass again to reproduce a failure, and plans store
// the portable graph as text.

#include <string>
#include <string_view>

#include "ir/graph.h"

namespace forge::ir {

/// One node a line, in topological order:
///   %12 = matmul(%8, %11) : f32[T,576]            @layer 3 #group 7
///   %13, %14 = split(%12) {sizes = [576, 192]; unit = 0} : f32[T,576], f32[T,192]
/// and one line for each output: output "logits" = %14. Result types are always printed, although the shape rules could
/// compute most of them; the parser checks them against the shape rules.
std::string print(const Graph& graph);

/// Parses and verifies a graph; text_parse.cc has the grammar. Throws Error(kPlan) with line and column for invalid
/// text. Safe for hostile text: size and node count are limited and nothing recurses.
Graph parse(std::string_view text);

}  // namespace forge::ir

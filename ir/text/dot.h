#pragma once
// Draws a graph as Graphviz DOT: one cluster for each layer, in it one box for each fused group; node labels show types
// and notes. Used by the dumps of compilation (passes/dump.h).

#include <functional>
#include <string>
#include <string_view>

#include "ir/graph.h"

namespace forge::ir {

struct DotOptions {
  std::int32_t only_layer = kNoLayer;      ///< draw this layer and the edges that cross its border; kNoLayer: draw all
  std::function<std::string(Value)> note;  ///< line under a value's type, such as "arena 0x1200 +2304"; optional
  std::function<std::string(std::uint32_t)>
      group_note;  ///< label of a group, such as "step 4: qkv, 5.2 kB of weights"; optional
};

/// `text` for a quoted DOT string: quotes and backslashes are escaped, control characters are removed.
std::string dot_escaped(std::string_view text);

std::string dot(const Graph& graph, const DotOptions& options = {});

}  // namespace forge::ir

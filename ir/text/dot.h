#pragma once
// Graphviz DOT of a graph: a cluster a layer, inside it a box a fused group; labels with types and notes.

#include <functional>
#include <string>
#include <string_view>

#include "ir/graph.h"

namespace forge::ir {

struct DotOptions {
  std::int32_t only_layer = kNoLayer;      ///< a single layer and the edges across its border
  std::function<std::string(Value)> note;  ///< "arena 0x1200 +2304" under the value; may be empty
  std::function<std::string(std::uint32_t)>
      group_note;  ///< "qkv_rope_store, 5.2 kB" as the group's label; may be empty
};

/// A text for a quoted string of DOT: quotes and backslashes escaped, control characters left out.
std::string dot_escaped(std::string_view text);

std::string dot(const Graph& graph, const DotOptions& options = {});

}  // namespace forge::ir

#pragma once
// A model for embeddings: its graph with the rows that the head would multiply as output, instead of logits.

#include <string_view>

#include "ir/graph.h"

namespace forge::passes {

inline constexpr std::string_view kHiddenOutput = "hidden";

/// `graph`, portable, with the output "hidden" [R, width], the final norm's rows, in the place of "logits". The head is
/// left without a use, and goes with dead nodes. Errors: kModelUnsupported when logits do not come from a matmul.
ir::Graph give_hidden(ir::Graph graph);

}  // namespace forge::passes

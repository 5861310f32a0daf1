#pragma once
// Turns a language model's graph into one for embeddings: the output is the hidden rows that the LM head would
// multiply, instead of logits. run_pipeline calls it for PipelineOptions::hidden.

#include <string_view>

#include "ir/graph.h"

namespace forge::passes {

/// Returns the portable `graph` with the output "hidden" [R, width], the rows of the final norm, in place of "logits".
/// The head is left unused, and eliminate_dead_nodes removes it. Errors: kModelUnsupported if the logits do not come
/// from a matmul.
ir::Graph output_hidden_rows(ir::Graph graph);

/// True if the graph's output is hidden rows already: the graph of an encoder, all of whose tokens must be in one step.
bool is_encoder(const ir::Graph& graph);

}  // namespace forge::passes

#pragma once
// The graph passes, one file each, named like the pass; what each does stands in its file. And what they share.

#include <string_view>
#include <vector>

#include "passes/pass.h"

namespace forge::passes {

bool choose_rope_factors(ir::Graph& graph, PassContext& context);
bool canonicalise(ir::Graph& graph, PassContext& context);
bool fold_constants(ir::Graph& graph, PassContext& context);
bool eliminate_common_subexpressions(ir::Graph& graph, PassContext& context);
bool eliminate_dead_nodes(ir::Graph& graph, PassContext& context);
bool merge_qkv(ir::Graph& graph, PassContext& context);
bool merge_gate_up(ir::Graph& graph, PassContext& context);
bool split_rms_norm(ir::Graph& graph, PassContext& context);
bool quantize_activations(ir::Graph& graph, PassContext& context);
bool fuse_qkv(ir::Graph& graph, PassContext& context);
bool fuse_glu(ir::Graph& graph, PassContext& context);
bool fuse_attention(ir::Graph& graph, PassContext& context);
bool fuse_epilogues(ir::Graph& graph, PassContext& context);

/// Leaves "pass: layer 3: op: reason" in the context's notes.
void note(PassContext& context, std::string_view pass, const ir::Graph& graph, ir::NodeId node,
          std::string_view reason);

/// The only user of a value, or kNoNode when it has none, several, or is an output of the graph.
ir::NodeId single_user(const ir::Graph& graph, ir::Value value);

/// Does a step compute the node? Not so inputs, weights, constants and states, nor what is cut out of weights or put
/// together of them at load time.
bool runs_in_step(const ir::Graph& graph, ir::NodeId node);

/// Is it a matmul: by one weight for all rows, by the chosen experts', or by one for each batch?
bool is_matmul(ir::Op op);
bool is_matmul(const ir::Graph& graph, ir::NodeId node);

/// Is the value read from the model file (possibly cut or concatenated when it is loaded)?
bool is_weight(const ir::Graph& graph, ir::Value value);

/// Removes the node, and whatever only it used.
void remove_with_unused_operands(ir::Graph& graph, ir::NodeId node);

}  // namespace forge::passes

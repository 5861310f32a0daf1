#pragma once
// The graph passes and their common helpers. Each pass is in the file of its name, whose first lines describe it. They
// all follow one pattern: guards first, each with its reason as a note, then one replacement.

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
bool split_kv_store(ir::Graph& graph, PassContext& context);
bool rotate_keys(ir::Graph& graph, PassContext& context);
bool split_rms_norm(ir::Graph& graph, PassContext& context);
bool quantize_activations(ir::Graph& graph, PassContext& context);
bool fuse_qkv(ir::Graph& graph, PassContext& context);
bool fuse_glu(ir::Graph& graph, PassContext& context);
bool fuse_attention(ir::Graph& graph, PassContext& context);
bool fuse_epilogues(ir::Graph& graph, PassContext& context);

/// Adds "pass: layer 3: op: reason" to the context's notes: why the pass left this node alone.
void note(PassContext& context, std::string_view pass, const ir::Graph& graph, ir::NodeId node,
          std::string_view reason);

/// The user of a value with exactly one use; kNoNode if it has no use, several, or is an output of the graph.
ir::NodeId single_user(const ir::Graph& graph, ir::Value value);

/// True if the node is computed in the forward step. False for inputs, weights, constants and states, and for
/// concat_rows and slice_rows, which run at load time.
bool runs_in_step(const ir::Graph& graph, ir::NodeId node);

/// True for kMatmul, kExpertMatmul and kBatchedMatmul.
bool is_matmul(ir::Op op);
bool is_matmul(const ir::Graph& graph, ir::NodeId node);

/// Ops that may stand between the matmul that makes q, k or v and kv_store or attention.
bool is_qkv_op(ir::Op op);

/// The nodes from whose results a router or select_keys chooses, indexed by id. A choice is not continuous: where two
/// experts are nearly equal, rounding decides which of them runs, and the results differ by a whole expert.
std::vector<bool> nodes_before_choices(const ir::Graph& graph);

/// True if the value is a weight of the model file, or made of such weights at load time.
bool is_weight(const ir::Graph& graph, ir::Value value);

/// Removes the node if it has no users, then its operands that have none left, and so on.
void remove_with_unused_operands(ir::Graph& graph, ir::NodeId node);

}  // namespace forge::passes

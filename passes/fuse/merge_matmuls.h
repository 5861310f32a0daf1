#pragma once
// Merging matmuls of the same x into one, for merge_qkv and merge_gate_up. The weights are concatenated at load time; x
// is read once, and one larger kernel keeps all threads busy:
//   q = x . Wq^T, k = x . Wk^T, v = x . Wv^T    =>    q, k, v = split(x . [Wq; Wk; Wv]^T)

#include <span>
#include <string>
#include <string_view>

#include "passes/passes.h"

namespace forge::passes {

/// A matmul and the bias that is added to it, if there is one and nothing else uses the matmul.
struct Projection {
  ir::NodeId matmul = ir::kNoNode;
  ir::NodeId bias = ir::kNoNode;  ///< the kAdd or kExpertAdd; kNoNode: no bias

  /// The value that users read: the sum with the bias, or the product.
  [[nodiscard]] ir::Value result() const { return {bias != ir::kNoNode ? bias : matmul, 0}; }
};

/// The matmul with its bias. Precondition: is_matmul(graph, matmul).
Projection projection_of(const ir::Graph& graph, ir::NodeId matmul);

/// Why these cannot be merged; empty if they can. They must have the same x (and, for expert matmuls, the same experts)
/// and weights of one element type, each a tensor of the model file or rows of one, without other users.
std::string merge_refusal(const ir::Graph& graph, std::span<const Projection> projections);

/// Replaces the projections by one concat_rows, one matmul, one bias if all have one, and one split; `unit` is the
/// interleave of PartsAttrs. Precondition: merge_refusal() is empty.
void merge_matmuls(ir::Graph& graph, std::span<const Projection> projections, std::int64_t unit);

}  // namespace forge::passes

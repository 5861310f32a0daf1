#pragma once
// Matmuls of the same x become one, with one weight made of theirs at load time: x is read once, and one kernel keeps
// all threads busy. Shared by merge_qkv and merge_gate_up.

#include <span>
#include <string>
#include <string_view>

#include "passes/passes.h"

namespace forge::passes {

/// A matmul and, where nothing else uses its result, the bias that is added to it.
struct Projection {
  ir::NodeId matmul = ir::kNoNode;
  ir::NodeId bias = ir::kNoNode;  ///< the kAdd or kExpertAdd, or kNoNode

  /// What users see.
  [[nodiscard]] ir::Value result() const { return {bias != ir::kNoNode ? bias : matmul, 0}; }
};

/// Precondition: `matmul` is a matmul (is_matmul).
Projection projection_of(const ir::Graph& graph, ir::NodeId matmul);

/// Why these cannot be merged; empty when they can: all kMatmul or all kExpertMatmul of the same experts, the same x,
/// plain weights of one type and K, used by nobody else.
std::string refuses_merge(const ir::Graph& graph, std::span<const Projection> projections);

/// One concat_rows, one matmul, one bias where all have one, one split; `unit` as in PartsAttrs.
/// Precondition: refuses_merge says nothing.
void merge_matmuls(ir::Graph& graph, std::span<const Projection> projections, std::int64_t unit);

}  // namespace forge::passes

#pragma once
// The matmul of a step, and in which type the rows that matmuls read are stored in a variant: where matrix
// instructions multiply them, their producer stores the 16-bit numbers that tiles take.

#include <optional>
#include <span>
#include <string_view>

#include "codegen/gpu/matmul_config.h"
#include "codegen/gpu/row_norm.h"
#include "passes/target.h"

namespace forge::codegen {

/// A matmul with the part of its step that its own kernel does.
struct MatmulDraft {
  TileDraft draft;
  EpilogueShape shape;
};
/// The matmul of a group of nodes, in topological order; nothing if it has none.
std::optional<MatmulDraft> matmul_of(const ir::Graph& graph, std::span<const ir::NodeId> nodes, const KvFormat& kv);

/// A matmul's weight [experts][heads * columns][k].
struct MatmulWeight {
  ir::Value value;
  DType dtype = DType::kF32;
  std::int64_t experts = 0, heads = 1, columns = 0, k = 0;
};
MatmulWeight weight_of(const ir::Graph& graph, ir::NodeId matmul);

/// The configuration of a step with matrix instructions; nothing if it is not for many tokens, or they cannot do it.
std::optional<TilesConfig> tiles_of(const GpuTarget& target, const Tuning& tuning, const ir::Graph& graph,
                                    const MatmulDraft& matmul, const ir::Bounds& bounds);

/// The type of the numbers that tiles multiply with such a weight, as rows of x are stored. activation: the graph's.
DType tile_rows_type(const GpuTarget& target, DType weight, DType activation);
/// The tile type (kernels/gpu/matrix_tile.h) for such rows.
std::string_view tile_name(DType rows);

/// As passes::Target::stored_forms.
passes::StoredForms stored_rows(const GpuTarget& target, const Tuning& tuning, const ir::Graph& graph,
                                std::span<const std::vector<ir::NodeId>> steps, const ir::Bounds& bounds,
                                const KvFormat& kv);

}  // namespace forge::codegen

#pragma once
// Is a group of nodes one tile program, and which? A tile program has one source (a matmul, the experts' matmuls,
// embedding rows, gathered rows or loaded rows), keeps one current tile of columns and runs transforms and sinks on it.
// Drafting answers both questions that the CPU target is asked: may these nodes be fused, and what do they become.

#include <cstdint>
#include <expected>
#include <span>
#include <string>
#include <vector>

#include "ir/graph.h"
#include "ir/op.h"
#include "kernels/quant/dtype.h"
#include "runtime/plan/tile_ops.h"

namespace forge::codegen {

/// Columns that tiles make together where they are quantised or their squares are summed, and of which rows that are
/// quantised are a multiple: whole blocks of every type.
inline constexpr std::int64_t kActivationUnit = 32;
static_assert(kActivationUnit % dtype_info(DType::kQ8A_32).block_elems == 0 &&
              kActivationUnit % dtype_info(DType::kQ8A_16).block_elems == 0 && kActivationUnit % ir::kSquareBlock == 0);

struct DraftOp {
  plan::TileOpKind kind = plan::TileOpKind::kLoad;
  ir::NodeId node = ir::kNoNode;  ///< whose attributes apply
  ir::Value operand;              ///< the memory operand: vector, tensor, squares, table; for sinks what is written
  std::int64_t origin = 0;        ///< column of the source at which the operand's column 0 lies
};

/// Columns [begin, end) of the source that run the same ops. Tiles never cross its borders.
struct DraftSection {
  std::int64_t begin = 0, end = 0;
  std::int64_t unit = 1;  ///< tile widths are multiples of it (heads, quantised blocks, gate/up pairs)
  std::vector<DraftOp> ops;
};

struct TileDraft {
  /// kMatmul, kExpertMatmul, kBatchedMatmul, kExpertSum, kEmbed or kGatherRows; kNoNode: `input` is loaded
  ir::NodeId source = ir::kNoNode;
  ir::Value input;         ///< the rows that are loaded; for a matmul its x
  ir::Dim rows;            ///< T or R
  std::int64_t slots = 1;  ///< what the source makes of each row: one for each of its experts in [T, U, N]
  std::int64_t cols = 0;
  std::vector<DraftSection> sections;

  [[nodiscard]] std::string label(const ir::Graph& graph) const;
};

/// The draft, or the reason why the members are not one tile program. members: in topological order.
std::expected<TileDraft, std::string> draft_tile_program(const ir::Graph& graph, std::span<const ir::NodeId> members);

/// Is the node a kernel of its own on every target, not part of a tile program?
bool stands_alone(const ir::Graph& graph, ir::NodeId node);

/// Does the step of an attention, alone or with the quantize of its rows behind it, write the rows as f32 too?
bool stores_attention(const ir::Graph& graph, std::span<const ir::NodeId> nodes);

/// The KV state behind a state value: that of a store is the one that it stores into.
const ir::KvStateAttrs& kv_state_of(const ir::Graph& graph, ir::Value state);

/// Rows of a concatenated weight after which parts begin in packed memory (each part starts at a group of 16 rows);
/// one part for a plain weight or an interleaved one. For experts' weights: of each expert.
std::vector<std::int64_t> weight_part_rows(const ir::Graph& graph, ir::Value weight);

}  // namespace forge::codegen

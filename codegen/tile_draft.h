#pragma once
// Tile programs: the form of all fused steps of both back-ends. A tile program has one source (a matmul, experts'
// matmuls, embedding rows, gathered rows or loaded rows), which produces a tile of columns, and a list of operations on
// that tile: transforms (norm, RoPE, elementwise functions, ...) and sinks (store, quantise, KV store, ...). On a
// merged weight, such as QKV, ranges of columns ("sections") run different operations:
//
//   source: matmul by the merged weight [q | k | v]
//   section q: inv_rms, rope, store        section k: inv_rms, rope, store_k       section v: inv_rms, store_v
//
// Drafting tries to make a tile program of a group of nodes. It serves both for deciding whether the nodes may be fused
// (Target::group_refusal) and for choosing their step (Target::choose).

#include <cstdint>
#include <expected>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "ir/graph.h"
#include "ir/op.h"
#include "kernels/quant/dtype.h"
#include "runtime/plan/tile_ops.h"

namespace forge::codegen {

/// Tiles whose columns are quantised, or whose squares are summed, are a multiple of this many columns wide, and so are
/// quantised rows: a multiple of the blocks of all types of quantised activations.
inline constexpr std::int64_t kActivationUnit = 32;
static_assert(kActivationUnit % dtype_info(DType::kQ8A_32).block_elems == 0 &&
              kActivationUnit % dtype_info(DType::kQ8A_16).block_elems == 0 &&
              kActivationUnit % ir::kSumSquaresBlock == 0);

/// One operation on the tile.
struct DraftOp {
  plan::TileOpKind kind = plan::TileOpKind::kLoad;
  ir::NodeId node = ir::kNoNode;  ///< the node whose attributes apply
  ir::Value operand;              ///< what it reads (vector, tensor, squares, RoPE table) or, if a sink, writes
  std::int64_t origin = 0;        ///< source column that corresponds to the operand's column 0
  bool gated = false;             ///< kBinary: the operand is the function's first argument, and the tile its second
  /// A value that several operations continue (DraftRules::branches): the first of them keeps the tile under a number,
  /// the others start from what has been kept. -1: not so.
  int keeps = -1, from = -1;
  bool operator==(const DraftOp&) const = default;
};

/// Columns [begin, end) of the source, which run the same operations. Tiles never cross a section's borders.
struct DraftSection {
  std::int64_t begin = 0, end = 0;
  std::int64_t unit = 1;  ///< tile widths must be multiples of it (heads, quantised blocks, gate/up pairs)
  std::vector<DraftOp> ops;
};

struct TileDraft {
  /// A kMatmul, kExpertMatmul, kBatchedMatmul, kExpertSum, kEmbed or kGatherRows node; kNoNode if `input` is just
  /// loaded.
  ir::NodeId source = ir::kNoNode;
  ir::Value input;         ///< the source's rows; the ids of embeddings; x of a matmul
  ir::Dim rows;            ///< the row dimension: T (tokens) or R (rows of logits)
  std::int64_t slots = 1;  ///< rows that the source makes of each row: U for [T, U, N], one for each expert of a token
  std::int64_t cols = 0;   ///< columns of the source's output
  std::vector<DraftSection> sections;  ///< in ascending order of columns

  /// A short description for plans and dumps: "matmul q8_0 2048x2048 + inv_rms + rope".
  [[nodiscard]] std::string label(const ir::Graph& graph) const;
};

/// What a back-end's tile programs may have besides what all have.
struct DraftRules {
  bool row_norms = false;  ///< norms may follow a matmul whatever their length; else only norms of heads may
  bool branches = false;   ///< several chains of operations may continue a value, such as copies of a row times weights
  bool one_row = false;    ///< the step has one token and at most one row of it, so gather_rows is the identity
};

/// The draft, or the reason why the members do not form a tile program. members: in topological order.
std::expected<TileDraft, std::string> draft_tile_program(const ir::Graph& graph, std::span<const ir::NodeId> members,
                                                         const DraftRules& rules = {});

/// True if a step of this node alone is a kernel of its own, on every target, and not a tile program.
bool stands_alone(const ir::Graph& graph, ir::NodeId node);

/// True if an attention step must write its result in f32. nodes: the attention, and optionally the quantize of its
/// result, in which case f32 is only needed if something else reads the result.
bool stores_attention(const ir::Graph& graph, std::span<const ir::NodeId> nodes);

/// True for an operand [1] of an elementwise op: one number for all elements.
bool is_one_number(const ir::TensorType& type);

/// The attributes of the KV state that a state value belongs to, through any number of KV stores.
const ir::KvStateAttrs& kv_state_of(const ir::Graph& graph, ir::Value state);

/// The attributes of the recurrent state that a node updates, through any number of layers before it.
const ir::RecurrentStateAttrs& recurrent_state_of(const ir::Graph& graph, ir::NodeId node);

/// Rows of the state that an op with recurrent state has for each head; 0 for other ops.
std::int64_t state_rows_of(const ir::Graph& graph, ir::NodeId node);

/// Why these nodes are not a convolution step; nothing if they are: the convolution, and optionally an activation with
/// at most `parameters_max` parameters of its result.
std::optional<std::string> refuses_conv(const ir::Graph& graph, std::span<const ir::NodeId> members,
                                        std::size_t parameters_max);

/// Rows of each part of a weight: the parts of a concatenated weight, each of which starts at a group of 16 packed
/// rows; one part for a plain or an interleaved weight. For experts' weights: the rows of one expert.
std::vector<std::int64_t> weight_part_rows(const ir::Graph& graph, ir::Value weight);

}  // namespace forge::codegen

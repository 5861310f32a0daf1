#pragma once
// The instruction set of tile programs: what a CPU step does to a tile of float columns that it keeps in registers and
// L1. A step with kernel "tile" has one source, then transforms and sinks in order, all on one current tile
// [tokens, width]. codegen/cpu writes it, runtime/cpu checks and runs it; the numbers are part of the plan format.

#include <cstdint>

namespace forge::plan {

inline constexpr std::uint32_t kPlanVersion = 6;

enum class TileOpKind : std::uint16_t {
  // sources: first op of a step
  kMatmul = 1,  ///< refs x, weights (of this column section); ints dtype, k, x_row_bytes; x is q8a or f32 rows
  kEmbed = 2,   ///< refs table, ids; ints dtype, layout, k, rows
  kLoad = 3,    ///< refs x; ints row_floats
  kGather = 4,  ///< refs x, row indices; ints row_floats
  /// A step with kernel "experts": rows of its ops are slots, `used` a token, until kSumExperts makes them tokens.
  /// refs x, weights (of this column section, of expert 0), experts i32 [T, used]; ints dtype, k, x_row_bytes, unit,
  /// experts, used, bytes from expert to expert, 1 where all slots of a token share its row of x
  kExpertMatmul = 5,
  kExpertRows = 6,  ///< refs x (rows are slots), shares f32 [T, used]; ints row_floats, used: sums of share * x
  // transforms
  kInvRms = 16,           ///< refs squares; ints count a row, dim, rows (slots) a row of squares; floats eps
  kAddVector = 17,        ///< refs vector f32, indexed by column - column_begin
  kMulVector = 18,        ///< refs vector f32
  kAddTensor = 19,        ///< refs f32 rows; ints row_floats
  kMulTensor = 20,        ///< refs f32 rows; ints row_floats
  kScale = 21,            ///< floats factor
  kGlu = 22,              ///< ints activation, unit: pairs of `unit` gate and `unit` up columns become `unit` columns
  kGluTensor = 23,        ///< refs up f32 rows; ints activation, row_floats: act(tile) * up
  kRope = 24,             ///< refs table; ints head_dim, rotary_dims, mode
  kAddExpertVector = 25,  ///< refs vectors f32 [experts, width], experts i32 [T, used]; ints vector_floats, experts
  kSumExperts = 26,       ///< refs shares f32 [T, used]: sums of share * slot, by expert number
  kActivate = 27,         ///< ints activation
  kSoftcap = 28,          ///< floats cap: cap * tanh(tile / cap)
  kRmsNorm = 29,    ///< refs weight [dim]; ints dim; floats eps: each run of dim columns; the unit holds whole runs
  kLayerNorm = 30,  ///< refs weight, [bias alike]; ints dim, 1: weight [dim], 0: by column; floats eps
  // sinks: the tile stays as it is
  kStore = 32,       ///< refs f32 rows; ints row_floats
  kSumSquares = 33,  ///< refs f32 [rows, blocks of 16 columns]; ints blocks a row
  kQuantize = 34,    ///< refs q8a rows; ints cols
  kStoreK = 35,      ///< refs kv group (offset: layer), positions, sequence, block table; ints kv_heads, head_dim
  kStoreV = 36,      ///< the same
};

}  // namespace forge::plan

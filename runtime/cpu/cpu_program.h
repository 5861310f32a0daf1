#pragma once
// A plan's CPU program with every address resolved and every number checked: what the executor replays. After decoding
// nothing of the plan is trusted or looked at again.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "kernels/cpu/kernels.h"
#include "kernels/cpu/route.h"
#include "runtime/plan/plan_generated.h"
#include "runtime/plan/tile_ops.h"

namespace forge::runtime {

/// The memory that refs point into; sizes in bytes.
struct Blocks {
  struct Block {
    std::byte* data = nullptr;
    std::size_t bytes = 0;
  };
  Block arena, weights, constants, output;
  std::vector<Block> files;  ///< of the model, where they lie in memory
  struct KvPool {
    std::byte* data = nullptr;     ///< [blocks][layers] of block_bytes
    std::size_t block_stride = 0;  ///< bytes of one block over all layers
  };
  std::vector<KvPool> kv;  ///< of each group
};

/// i32 inputs of the step, at fixed addresses with room for the largest variant.
struct StepIo {
  std::vector<std::int32_t> ids, positions, sequence, rows, kv_length, block_table;
  std::vector<std::uint8_t> prompt;                ///< [T]: 1 for a token of a prompt
  std::size_t table_stride = 0, group_stride = 0;  ///< entries that a sequence and a KV group have in block_table
  std::vector<std::int32_t> block, slot;           ///< [KV groups][T], [T]: where K and V go; derived from the others
  std::size_t tokens = 0, row_count = 0, sequences = 0;  ///< the real counts of this step
};

enum class StepKind : std::uint8_t {
  kTile,
  kExperts,
  kAttention,
  kRoute,
  kRmsNorm,
  kRopeFreqs,
  kRopeTable,
  kSplit,
  kArrange
};

/// A tile op with pointers. Which members count depends on the kind; strides are in floats unless they say bytes.
struct TileInstr {
  plan::TileOpKind kind = plan::TileOpKind::kLoad;
  std::byte* a = nullptr;
  const std::byte* b = nullptr;
  cpu::MatmulFn matmul = nullptr, prompt_matmul = nullptr;  ///< of a row; of a prompt's
  DType dtype{};
  bool packed = false;  ///< embedding table in x16
  std::size_t k = 0, stride = 0, x_row_bytes = 0, group_bytes = 0, count = 0, head_dim = 0, rotary = 0, block = 0,
              table_rows = 0;
  cpu::RopeMode rope_mode{};
  bool shared = false;                   ///< all runs of a norm have the same weight
  cpu::UnaryFn unary = nullptr;          ///< of kUnary
  cpu::BinaryFn binary = nullptr;        ///< of kBinary, whose stride is 0 where its operand is one row, and kPairs
  elementwise::Parameters parameters{};  ///< of both
  float eps = 0;
  // experts
  std::size_t slots = 1;  ///< of a token; kInvRms: rows that share a row of squares
  std::size_t experts = 0, expert_bytes = 0;
  bool shared_x = false;
  const std::int32_t* chosen = nullptr;  ///< [tokens, slots]; what is no expert's number is passed over
  const float* shares = nullptr;         ///< [tokens, slots]
  // KV stores
  decltype(cpu::Kernels::store_kv_rows) store_kv = nullptr;
  std::size_t kv_group = 0, kv_offset = 0;  ///< where the section's first head begins in a block of the group
};

struct TileSection {
  std::size_t begin = 0, end = 0;  ///< columns
  std::size_t unit = 1;            ///< columns that must stay together in a tile
  std::size_t tile_width = 0, tile_tokens = 0;
  std::vector<TileInstr> ops;  ///< the source first
  std::size_t sum_at = 0;      ///< of experts: the kSumExperts among them; 0: none
};

/// Columns [begin, end) of section `section`, counted from its first.
struct TilePiece {
  std::size_t section = 0, begin = 0, end = 0;
};

struct AttentionStep {
  cpu::AttentionParams params{};  ///< pool and block_stride set; table and length come with the step
  std::size_t kv_group = 0;
  const float* q = nullptr;
  std::size_t q_stride = 0;
  const float* sinks = nullptr;  ///< [heads]
  float* partials = nullptr;
  std::size_t split_tokens = 0, chunks_max = 0;
  std::vector<TileInstr> ops;  ///< store and quantize
};

struct RowStep {  ///< rms_norm, rope tables, interleaved splits
  const std::byte* a = nullptr;
  const std::byte* b = nullptr;
  std::byte* out = nullptr;
  std::byte* out2 = nullptr;
  std::size_t cols = 0, a_stride = 0, out_stride = 0, out2_stride = 0, unit = 0, dim = 0;
  float eps = 0;
  cpu::RopeMagnitude magnitude;
  cpu::RopeParams rope;
};

struct RouteStep {
  cpu::RouteParams params;
  const float* logits = nullptr;
  std::size_t stride = 0;
  std::int32_t* experts = nullptr;  ///< [tokens, used]
  float* shares = nullptr;
};

/// Columns picked head by head (ir::ArrangeAttrs).
struct ArrangeStep {
  struct Piece {
    const float* from = nullptr;  ///< row 0, head 0; nullptr: zeros
    std::size_t row_floats = 0, head_floats = 0, width = 0;
  };
  std::vector<Piece> pieces;
  std::size_t heads = 0, out_stride = 0;
  float* out = nullptr;
};

struct CpuStep {
  StepKind kind{};
  bool rows_are_logits = false;  ///< counts R rows, not T tokens
  std::size_t slots = 1;         ///< rows that each of these has in the step
  std::string label;
  std::int32_t layer = -1;
  std::int64_t weight_bytes = 0, activation_bytes = 0, flops = 0;
  std::vector<TileSection> sections;
  std::vector<TilePiece> pieces;  ///< what a step of few rows is cut into (column_split.h)
  AttentionStep attention;
  RouteStep route;
  RowStep row;
  ArrangeStep arrange;
};

struct CpuVariant {
  std::string name;
  std::size_t tokens = 0, rows = 0, sequences = 0, table_blocks = 0;
  std::size_t hidden_width = 0;  ///< of the rows that leave; 0: logits do
  std::vector<CpuStep> steps;
};

/// Floats of scratch that one worker needs for the largest tile or attention tile of the program.
inline constexpr std::size_t kTileFloats = 64 * 1024;
/// From row to row of a tile; kernels write whole groups of 16 columns.
constexpr std::size_t tile_stride(std::size_t width) {
  return (width + 15) / 16 * 16;
}
/// Rows of a tile, as many as a worker's scratch holds and at most `rows`. width <= kTileFloats.
constexpr std::size_t tile_rows(std::size_t width, std::size_t rows) {
  return std::clamp<std::size_t>(kTileFloats / tile_stride(width), 1, rows);
}
inline constexpr std::size_t kTileTokens = 256;      ///< the most that tile_size gives
inline constexpr std::size_t kSumTokens = 512;       ///< tokens whose experts are added up together
inline constexpr std::size_t kAttentionTokens = 16;  ///< queries of one attention tile

/// Columns and tokens of a task of many rows, at most. What is done once a task (a strip of weights unpacked for its
/// tokens, rows of x gathered for its columns) costs a tenth of the products and more, so tasks are large: 512 columns
/// instead of 128 are 6 % more of a prefill on Zen 5, 9 % with AMX, and 64 tokens instead of 48 another 3 to 8 % of a
/// 1B shape's. Where tiles multiply, products are cheaper beside the unpacking, and more tokens pay, with fewer
/// columns: the results lie in L2 meanwhile.
struct TileSize {
  std::size_t columns, tokens;
};
constexpr TileSize tile_size(cpu::CpuClass cpu_class) {
  if (cpu_class == cpu::CpuClass::kAvx512VnniAmx) return {.columns = 256, .tokens = kTileTokens};
  return {.columns = 512, .tokens = 64};
}

/// What a KV group's blocks hold. Throws Error(kPlan) when the group's geometry is broken.
cpu::KvShape kv_shape_of(const plan::KvGroup& group);

/// Decodes and checks one variant. Throws Error(kPlan) naming the step for a reference outside its block, an unknown
/// kernel or op, or numbers that do not fit together.
CpuVariant decode_variant(const plan::VariantT& variant, const plan::ProgramT& program, const Blocks& blocks,
                          StepIo& io, const cpu::Kernels& kernels);

}  // namespace forge::runtime

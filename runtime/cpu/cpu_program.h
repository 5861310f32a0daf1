#pragma once
// The decoded CPU program of a plan: every step with resolved addresses and checked numbers. CpuExecutor replays it.
// Decoding (decode_variant) is the trust boundary: after it, nothing of the plan is read again.

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

/// The memory blocks that a plan's operands refer to; sizes in bytes. The executor owns them.
struct Blocks {
  struct Block {
    std::byte* data = nullptr;
    std::size_t bytes = 0;
  };
  Block arena, weights, constants, output;
  std::vector<Block> files;  ///< the model's files in memory
  struct KvPool {
    std::byte* data = nullptr;     ///< [blocks][layers], block_bytes each
    std::size_t block_stride = 0;  ///< bytes of one block over all layers
  };
  std::vector<KvPool> kv;  ///< per KV group
  /// The recurrent states of a group: [slots][layers], layer_bytes each.
  struct StatePool {
    std::byte* data = nullptr;
    std::size_t layer_bytes = 0, slot_bytes = 0;
  };
  std::vector<StatePool> recurrent;  ///< per recurrent group
};

/// The inputs of one forward, filled from a StepBatch. Vectors keep fixed addresses, because decoded steps point into
/// them; they have room for the largest variant.
struct StepIo {
  std::vector<std::int32_t> ids, positions, sequence, rows, kv_length, block_table;
  std::vector<std::uint8_t> prompt;                      ///< [T]: 1: the token uses prompt_matmul (StepBatch::prompt)
  std::size_t table_stride = 0, group_stride = 0;        ///< entries of block_table per sequence and per KV group
  std::vector<std::int32_t> block, slot;                 ///< [KV groups][T], [T]: where each token's K and V are stored
  std::vector<std::int32_t> state_read, state_write;     ///< [B]: slots of recurrent state (StepBatch)
  std::size_t tokens = 0, row_count = 0, sequences = 0;  ///< actual counts of this forward
};

/// What a step does; selects the run function and which member of CpuStep is used.
enum class StepKind : std::uint8_t {
  kTile,
  kExperts,
  kAttention,
  kRoute,
  kRmsNorm,
  kMatchRms,
  kGaussianTopk,
  kRopeFreqs,
  kRopeTable,
  kSplit,
  kArrange,
  kSelfAttention,
  kSelectKeys,
  kRecurrent
};

/// A tile op with resolved pointers. Which members are used depends on the kind. Strides are in floats unless their
/// name says bytes.
struct TileInstr {
  plan::TileOpKind kind = plan::TileOpKind::kLoad;
  std::byte* a = nullptr;
  const std::byte* b = nullptr;
  cpu::MatmulFn matmul = nullptr, prompt_matmul = nullptr;  ///< for all rows; for tokens of long prompts
  DType dtype{};
  bool packed = false;  ///< kEmbed: the table is in layout x16
  std::size_t k = 0, stride = 0, x_row_bytes = 0, group_bytes = 0, count = 0, head_dim = 0, rotary = 0, block = 0,
              table_rows = 0;
  cpu::RopeMode rope_mode{};
  bool shared = false;                   ///< norms: all heads have the same weight
  bool single = false;                   ///< kBinary: the operand is one number
  cpu::UnaryFn unary = nullptr;          ///< kUnary
  cpu::BinaryFn binary = nullptr;        ///< kBinary (stride 0: the operand is one row for all), kPairs
  elementwise::Parameters parameters{};  ///< of unary and binary
  float eps = 0;
  // MoE
  std::size_t slots = 1;  ///< slots per token; kInvRms: rows that share one row of squares
  std::size_t experts = 0, expert_bytes = 0;
  bool shared_x = false;
  const std::int32_t* chosen = nullptr;  ///< [tokens, slots] expert numbers; invalid ones are skipped
  const float* shares = nullptr;         ///< [tokens, slots] expert weights
  std::size_t share_stride = 0;          ///< kExpertRows: from token to token
  // KV stores
  decltype(cpu::Kernels::store_kv_rows) store_kv = nullptr;
  std::size_t kv_group = 0, kv_offset = 0;  ///< byte offset of the section's first head in a block of the group
};

/// Columns [begin, end) of a tile step with the ops that they run. Tiles of tile_width columns by tile_tokens rows are
/// filled by the source (ops[0]) and then processed by the other ops in the CPU's caches.
struct TileSection {
  std::size_t begin = 0, end = 0;  ///< columns
  std::size_t unit = 1;            ///< tiles are whole multiples of this many columns
  std::size_t tile_width = 0, tile_tokens = 0;
  std::vector<TileInstr> ops;  ///< the source comes first
  std::size_t sum_at = 0;      ///< kExperts: index of kSumExperts in ops; 0: none
};

/// Columns [begin, end) of section `section`, counted from the section's first column.
struct TilePiece {
  std::size_t section = 0, begin = 0, end = 0;
};

/// An attention step. Up to split_tokens tokens have their KV split into chunks that threads share (flash decoding);
/// more tokens are processed in query tiles.
struct AttentionStep {
  cpu::AttentionParams params{};  ///< without block table and length, which come with each forward
  std::size_t kv_group = 0;
  const float* q = nullptr;
  std::size_t q_stride = 0;
  const float* sinks = nullptr;            ///< [heads]
  std::vector<float> slopes;               ///< ALiBi, [heads]; empty: none
  const std::int32_t* selected = nullptr;  ///< sparse attention: [T] rows of `lists` lists (AttentionQuery::selected)
  std::size_t selected_stride = 0, selected_count = 0, selected_block = 1, lists = 1;
  float* partials = nullptr;
  std::size_t split_tokens = 0, chunks_max = 0;
  std::vector<TileInstr> ops;  ///< epilogue: store and quantise
};

/// Attention of encoders: keys and values of the step's tokens are packed into `cache`, then each token attends to
/// those of its sequence.
struct SelfAttentionStep {
  cpu::AttentionParams params{};  ///< without pool, block table and length, which come with each sequence
  cpu::ConstTile q{nullptr, 0, 0, 0}, k{nullptr, 0, 0, 0}, v{nullptr, 0, 0, 0};
  std::int32_t reach = -1;    ///< tokens to both sides that a token sees; -1: all
  std::vector<float> slopes;  ///< ALiBi's of each head; empty: none
  std::byte* cache = nullptr;
  float* out = nullptr;
  std::size_t out_stride = 0;
};

/// The choice of keys for sparse attention. Scores of `together` tokens fit the scratch,
/// [together][lists][2][positions]: a list's scores, and room for choosing among them.
struct SelectKeysStep {
  cpu::ScoreKeysCall call{};  ///< without block table, positions and scratch; q and weights of token 0
  cpu::KeyChoice choice;
  std::size_t kv_group = 0, q_stride = 0, weights_stride = 0;
  std::size_t lists = 1, together = 1, positions = 0;
  float* scores = nullptr;
  std::int32_t* out = nullptr;  ///< [T], rows of lists * top_k
  std::size_t out_stride = 0;
};

/// A step on whole rows: RMS norm (a, b = weight), match_rms (a, b = rows to be like), gaussian_topk, RoPE frequencies
/// and tables, or the split of interleaved halves.
struct RowStep {
  const std::byte* a = nullptr;
  const std::byte* b = nullptr;
  std::byte* out = nullptr;
  std::byte* out2 = nullptr;
  std::size_t cols = 0, a_stride = 0, b_stride = 0, out_stride = 0, out2_stride = 0, unit = 0, dim = 0;
  float eps = 0, cutoff = 0;
  cpu::RopeMagnitude magnitude;
  cpu::RopeParams rope;
};

/// MoE routing: selects the experts of each token.
struct RouteStep {
  cpu::RouteParams params;
  const float* logits = nullptr;
  std::size_t stride = 0;
  std::int32_t* experts = nullptr;  ///< [tokens, used]
  float* shares = nullptr;
};

/// Builds rows head by head from column ranges of other rows (ir::ArrangeAttrs).
struct ArrangeStep {
  struct Piece {
    const float* from = nullptr;  ///< source of row 0, head 0; nullptr: zeros
    std::size_t row_floats = 0, head_floats = 0, width = 0;
  };
  std::vector<Piece> pieces;
  std::size_t heads = 0, out_stride = 0;
  float* out = nullptr;
};

/// A step with recurrent state: which kernel, and its arguments for row 0 and column 0. A task has one sequence's run
/// of tokens and some of its columns.
struct RecurrentStep {
  enum class Kind : std::uint8_t { kShortConv, kDeltaRule, kScanHead, kScanChannels, kRwkv7 };
  Kind kind{};
  std::size_t group = 0, layer_offset = 0;  ///< the state: its recurrent group, and bytes to its layer in a slot
  /// Heads are computed apart from each other: head h has rows [h * rows, (h + 1) * rows) of the state, `columns` wide,
  /// and reads key head h / shared, or h % key_heads if `interleaved`.
  std::size_t heads = 1, key_heads = 1, rows = 0, columns = 0;
  bool interleaved = false;
  cpu::ShortConvCall conv;
  cpu::UnaryFn activation = nullptr;  ///< kShortConv: applied to the result; nullptr: none
  cpu::DeltaRuleCall delta;
  cpu::SelectiveScanCall scan;
  cpu::Rwkv7Call rwkv;
};

/// One step. `kind` selects which of the members at the end are used.
struct CpuStep {
  StepKind kind{};
  bool rows_are_logits = false;  ///< runs on the R rows whose logits are wanted, not on the T tokens
  std::size_t slots = 1;         ///< rows of the step per token (MoE: one per selected expert)
  std::string label;
  std::int32_t layer = -1;
  std::int64_t weight_bytes = 0, activation_bytes = 0, flops = 0;
  std::vector<TileSection> sections;
  std::vector<TilePiece> pieces;  ///< tasks of a step with few rows (column_split.h)
  AttentionStep attention;
  RouteStep route;
  RowStep row;
  ArrangeStep arrange;
  RecurrentStep recurrent;
  SelfAttentionStep self_attention;
  SelectKeysStep select_keys;
};

/// One variant of the program: its bounds and its steps in order.
struct CpuVariant {
  std::string name;
  std::size_t tokens = 0, rows = 0, sequences = 0, table_blocks = 0;
  std::size_t hidden_width = 0;  ///< width of the hidden rows that it outputs; 0: it outputs logits
  std::vector<CpuStep> steps;
};

/// Floats of tile scratch per worker; a tile must fit.
inline constexpr std::size_t kTileFloats = 64 * 1024;
/// Floats from row to row of a tile: kernels write whole groups of 16 columns.
constexpr std::size_t tile_stride(std::size_t width) {
  return (width + 15) / 16 * 16;
}
/// Rows of a tile of `width` columns: as many as the scratch holds, at most `rows`. width <= kTileFloats.
constexpr std::size_t tile_rows(std::size_t width, std::size_t rows) {
  return std::clamp<std::size_t>(kTileFloats / tile_stride(width), 1, rows);
}
inline constexpr std::size_t kTileTokens = 256;      ///< upper bound of tile_size().tokens
inline constexpr std::size_t kSumTokens = 512;       ///< tokens of one task that sums experts, at most
inline constexpr std::size_t kAttentionTokens = 16;  ///< tokens of one query tile

/// The largest tile, in columns and tokens, of a task with many rows. Work that is done once per task (unpacking a
/// strip of weights for its tokens, gathering rows of x for its columns) costs a tenth of the products and more, so
/// tasks are large: 512 columns instead of 128 make prefill 6 % faster on Zen 5 and 9 % with AMX, and 64 tokens instead
/// of 48 another 3 to 8 % for a 1B model. With AMX products are cheap compared with unpacking, so more tokens and fewer
/// columns pay; the results stay in L2.
struct TileSize {
  std::size_t columns, tokens;
};
/// The tile size of a CPU class.
constexpr TileSize tile_size(cpu::CpuClass cpu_class) {
  if (cpu_class == cpu::CpuClass::kAvx512VnniAmx) return {.columns = 256, .tokens = kTileTokens};
  return {.columns = 512, .tokens = 64};
}

/// Columns of recurrent state in one task: few enough for all threads to have some, enough to fill registers.
inline constexpr std::size_t kStateColumns = 64;

/// The layout of a KV group's blocks. Throws Error(kPlan) if the group's geometry is invalid.
cpu::KvShape kv_shape_of(const plan::KvGroup& group);

/// Decodes and checks one variant. Throws Error(kPlan), naming the step, for a reference outside its block, an unknown
/// kernel or op, or numbers that do not fit together.
CpuVariant decode_variant(const plan::VariantT& variant, const plan::ProgramT& program, const Blocks& blocks,
                          StepIo& io, const cpu::Kernels& kernels);

}  // namespace forge::runtime

#include "codegen/gpu/attention_config.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>

#include "codegen/attention_choice.h"
#include "codegen/gpu/matmul_config.h"
#include "codegen/gpu/tile_sizes.h"

namespace forge::codegen {
namespace {

constexpr std::int64_t kHeadsPerBlockMax = 2;  // more heads in a block take longer than more blocks that share keys
constexpr std::int64_t kWorkersMax = 32, kLatentWorkersMax = 64;
constexpr std::int64_t kKeysPerWorker = 16384;  // elements of keys; with fewer, merging costs more than a split saves
constexpr std::int64_t kHeadTileWorkersMax = 64;
constexpr std::int64_t kTilesPartMax = 128, kLatentPartMax = 96;

/// The largest divisor of `number` that is at most `most`; both are positive.
std::int64_t largest_divisor(std::int64_t number, std::int64_t most) {
  std::int64_t out = std::min(number, most);
  while (number % out != 0) --out;
  return out;
}

/// A block has about 256 lanes: as many heads of a KV head as fit, which share keys and values, and then as many tiles
/// of 16 tokens. Several waves share a wide head (kParts in attention_tiles.h); those blocks have eight waves. Chunks
/// are longer for small heads, which need less shared memory.
std::optional<AttentionConfig::Tiles> choose_attention_tiles(const GpuTarget& target,
                                                             const ir::AttentionAttrs& attention,
                                                             const ir::Bounds& bounds, const Tuning& tuning,
                                                             std::int64_t part_max = kTilesPartMax) {
  constexpr std::int64_t kLanesWanted = 256, kWavesOfWide = 8, kLongChunkDim = 64, kRowTurns = 8, kRowsApart = 64;
  if (!uses_matrix_instructions(target, bounds.tokens, tuning) || bounds.tokens <= bounds.sequences ||
      attention.head_dim % 32 != 0 || value_dim_of(attention) % 32 != 0 || attention.selected > 0)
    return std::nullopt;
  AttentionConfig::Tiles out;
  out.parts = (attention.head_dim + part_max - 1) / part_max;
  const auto group = attention.heads / attention.kv_heads;
  const auto waves = out.parts == 1 ? kLanesWanted / target.wave : kWavesOfWide / out.parts;
  // On AMD, where waves share the work of storing keys and values, rather a wave more than one fewer.
  const bool full = target.vendor == driver::Vendor::kAmd;
  const auto tiles_of = [&](std::int64_t heads) { return (waves + (full ? heads / 2 : 0)) / heads; };
  for (std::int64_t heads = 1; heads <= std::min(group, waves); ++heads)
    if (group % heads == 0 && (!full || heads * tiles_of(heads) >= waves)) out.heads = heads;
  const auto tokens = std::max<std::int64_t>(1, tiles_of(out.heads)) * kTileRows;
  out.tokens = std::clamp(tuned(tuning, "attention_tokens", tokens) / kTileRows * kTileRows, kTileRows, tokens);
  // Single rows follow each other, so a block rarely finds two of them.
  if (bounds.tokens % kRowTurns == 0 && bounds.tokens / kRowTurns >= std::max(kRowsApart, bounds.sequences))
    out.row_turns = kRowTurns;
  out.chunk = attention.head_dim <= kLongChunkDim && tuned(tuning, "attention_chunk", 64) >= 64 ? 64 : 32;
  // NVIDIA's compiler spills a little to have two of the blocks that are not quite full on a unit.
  if (target.vendor == driver::Vendor::kNvidia && out.waves() * target.wave < kLanesWanted) out.min_blocks = 1;
  return out;
}

/// Heads of a block of rows beside tiles. Most steps have no such rows, so few blocks look for some; but the sums of
/// all waves meet in shared memory, which has no room for many wide heads.
std::int64_t heads_beside_tiles(const ir::AttentionAttrs& attention) {
  constexpr std::int64_t kHeadsMost = 4, kWidthMost = 1024;
  return std::clamp(kWidthMost / value_dim_of(attention), kHeadsPerBlockMax, kHeadsMost);
}

/// Blocks of single rows, of which those beside tiles take several.
std::int64_t blocks_of_rows(std::int64_t rows, const std::optional<AttentionConfig::Tiles>& tiles) {
  return rows / (tiles ? tiles->row_turns : 1);
}

/// The most positions that a row sees.
std::int64_t positions_seen(const ir::AttentionAttrs& attention, const ir::Bounds& bounds) {
  const auto context = bounds.table_blocks * kGpuKvBlockTokens;
  return attention.selected > 0 ? std::min(context, attention.selected * attention.selected_block) : context;
}

/// Tiles of latent rows, which are wider than heads. The keys of a chunk and the partial scores of its waves must fit
/// into the shared memory that every target has.
std::optional<AttentionConfig::Tiles> choose_latent_tiles(const GpuTarget& target, const ir::AttentionAttrs& attention,
                                                          const ir::Bounds& bounds, const Tuning& tuning) {
  constexpr std::int64_t kSlab = 32, kChunk = 32, kScoreBytes = 2048, kSharedMost = 48 << 10;
  const auto out = choose_attention_tiles(target, attention, bounds, tuning, kLatentPartMax);
  if (!out || out->parts == 1) return std::nullopt;
  const auto slabs = attention.head_dim / kSlab, slabs_of_part = (slabs + out->parts - 1) / out->parts;
  const bool fits = attention.head_dim * kChunk * 2 + out->waves() * kScoreBytes <= kSharedMost;
  return fits && (out->parts - 1) * slabs_of_part < slabs ? out : std::nullopt;
}

/// An upper bound of sizeof(LatentHeadTiles::Lds).
std::int64_t latent_head_tiles_bytes(const LatentConfig& config, const ir::AttentionAttrs& attention) {
  constexpr std::int64_t kChunk = 32, kFound = 256 * 4;
  const auto row = (attention.head_dim / 8 | 1) * 16, slabs = attention.head_dim / 32;
  const auto slabs_of_wave = (slabs + config.waves - 1) / config.waves;
  const auto score_waves = (slabs + slabs_of_wave - 1) / slabs_of_wave, heads = config.heads_per_block;
  const auto work = config.stages * kChunk * row + score_waves * heads * (kChunk + 4) * 4 + heads * kChunk * 2 +
                    heads * 4 + (attention.selected > 0 ? kFound : 16);
  const auto share = heads * (value_dim_of(attention) + 4) * 4 + 3 * heads * 4 + heads * config.merged * 4 + 16;
  return (std::max(work, share) + 15) / 16 * 16;
}

}  // namespace

// With matrix instructions a block has 16 heads of a row, which is a tile; without, up to 8. As many workers share a
// context as give the target attention_blocks blocks.
LatentConfig choose_latent_attention(const GpuTarget& target, const ir::AttentionAttrs& attention,
                                     const ir::Bounds& bounds, const Tuning& tuning, const AttentionChoice& asked) {
  constexpr std::int64_t kHeadsMost = 8, kHeadLanes = 32, kTileThreads = 256, kStatic = 48 << 10;
  using Kernel = LatentConfig::Kernel;
  LatentConfig out;
  if (asked.tiles.value_or(true)) out.tiles = choose_latent_tiles(target, attention, bounds, tuning);
  const bool matrix = may_use_matrix_instructions(target, tuning) && attention.head_dim % 32 == 0;
  out.kernel = out.tiles ? Kernel::kTiles : matrix ? Kernel::kHeadTiles : Kernel::kRows;
  if (matrix) {
    out.heads_per_block = std::clamp<std::int64_t>(tuned(tuning, "heads", kTileRows), 1, 2 * kTileRows);
    out.heads_per_block = (out.heads_per_block + kTileRows - 1) / kTileRows * kTileRows;
    out.waves = out.tiles ? out.tiles->waves() : kTileThreads / target.wave;
  } else {
    out.heads_per_block = largest_divisor(attention.heads, tuned_positive(tuning, "heads", kHeadsMost));
    const auto lanes = std::max(out.heads_per_block * kHeadLanes, value_dim_of(attention) / 8);
    out.waves = (lanes + target.wave - 1) / target.wave;
  }
  out.jobs = (attention.heads + out.heads_per_block - 1) / out.heads_per_block;
  const auto rows = bounds.tokens;
  const auto parts = (positions_seen(attention, bounds) + out.tokens_per_worker - 1) / out.tokens_per_worker;
  const auto workers = rows > kTokenTile ? 1 : tuned(tuning, "workers", target.attention_blocks / (out.jobs * rows));
  out.workers = std::clamp<std::int64_t>(workers, 1, std::min(kLatentWorkersMax, parts));
  if (asked.split && rows <= kTokenTile)
    out.workers = *asked.split ? std::clamp<std::int64_t>(out.workers, std::min<std::int64_t>(2, parts), parts) : 1;
  if (out.tiles) {  // as for AttentionTiles, below
    out.workers = 1;
    out.blocks = (rows + out.tiles->tokens - 1) / out.tiles->tokens * (attention.heads / out.tiles->heads);
  }
  while (out.merged * out.merged < out.workers) ++out.merged;
  const auto groups = (out.workers + out.merged - 1) / out.merged;
  out.counters = groups > 1 ? 1 + groups : 1;
  out.blocks += blocks_of_rows(rows * out.jobs * out.workers, out.tiles);
  if (out.workers > 1) out.scratch_bytes = out.blocks * out.heads_per_block * (value_dim_of(attention) + 4) * 4;
  if (matrix && target.copies) {
    out.stages = out.tiles ? 1 : 2;
    if (latent_head_tiles_bytes(out, attention) > target.lds_bytes_per_block) out.stages = 1;
    if (const auto bytes = latent_head_tiles_bytes(out, attention); bytes > kStatic) out.lds_bytes = bytes;
  }
  return out;
}

std::int64_t AttentionConfig::Tiles::waves() const {
  return heads * tokens / kTileRows * parts;
}

KernelText LatentConfig::kernel_text() const {
  constexpr std::string_view kFiles[] = {"attention", "head_tiles", "tiles"};
  constexpr std::string_view kNames[] = {"LatentAttention", "LatentHeadTiles", "LatentTiles"};
  const auto which = static_cast<std::size_t>(kernel);
  KernelText text{.header = fmt::format("kernels/gpu/latent_{}.h", kFiles[which]),
                  .kernel = std::string(kNames[which]),
                  .defaults = fmt::format("{}Defaults", kNames[which]),
                  .before = {},
                  .lds_bytes = lds_bytes,
                  .blocks = blocks};
  // Otherwise NVIDIA's compiler spills to get two blocks on a unit.
  if (kernel == Kernel::kHeadTiles) text.min_blocks = 1;
  text.config.number("kHeadsPerBlock", heads_per_block)
      .number("kWaves", waves)
      .number("kWorkers", workers)
      .number("kMerged", merged)
      .number("kTokensPerWorker", tokens_per_worker);
  if (kernel != Kernel::kRows) text.config.number("kStages", stages);
  if (tiles) write_tiles(*tiles, text);
  return text;
}

namespace {

/// Heads of a block of AttentionHeadTiles: as many of a KV head as fit into the columns of one tile, or of two for
/// small heads; 1 if the kernel does not serve the attention, or the target has no matrix instructions.
///
/// On NVIDIA an f16 cache is read as fast without it, and short contexts faster (H100, 8B, depths 0, 4096 and 32,000:
/// 512, 445 and 279 tokens/s without, 497, 433 and 288 with it; q8_0 490, 439 and 328, 493, 441 and 339), so only
/// long rows use it (chooses_by_length). Rounding queries and weights to f16 changes choices of experts and keys.
std::int64_t heads_of_tile(const GpuTarget& target, const ir::AttentionAttrs& attention, const AttentionData& data,
                           const Tuning& tuning, bool may_choose) {
  const std::int64_t by_default =
      may_choose || (!data.before_choice && (data.kv_type != DType::kF16 || target.vendor != driver::Vendor::kNvidia));
  constexpr std::int64_t kDimLeast = 32, kDimMost = 256, kDimMostWmma = 128, kColumns = 16, kDimMostOfTwo = 128;
  if (!may_use_matrix_instructions(target, tuning) || tuned(tuning, "head_tiles", by_default) == 0 ||
      attention.selected > 0 || attention.head_dim % kTileRows != 0 || value_dim_of(attention) % kTileRows != 0 ||
      attention.head_dim < kDimLeast || attention.head_dim > (is_wmma(target.matrix) ? kDimMostWmma : kDimMost))
    return 1;
  const bool narrow = target.matrix == MatrixKind::kMma;  // its tiles have eight columns
  const auto most =
      tuned_positive(tuning, "heads", narrow && attention.head_dim > kDimMostOfTwo ? kColumns / 2 : kColumns);
  return largest_divisor(attention.heads / attention.kv_heads, std::min(most, kColumns));
}

/// Waves and chunks of AttentionHeadTiles. NVIDIA's compiler is asked for registers of three blocks on a unit, which
/// suffice for one tile of heads without spills; of one block for more.
constexpr std::int64_t kWavesOfTiles = 4;
void choose_head_tiles(const GpuTarget& target, const ir::AttentionAttrs& attention, const Tuning& tuning,
                       std::int64_t waves, bool before_choice, AttentionConfig& out) {
  constexpr std::int64_t kSharedMost = 44 << 10, kBlocksOfUnit = 3, kColumns = 8, kDimMost = 128, kUnitBytes = 16;
  AttentionConfig::HeadTiles tiles;
  if (before_choice && target.vendor == driver::Vendor::kNvidia) tiles.terms = 2;
  // Queries, which may be in shared memory, and what the waves have summed (head_queries.h, attention_row.h).
  const auto columns = (out.heads_per_block + kColumns - 1) / kColumns * kColumns;
  const auto queries = tiles.terms * columns * (attention.head_dim / 8 | 1) * kUnitBytes;
  const auto sums = out.heads_per_block * value_dim_of(attention) * 4;
  out.waves = tuned_positive(tuning, "attention_waves", waves);
  while (out.waves > 1 && queries + out.waves * sums > kSharedMost) out.waves /= 2;
  tiles.chunk_tiles = tuned(tuning, "attention_chunk", kTileRows) >= 2 * kTileRows ? 2 : 1;
  const bool small = out.heads_per_block <= kColumns && attention.head_dim <= kDimMost && out.waves <= kWavesOfTiles;
  if (target.vendor == driver::Vendor::kNvidia)
    tiles.min_blocks = tuned(tuning, "min_blocks", small ? kBlocksOfUnit : 1);
  out.head_tiles = tiles;
}

/// True if blocks choose by the length of their row: one row, where kernels overlap. Its blocks have eight waves and
/// most of a unit's registers, so there are as many as a card has units (H200: 132).
bool chooses_by_length(const GpuTarget& target, const ir::AttentionAttrs& attention, const ir::Bounds& bounds,
                       const AttentionData& data, const Tuning& tuning) {
  return target.overlaps && bounds.tokens == 1 && !data.makes_heads && attention.selected == 0 &&
         !tuning.contains("head_tiles");
}
constexpr std::int64_t kWavesByLength = 8, kBlocksByLength = 128, kSmallDim = 64, kWideDim = 128, kTileColumns = 8;
/// Rows that see at most so many elements of keys are short. H200, tokens/s at depths 512, 4096 and 32,000 without and
/// with matrix instructions: 8B 655 and 627, 569 and 580, 345 and 385; Qwen3 30B-A3B 700 and 647, 582 and 594, 282 and
/// 410.
constexpr std::int64_t kShortKeys = 1024 * 128;

void choose_by_length(const ir::AttentionAttrs& attention, const AttentionData& data, const Tuning& tuning,
                      AttentionConfig& out) {
  AttentionConfig::ShortRows rows;
  const bool scaled = data.kv_type == DType::kQ8_0 || data.kv_type == DType::kQ4_0;
  rows.tokens = tuned(tuning, "short_tokens", scaled ? 0 : kShortKeys / attention.head_dim);
  rows.heads_per_block = largest_divisor(attention.heads / attention.kv_heads, kHeadsPerBlockMax);
  const auto jobs = attention.heads / rows.heads_per_block;
  const auto parts = (rows.tokens + out.tokens_per_worker - 1) / out.tokens_per_worker;
  rows.workers = std::clamp<std::int64_t>(kBlocksByLength / jobs, 1, std::clamp<std::int64_t>(parts, 1, kWorkersMax));
  if (rows.tokens > 0) out.short_rows = rows;
  // As many bytes in flight as of f16, where registers suffice.
  if (data.kv_type != DType::kF16 && attention.head_dim > kSmallDim && attention.head_dim <= kWideDim &&
      out.heads_per_block <= kTileColumns && !tuning.contains("attention_chunk"))
    out.head_tiles->chunk_tiles = 2;
}

/// Waves of a block for one row where kernels overlap: from 4 to 8, as many as see the first 64 tokens of a context at
/// once. H200, tokens/s with 4 and 8 waves, at depth 0 and at 4096: Gemma 3 4B (heads of 256 columns) 679 and 706, 627
/// and 659; Qwen3 30B-A3B (128, whose 4 waves see 64 tokens) 719 and 762, 572 and 490; 8B (128) 677 and 678, 573 and
/// 515.
std::int64_t waves_of_one_row(const GpuTarget& target, const ir::AttentionAttrs& attention, const AttentionData& data,
                              std::int64_t team_tokens) {
  constexpr std::int64_t kTokens = 64, kWavesLeast = 4, kWavesMost = 8, kDimMost = 256;
  if (attention.head_dim > kDimMost) return kWavesLeast;   // with eight, such heads spill
  const auto unit = data.kv_type == DType::kF16 ? 8 : 16;  // elements that a lane loads
  const auto lanes = static_cast<std::int64_t>(std::bit_ceil(static_cast<std::uint64_t>(attention.head_dim / unit)));
  const auto teams = std::max<std::int64_t>(1, target.wave / lanes);
  return std::clamp(kTokens / (teams * team_tokens), kWavesLeast, kWavesMost);
}

}  // namespace

// Work split of decode attention: blocks serve up to kHeadsPerBlockMax heads of a KV head, or with matrix instructions
// a tile of them, and as many workers share a context as give the target attention_blocks blocks, but each worker gets
// at least kKeysPerWorker elements of keys. With more than 16 rows (`many`) contexts are not split.
AttentionConfig choose_attention(const GpuTarget& target, const ir::AttentionAttrs& attention, const ir::Bounds& bounds,
                                 const AttentionData& data, const Tuning& tuning, const AttentionChoice& asked) {
  AttentionConfig out;
  if (asked.tiles.value_or(true)) out.tiles = choose_attention_tiles(target, attention, bounds, tuning);
  const bool may_choose = chooses_by_length(target, attention, bounds, data, tuning);
  const auto tile_heads = out.tiles ? 1 : heads_of_tile(target, attention, data, tuning, may_choose);
  const bool by_length = may_choose && tile_heads > 1;
  const auto group = attention.heads / attention.kv_heads;
  const auto heads_max = tuned_positive(tuning, "heads", out.tiles ? heads_beside_tiles(attention) : kHeadsPerBlockMax);
  out.heads_per_block = tile_heads > 1 ? tile_heads : largest_divisor(group, heads_max);
  const auto jobs = attention.heads / out.heads_per_block;
  const auto rows = bounds.tokens;
  // Small blocks get a place on a unit sooner, beside the blocks of other kernels.
  const bool large = target.loads_ahead || rows > kTokenTile, many = rows > kTokenTile;
  const bool four = large || (by_length && attention.head_dim <= kSmallDim);
  out.team_tokens = tuned_positive(tuning, "team_tokens", attention.head_dim > 256 ? 2 : four ? 4 : 8);
  const auto waves = target.overlaps && rows == 1 ? waves_of_one_row(target, attention, data, out.team_tokens)
                                                  : (large ? 256 : 128) / target.wave;
  out.waves = tuned_positive(tuning, "attention_waves", waves);
  if (tile_heads > 1)
    choose_head_tiles(target, attention, tuning, by_length ? kWavesByLength : kWavesOfTiles, data.before_choice, out);
  out.tokens_per_worker = tuned_positive(tuning, "worker_tokens", kKeysPerWorker / attention.head_dim);
  const auto parts = (positions_seen(attention, bounds) + out.tokens_per_worker - 1) / out.tokens_per_worker;
  const bool two_on_unit = attention.head_dim <= kSmallDim && data.kv_type == DType::kF16;
  const auto blocks = by_length ? kBlocksByLength * (two_on_unit ? 2 : 1) : target.attention_blocks;
  const auto workers = many ? 1 : blocks / (jobs * rows);
  const auto workers_max = std::min(out.head_tiles ? kHeadTileWorkersMax : kWorkersMax, parts);
  out.workers = std::clamp<std::int64_t>(tuned(tuning, "workers", workers), 1, workers_max);
  if (by_length) choose_by_length(attention, data, tuning, out);
  const auto split_as_asked = [&](std::int64_t chosen) {
    if (!asked.split || many) return chosen;
    return *asked.split ? std::clamp<std::int64_t>(chosen, std::min<std::int64_t>(2, parts), parts) : 1;
  };
  out.workers = split_as_asked(out.workers);
  // The grid of AttentionTiles has blocks for tiles and, behind them, blocks for single rows (attention_tiles.h).
  if (out.tiles) {
    out.workers = 1;
    out.waves = out.tiles->waves();
    out.blocks = (rows + out.tiles->tokens - 1) / out.tiles->tokens * (attention.heads / out.tiles->heads);
  }
  out.counters = jobs;
  auto blocks_of_row = jobs * out.workers, shares = out.workers > 1 ? attention.heads * out.workers : 0;
  if (out.short_rows) {
    auto& short_rows = *out.short_rows;
    short_rows.workers = split_as_asked(short_rows.workers);
    const auto short_jobs = attention.heads / short_rows.heads_per_block;
    out.counters = std::max(out.counters, short_jobs);
    shares = std::max(shares, short_rows.workers > 1 ? attention.heads * short_rows.workers : 0);
    blocks_of_row = std::max(blocks_of_row, short_jobs * short_rows.workers);
  }
  out.blocks += blocks_of_rows(rows * blocks_of_row, out.tiles);
  out.scratch_bytes = rows * shares * (value_dim_of(attention) + 2) * 4;
  return out;
}

namespace {

/// choose(tuning, bounds of one token), for `bounds.tokens` rows. Workers are limited where a row's partial results
/// would take more scratch than a prefill step has room for.
template <class Choose>
auto choose_of_tokens(const ir::Bounds& bounds, Tuning tuning, Choose&& choose) {
  constexpr std::int64_t kRowScratchMost = 1 << 20;  // 512 MiB for 512 rows
  const ir::Bounds one{1, 1, 1, bounds.table_blocks};
  auto out = choose(tuning, one);
  if (out.scratch_bytes > kRowScratchMost) {
    tuning["workers"] = out.workers * kRowScratchMost / out.scratch_bytes;
    out = choose(tuning, one);
  }
  out.blocks *= bounds.tokens;
  out.scratch_bytes *= bounds.tokens;
  return out;
}

}  // namespace

AttentionConfig choose_attention_of_tokens(const GpuTarget& target, const ir::AttentionAttrs& attention,
                                           const ir::Bounds& bounds, const AttentionData& data, const Tuning& tuning,
                                           const AttentionChoice& asked) {
  return choose_of_tokens(bounds, tuning, [&](const Tuning& limited, const ir::Bounds& one) {
    return choose_attention(target, attention, one, data, limited, asked);
  });
}

LatentConfig choose_latent_attention_of_tokens(const GpuTarget& target, const ir::AttentionAttrs& attention,
                                               const ir::Bounds& bounds, const Tuning& tuning,
                                               const AttentionChoice& asked) {
  return choose_of_tokens(bounds, tuning, [&](const Tuning& limited, const ir::Bounds& one) {
    return choose_latent_attention(target, attention, one, limited, asked);
  });
}

std::string attention_problem(const AttentionConfig& config, const ir::AttentionAttrs& attention,
                              const ir::Bounds& bounds, const AttentionChoice& asked) {
  const bool prompt = bounds.tokens > bounds.sequences;
  if (prompt && asked.tiles.value_or(false) && bounds.tokens >= kPromptTokensLeast && !config.tiles)
    return fmt::format(
        "--attention tiles needs keys and values of a multiple of 32 columns, and this model's have {} and {}",
        attention.head_dim, value_dim_of(attention));
  if (!prompt && asked.split.value_or(false) && bounds.tokens <= kTokenTile && config.workers < 2)
    return fmt::format("--attention split is not possible: a context of {} positions is too short for two workers",
                       positions_seen(attention, bounds));
  return {};
}

KernelText AttentionConfig::kernel_text() const {
  const std::string_view kind = tiles ? "Tiles" : short_rows ? "ByLength" : head_tiles ? "HeadTiles" : "";
  const std::string_view file = tiles ? "_tiles" : short_rows ? "_by_length" : head_tiles ? "_head_tiles" : "";
  KernelText text{.header = fmt::format("kernels/gpu/attention{}.h", file),
                  .kernel = fmt::format("Attention{}", kind),
                  .defaults = fmt::format("Attention{}Defaults", kind),
                  .before = {},
                  .blocks = blocks};
  text.config.number("kHeadsPerBlock", heads_per_block)
      .number("kWorkers", workers)
      .number("kTokensPerWorker", tokens_per_worker)
      .number("kWaves", waves);
  if (head_tiles) {
    text.min_blocks = head_tiles->min_blocks;
    text.config.number("kChunkTiles", head_tiles->chunk_tiles).number("kTerms", head_tiles->terms);
  }
  if (!head_tiles || short_rows) text.config.number("kTeamTokens", team_tokens);
  if (short_rows)
    text.config.number("kShortTokens", short_rows->tokens)
        .number("kShortHeadsPerBlock", short_rows->heads_per_block)
        .number("kShortWorkers", short_rows->workers);
  if (tiles) write_tiles(*tiles, text);
  return text;
}

void write_tiles(const AttentionConfig::Tiles& tiles, KernelText& out) {
  out.min_blocks = tiles.min_blocks;
  out.config.number("kTileHeads", tiles.heads)
      .number("kTileTokens", tiles.tokens)
      .number("kChunk", tiles.chunk)
      .number("kParts", tiles.parts)
      .number("kRowTurns", tiles.row_turns);
}

}  // namespace forge::codegen

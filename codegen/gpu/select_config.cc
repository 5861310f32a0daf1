#include "codegen/gpu/select_config.h"

#include <fmt/format.h>

#include <algorithm>

#include "codegen/gpu/matmul_config.h"
#include "codegen/gpu/tile_sizes.h"

namespace forge::codegen {
namespace {

constexpr std::int64_t kGroup = 32;           ///< positions: the kernels' kGroup
constexpr std::int64_t kScored = 32;          ///< positions of a chunk without matrix instructions
constexpr std::int64_t kTilesScored = 64;     ///< with them
constexpr std::int64_t kThreadsMost = 256;    ///< of a block that scores
constexpr std::int64_t kChunksPerWorker = 2;  ///< the kernel's
/// Blocks that choose have 256 threads for up to so many blocks of positions, else 1024.
constexpr std::int64_t kSmallChoice = 8192;
constexpr std::int64_t kFloat = 4;
constexpr std::int64_t kSharedMost = 48 << 10;  ///< what every target gives without opting in

/// Bytes of a row's scores in scratch.
std::int64_t row_bytes(const ir::SelectKeysAttrs& select, bool weighted, const ir::Bounds& bounds) {
  const auto positions = bounds.table_blocks * kGpuKvBlockTokens;
  return (weighted ? 1 : select.heads) * (select.block % kGroup == 0 ? positions / kGroup : positions) * kFloat;
}

/// sizeof(KeyScoreTiles::Lds), without the row's positions.
std::int64_t tiles_bytes(const ir::SelectKeysAttrs& select, bool weighted, std::int64_t rows, std::int64_t stages) {
  const auto sums = weighted ? (select.heads + kTileRows - 1) / kTileRows : select.heads;
  return stages * kTilesScored * (select.head_dim / 8 | 1) * 16 +
         rows * (sums * (kTilesScored + 4) + select.heads) * kFloat;
}

// Scores by matrix instructions. A wave of 32 lanes holds the queries of one tile of 16 heads, one of 64 lanes those of
// two. For many rows a block has as many rows as its waves have room for, so that it reads keys once for all of them;
// but the grid must keep enough blocks, and scratch its size.
void choose_score_tiles(const GpuTarget& target, const ir::SelectKeysAttrs& select, bool weighted,
                        const ir::Bounds& bounds, const Tuning& tuning, SelectConfig& out) {
  constexpr std::int64_t kTilesMost = 8, kDimMost = 128, kRowsMost = 4, kScratchMost = 512 << 20;
  const auto head_tiles = (select.heads + kTileRows - 1) / kTileRows;
  out.stages = target.copies ? 2 : 1;
  out.tiles = may_use_matrix_instructions(target, tuning) && select.head_dim % 32 == 0 && select.head_dim <= kDimMost &&
              head_tiles <= kTilesMost && tiles_bytes(select, weighted, 1, out.stages) <= kSharedMost;
  if (!out.tiles) return;
  const auto fits = [&](std::int64_t rows) {
    const auto blocks = std::min<std::int64_t>((bounds.tokens + rows - 1) / rows, target.attention_blocks);
    return rows * head_tiles <= kTilesMost && 2 * bounds.tokens >= rows * target.attention_blocks &&
           tiles_bytes(select, weighted, rows, out.stages) <= kSharedMost &&
           blocks * rows * row_bytes(select, weighted, bounds) <= kScratchMost;
  };
  const auto rows_most = std::clamp<std::int64_t>(tuned(tuning, "select_rows", kRowsMost), 1, kRowsMost);
  while (out.many && 2 * out.rows_together <= rows_most && fits(2 * out.rows_together)) out.rows_together *= 2;
  out.waves = std::min(kThreadsMost / target.wave, out.rows_together * head_tiles * kTilesScored / kTileRows);
}

KernelText text_of(std::string kernel, bool tiles, const ConfigText& config, std::int64_t blocks, std::int64_t waves,
                   const GpuTarget& target) {
  KernelText text{.header = tiles ? "kernels/gpu/key_score_tiles.h" : "kernels/gpu/select_keys.h",
                  .kernel = std::move(kernel),
                  .defaults = tiles ? "SelectKeyTilesDefaults" : "SelectKeysDefaults",
                  .before = {},
                  .config = config,
                  .blocks = blocks,
                  .threads = waves * target.wave};
  text.config.number("kWaves", waves);
  return text;
}

}  // namespace

std::optional<std::string> refuses_select_keys(const ir::SelectKeysAttrs& select) {
  if (select.head_dim % 8 != 0)
    return fmt::format("index keys of {} columns are not whole units of 8", select.head_dim);
  const auto query = select.heads * (select.head_dim * kFloat + 5 * kFloat);
  const auto keys = kScored * (select.head_dim / 8 + 1) * 16, sums = kThreadsMost * kFloat;
  if (query + keys + sums > kSharedMost)
    return fmt::format("{} index heads of {} columns need more shared memory than a block has", select.heads,
                       select.head_dim);
  return std::nullopt;
}

SelectConfig choose_select_keys(const GpuTarget& target, const ir::SelectKeysAttrs& select, bool weighted,
                                const ir::Bounds& bounds, const Tuning& tuning) {
  const auto rows = bounds.tokens, positions = bounds.table_blocks * kGpuKvBlockTokens;
  const auto waves_of = [&](std::int64_t threads) { return (threads + target.wave - 1) / target.wave; };
  SelectConfig out;
  out.many = rows > std::max(kTokenTile, bounds.sequences);
  out.waves = waves_of(out.many ? kThreadsMost : std::min(select.heads * kScored, kThreadsMost));
  choose_score_tiles(target, select, weighted, bounds, tuning, out);
  if (out.many) {
    out.blocks = std::min<std::int64_t>((rows + out.rows_together - 1) / out.rows_together, target.attention_blocks);
    out.scratch_bytes = out.blocks * out.rows_together * row_bytes(select, weighted, bounds);
    return out;
  }
  const auto least = kChunksPerWorker * (out.tiles ? kTilesScored : kScored);
  out.workers =
      std::clamp<std::int64_t>(target.attention_blocks / rows, 1, std::max<std::int64_t>(positions / least, 1));
  out.blocks = rows * out.workers;
  out.choosing_blocks = rows * (weighted ? 1 : select.heads);
  out.choosing_waves = waves_of(positions / select.block > kSmallChoice ? 4 * kThreadsMost : kThreadsMost);
  out.scratch_bytes = rows * row_bytes(select, weighted, bounds);
  return out;
}

ConfigText select_keys_shape(const ir::SelectKeysAttrs& select, bool weighted, const ir::Bounds& bounds) {
  ConfigText out;
  out.use("Pool", fmt::format("KvPool<1, {}, {}>", select.head_dim, kGpuKvBlockTokens))
      .number("kHeads", select.heads)
      .number("kTopK", select.top_k)
      .number("kBlock", select.block)
      .number("kLocal", select.local)
      .flag("kWeighted", weighted)
      .number("kTableBlocks", bounds.table_blocks)
      .number("kTokensTotal", bounds.tokens);
  return out;
}

KernelText SelectConfig::score_text(const GpuTarget& target, const ConfigText& config) const {
  const auto kernel = fmt::format("{}{}", many ? "Select" : "Score", tiles ? "KeyTiles" : "Keys");
  auto text = text_of(kernel, tiles, config, blocks, waves, target);
  if (many)
    text.config.number("kRowBlocks", blocks);
  else
    text.config.number("kWorkers", workers);
  if (!tiles) return text;
  text.min_blocks = 2;  // NVIDIA's compiler may spill addresses for that, but has registers for the loop over keys
  text.config.number("kRowsTogether", rows_together).number("kStages", stages);
  return text;
}

KernelText SelectConfig::choose_text(const GpuTarget& target, const ConfigText& config) const {
  return text_of("ChooseKeys", false, config, choosing_blocks, choosing_waves, target);
}

}  // namespace forge::codegen

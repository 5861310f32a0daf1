#include "codegen/gpu/matmul_config.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <numeric>

#include "codegen/gpu/block_size.h"
#include "codegen/gpu/tile_sizes.h"
#include "kernels/quant/planes.h"
#include "support/error.h"

namespace forge::codegen {
namespace {

constexpr std::int64_t kThreadsWanted = 256;
/// Rows of a team with many tokens: each row needs one register (its sum) per token.
constexpr std::int64_t kRowsWithManyTokens = 2;

/// Lanes that share a row: for short rows a power of two that covers its units, else the whole wave, or fewer lanes if
/// they are at least 1.2 times as busy. Example: 32 lanes read 40 units in two rounds and are 63 % busy, 16 lanes take
/// three rounds and are 83 % busy. But fewer lanes take more rounds, each of which waits for memory, and make blocks of
/// fewer threads (H100, Q8_0 [2816, 2112] and a norm: 4 lanes in 33 rounds 43.7 us, 32 lanes in 5 rounds 15.2 us).
std::int64_t lanes_for(std::int64_t units, int wave) {
  if (units <= wave) return static_cast<std::int64_t>(std::bit_ceil(static_cast<std::uint64_t>(units)));
  std::int64_t best = wave;
  const auto busy = [&](std::int64_t lanes) {
    const auto rounds = (units + lanes - 1) / lanes;
    return static_cast<double>(units) / static_cast<double>(rounds * lanes);
  };
  constexpr std::int64_t kRoundsMost = 6;
  for (std::int64_t lanes = wave / 2; lanes >= 4 && units <= lanes * kRoundsMost; lanes /= 2)
    if (busy(lanes) > busy(best) * 1.2) best = lanes;
  return best;
}

constexpr std::int64_t kFewBlocks = 160, kSomeBlocks = 400, kManyBlocks = 2000;
constexpr std::int64_t kShortRounds = 8;  ///< a row of floats is short if a wave reads it in this many rounds or fewer

/// Units that a lane has in flight over all its rows, if each takes five registers. A grid of few blocks needs many
/// units in flight to keep the memory busy. With many blocks per compute unit, fewer registers let more blocks be
/// resident at once. Measured on an H200 with BF16, Q8_0 and Q4_0 weights of 1B and 8B models.
std::int64_t units_in_flight(DType weight, std::int64_t blocks, std::int64_t rounds, std::int64_t rows) {
  if (blocks <= kFewBlocks) return 16;
  if (is_float(weight)) return blocks <= 2 * kFewBlocks && rounds <= 4 ? rows : 16;
  if (blocks <= kSomeBlocks || blocks > kManyBlocks) return 8;
  return rounds >= 4 ? 16 : rounds / 2 * rows;
}

/// The same for one token where kernels overlap: blocks load their first batch while they wait for the kernel before,
/// so of a small weight most is in that batch. Blocks of slots know their weights only after the wait. Measured on an
/// H200 as tokens/s of whole models in Q4_K_M, Q8_0 and BF16, since a kernel that is timed alone has no other to wait
/// for.
std::int64_t units_before_wait(DType weight, std::int64_t blocks, std::int64_t rounds, std::int64_t rows,
                               MatmulUse use) {
  constexpr std::int64_t kAlmostAll = 26, kMany = 13, kFew = 8;
  constexpr std::int64_t kOf512Threads = 19;  // which have fewer registers each
  constexpr std::int64_t kOfFloats = 16;
  const bool codes = quant::is_plane_codes(weight);
  if (use == MatmulUse::kSlots) return codes ? rows : units_in_flight(weight, blocks, rounds, rows);
  if (codes && blocks <= kFewBlocks) return use == MatmulUse::kWholeRows ? kOf512Threads : kAlmostAll;
  if (codes && blocks <= kSomeBlocks) return kMany;
  if (is_float(weight)) return kOfFloats;
  if (blocks > kSomeBlocks) return kFew;
  return units_in_flight(weight, blocks, rounds, rows);
}

/// Waves that share a row. The more waves share a row, the more rows a lane has, and the more rows use each load of the
/// activations; such loads take as long as those of weights, f32 ones longer. Limits: every lane has at least two
/// rounds of units, and at most `rows_most` rows (sums). Measured like units_in_flight.
std::int64_t waves_per_row(std::int64_t rows_most, std::int64_t units, int wave, std::int64_t waves,
                           std::int64_t block_rows) {
  constexpr std::int64_t kRoundsLeast = 2;
  std::int64_t split = 1;
  while (2 * split <= waves && block_rows * 2 * split <= rows_most * waves && units >= wave * 2 * split * kRoundsLeast)
    split *= 2;
  return split;
}

/// Errors: kUsage for tuning that splits `whole` lanes or waves into parts that are not equal.
void check_split(std::int64_t part, std::int64_t whole, const char* what) {
  if (whole % part != 0)
    throw Error(ErrorCode::kUsage, fmt::format("tuning asks for {} {}, of {}", part, what, whole),
                "give a number that divides it");
}

/// True if codes have to be unpacked, so that each byte takes a register: without a dot instruction.
bool unpacks(const GpuTarget& target, DType weight) {
  return target.dot == DotKind::kNone && !is_float(weight);
}

/// Tokens of a tile, which are limited by registers. clang (AMD) hoists the loads of all tokens' activations, so tiles
/// are smaller there, and smaller still if codes have to be unpacked.
std::int64_t tokens_of_tile(const GpuTarget& target, DType weight, std::int64_t tokens) {
  const auto ahead_tile = quant::is_plane_codes(weight) ? kTokenTile / 4 : kTokenTile / 2;
  return std::min(tokens, unpacks(target, weight) ? 2 : target.loads_ahead ? ahead_tile : kTokenTile);
}

/// True for tiles of so many tokens that registers are left for one unit in flight.
bool is_many(const GpuTarget& target, std::int64_t tokens) {
  return tokens > (target.loads_ahead ? 2 : kTokenTile / 2);
}

}  // namespace

void MatmulConfig::take_tokens(const GpuTarget& target, DType weight, std::int64_t count, const Tuning& tuning) {
  constexpr std::int64_t kRowsMost = 4;  // of a team with a whole tile
  const auto tile = tokens_of_tile(target, weight, count), sums = tile * kRowsMost;
  tokens = std::min(tile, tuned_positive(tuning, "tile", tile));
  while (tokens > 1 && tokens * rows_per_team > sums) tokens /= 2;
  if (tokens == 1 || tuning.contains("units")) return;
  constexpr std::int64_t kRegisters = 112;  // of a thread for units and sums; with 512 threads it has 128 in all
  const auto unit = rows_per_team * static_cast<std::int64_t>(quant::planes_unit_registers(weight));
  units_ahead = std::clamp<std::int64_t>((kRegisters - tokens * rows_per_team) / unit, 1, units_ahead);
  units_ahead = is_many(target, tokens) ? 1 : std::max<std::int64_t>(1, units_ahead / (target.loads_ahead ? 2 : 1));
}

// Blocks of 512 threads, at most 16 lanes for a row, and a unit of each row under way. Measured on an H200, Qwen3
// 30B-A3B in Q4_K_M, [2048, 768] of 8 experts, tokens/s: 256 threads 698, 512 threads 718, with 16 lanes in place of 32
// for a row 724, 1024 threads 716; more units under way 666.
void MatmulConfig::sum_slots(const GpuTarget& target, std::int64_t slots, const EpilogueShape& shape,
                             const Tuning& tuning) {
  constexpr std::int64_t kLanesMost = 16;
  summed = slots;
  waves_per_row = 1;
  if (!tuning.contains("lanes")) lanes_per_row = std::min(lanes_per_row, kLanesMost);
  const auto wanted = tuned_positive(tuning, "waves", 2 * kThreadsWanted / target.wave);
  waves = slots * std::max<std::int64_t>(1, wanted / slots);
  const auto teams = waves / slots * (target.wave / lanes_per_row);
  rows_per_team = tuned_positive(tuning, "rows", std::max<std::int64_t>(1, shape.multiple_of / teams));
  while (block_rows(target.wave) % shape.multiple_of != 0 ||
         (shape.divides != 0 && shape.divides % block_rows(target.wave) != 0))
    ++rows_per_team;
  units_ahead = tuned_positive(tuning, "units", 1);
}

void MatmulConfig::write_to(ConfigText& out) const {
  out.number("kTokens", tokens)
      .number("kWaves", waves)
      .number("kWavesPerRow", waves_per_row)
      .number("kLanesPerRow", lanes_per_row)
      .number("kRowsPerTeam", rows_per_team)
      .number("kUnitsAhead", units_ahead);
}

void MatmulConfig::use_small_teams(int wave, std::int64_t multiple) {
  rows_per_team = waves_per_row = 1;
  lanes_per_row = std::min<std::int64_t>(lanes_per_row, kThreadsWanted / kTileRows);
  waves = std::max<std::int64_t>(1, std::lcm(kTileRows, multiple) * lanes_per_row / wave);
}

// Choices build on each other in this order: tokens of a tile, lanes per row, rows of a block, waves, waves per row,
// rows per team, units in flight. Each can be replaced by tuning. The thresholds were measured (see above).
MatmulConfig choose_matmul(const GpuTarget& target, DType weight, std::int64_t rows, std::int64_t k,
                           std::int64_t tokens, const EpilogueShape& shape, const Tuning& tuning, MatmulUse use) {
  const auto units = static_cast<std::int64_t>(quant::planes_units(weight, static_cast<std::size_t>(k)));
  MatmulConfig out;
  const bool ahead = target.loads_ahead;
  const auto tile = tokens_of_tile(target, weight, tokens);
  out.tokens = std::min(tile, tuned_positive(tuning, "tile", tile));
  out.lanes_per_row = tuned_positive(tuning, "lanes", lanes_for(units, target.wave));
  check_split(out.lanes_per_row, target.wave, "lanes of a row");
  // A wave's rows must not cross a part.
  while (shape.divides % (target.wave / out.lanes_per_row) != 0) out.lanes_per_row *= 2;
  const auto teams = target.wave / out.lanes_per_row;
  const auto multiple = shape.multiple_of;

  // Rows of a block: the fewest that the epilogue allows; more, up to 32, if the grid still has very many blocks, or
  // if one of them goes on alone: with few large blocks none waits for a second turn (H200, Q4_K [2560, 10240] and a
  // norm: 160 blocks 18.2 us, 80 blocks 15.1 us).
  std::int64_t block_rows = multiple;
  const auto fits = [&](std::int64_t count) { return shape.divides == 0 || shape.divides % count == 0; };
  const bool many = is_many(target, out.tokens);
  while (block_rows < 32 && rows / (2 * block_rows) >= 1024 && fits(2 * block_rows)) block_rows *= 2;
  const bool whole_rows = use == MatmulUse::kWholeRows, wide = many || (whole_rows && target.overlaps);
  while (wide && block_rows < 32 && rows / (2 * block_rows) >= 64 && fits(2 * block_rows)) block_rows *= 2;

  // Threads of a block. Weights of floats (`fat`) need more loads in flight, so few blocks are made larger unless their
  // rows are short, and so are those of which one goes on alone with whole rows. Many blocks with short rows are made
  // smaller, with many rows per team: small blocks get a place on a unit sooner. So are those of codes where kernels
  // overlap (H200, tokens/s of an 8B model in Q4_K_M with 8 and 4 waves for [28672, 4096]: 627 and 648).
  const bool few_blocks = rows / block_rows <= kSomeBlocks;
  const bool fat = is_float(weight) && !ahead;
  const bool short_rows = fat && out.lanes_per_row == target.wave && units <= kShortRounds * target.wave && tokens <= 2;
  const bool overlaps = target.overlaps && tokens == 1;
  const bool small_blocks =
      overlaps && quant::is_plane_codes(weight) && use == MatmulUse::kPlain && block_rows >= 32 && !few_blocks;
  const bool large_blocks = whole_rows || (fat && few_blocks && !short_rows);
  const auto threads = large_blocks                                  ? 2 * kThreadsWanted
                       : (short_rows && !few_blocks) || small_blocks ? kThreadsWanted / 2
                                                                     : kThreadsWanted;
  std::int64_t waves = std::max<std::int64_t>(1, threads / target.wave);
  while (waves > 1 && waves * teams * (many ? kRowsWithManyTokens : 1) > block_rows) waves /= 2;
  out.waves = tuned_positive(tuning, "waves", waves);
  const bool shares = tokens <= 2 && out.lanes_per_row == target.wave;
  const std::int64_t rows_most = is_float(weight) ? 8 : 4;
  out.waves_per_row =
      tuned_positive(tuning, "split", shares ? waves_per_row(rows_most, units, target.wave, out.waves, block_rows) : 1);
  check_split(out.waves_per_row, out.waves, "waves of a row");
  const auto block_teams = out.waves / out.waves_per_row * teams;
  out.rows_per_team = tuned_positive(tuning, "rows", std::max<std::int64_t>(1, block_rows / block_teams));
  while (out.block_rows(target.wave) % multiple != 0 || !fits(out.block_rows(target.wave))) {
    if (shape.divides != 0 && out.block_rows(target.wave) > shape.divides)
      throw Error(ErrorCode::kUsage,
                  fmt::format("tuning asks for blocks of {} rows or more", block_teams * out.rows_per_team),
                  fmt::format("a block's rows must be a multiple of {} and divide {}", multiple, shape.divides));
    ++out.rows_per_team;
  }
  const auto stride = out.lanes_per_row * out.waves_per_row;
  const auto rounds = (units + stride - 1) / stride;
  const auto blocks = rows / out.block_rows(target.wave);
  auto in_flight = many || unpacks(target, weight) ? 1
                   : overlaps                      ? units_before_wait(weight, blocks, rounds, out.rows_per_team, use)
                                                   : units_in_flight(weight, blocks, rounds, out.rows_per_team);
  in_flight = in_flight * 5 / static_cast<std::int64_t>(quant::planes_unit_registers(weight));
  if (ahead && tokens > 1) in_flight /= 2;
  out.units_ahead = tuned_positive(tuning, "units", std::clamp<std::int64_t>(in_flight / out.rows_per_team, 1, rounds));
  return out;
}

void TilesConfig::write_to(KernelText& out) const {
  out.header = strips ? "kernels/gpu/matmul_strips.h" : "kernels/gpu/matmul_tiles.h";
  out.kernel = strips ? "MatmulStrips" : "MatmulTiles";
  out.defaults = strips ? "StripsDefaults" : "TilesDefaults";
  out.config.number("kWavesDown", waves_down)
      .number("kWavesAcross", waves_across)
      .number("kTilesDown", tiles_down)
      .number("kTilesAcross", tiles_across)
      .number("kSlabs", slabs)
      .number("kStages", stages)
      .number("kTokensTogether", tokens_together)
      .number("kSplits", splits);
  if (strips) out.config.number("kAhead", ahead);
}

bool may_use_matrix_instructions(const GpuTarget& target, const Tuning& tuning) {
  return target.matrix != MatrixKind::kNone && tuned(tuning, "matrix", kMatrixByDefault) != 0;
}

bool uses_matrix_instructions(const GpuTarget& target, std::int64_t tokens, const Tuning& tuning) {
  return tokens >= kPromptTokensLeast && may_use_matrix_instructions(target, tuning);
}

namespace {

/// Bits of a weight, of its scales too.
double bits_of(DType type) {
  return 8.0 * static_cast<double>(dtype_info(type).block_bytes) / static_cast<double>(dtype_info(type).block_elems);
}

/// True if matmuls of this many tokens use matrix instructions, where shapes allow it. Tuning keys: matrix,
/// matrix_tokens. Where dot products keep up with memory, they are faster for few tokens; so they are for experts,
/// whose slots need no sorting then. Tokens/s on an H100, by dots and by matrix instructions: 8 sequences, 8B Q4_K_M
/// 1,924 and 2,178, 1B Q8_0 8,981 and 8,520, Qwen3 30B-A3B 1,442 and 1,351; 1B BF16 2 sequences 2,097 and 1,705, 4
/// sequences 2,457 and 3,343.
bool multiplies_tiles(const GpuTarget& target, DType weight, std::int64_t experts, std::int64_t tokens,
                      const Tuning& tuning) {
  constexpr std::int64_t kFloats = 4, kFewBits = 8;
  const auto least = experts > 1           ? kTokenTile
                     : is_float(weight)    ? kFloats
                     : bits_of(weight) < 8 ? kFewBits
                                           : kTokenTile;
  return weight != DType::kF32 && tokens >= std::max(tuned(tuning, "matrix_tokens", least), kTiledTokensLeast) &&
         may_use_matrix_instructions(target, tuning);
}

/// Bytes of a row of the output tile: a token's sums, their padding and 1/rms.
std::int64_t out_row_bytes(std::int64_t columns) {
  return (columns + 5) * 4;
}
/// What a block has in shared memory besides: slots, the last arrival, and the alignment of both.
std::int64_t rest_bytes(std::int64_t tokens) {
  return (tokens + 64) * 4 + 256;
}
/// As many tokens together as the output tile has room for in the ring's place.
void fill_ring(std::int64_t ring, TilesConfig& out) {
  while (2 * out.tokens_together * out_row_bytes(out.rows) <= ring && out.tokens % (2 * out.tokens_together) == 0)
    out.tokens_together *= 2;
}
/// Shared memory that the launch must give, 0 if the kernel can declare it.
std::int64_t launched_lds(const GpuTarget& target, std::int64_t ring, const TilesConfig& config) {
  constexpr std::int64_t kStatic = 48 << 10;
  const auto bytes = std::max(ring, config.tokens_together * out_row_bytes(config.rows)) + rest_bytes(config.tokens);
  return target.copies && bytes > kStatic ? bytes : 0;
}

/// Lanes that share a row of the instruction's first factor (kGroups in matrix_tile.h).
std::int64_t lanes_of_row(MatrixKind matrix) {
  return matrix == MatrixKind::kWmmaGfx11 ? 1 : matrix == MatrixKind::kWmmaGfx12 ? 2 : 4;
}

/// Tokens of a block of MatmulStrips that has all of a step, at least those of one instruction. With experts: room for
/// twice the slots of an average one.
std::int64_t tokens_of_strips(const GpuTarget& target, const TilesProblem& problem) {
  const std::int64_t instruction = target.matrix == MatrixKind::kMma ? 8 : 16;
  if (problem.experts <= 1) return std::max(problem.tokens, instruction);
  auto tokens = instruction;
  while (tokens < 2 * kTokenTile && tokens * problem.experts < 2 * problem.rows_of_out()) tokens *= 2;
  return tokens;
}

/// Configuration of MatmulStrips, or nothing if the shape does not allow it. tokens: of a block. The grid should have
/// several blocks for each unit, of which some load while others multiply, but adding up parts of k has its price
/// (measured on an H100).
std::optional<TilesConfig> choose_strips(const GpuTarget& target, const TilesProblem& problem, std::int64_t tokens,
                                         const EpilogueShape& shape, const Tuning& tuning) {
  constexpr std::int64_t kWaves = 4, kSlab = 32, kUnits = 132, kEpilogue = 300, kSplit = 40, kPartLeast = 512;
  constexpr std::int64_t kManyTokens = 32;
  const bool mma = target.matrix == MatrixKind::kMma, experts = problem.experts > 1;
  const std::int64_t instruction = mma ? 8 : 16;
  const TileSize block{tuned_positive(tuning, "block_rows", mma && tokens > kManyTokens ? 128 : 64),
                       tuned_positive(tuning, "block_tokens", tokens)};
  TilesConfig out;
  out.strips = true;
  const auto slabs = std::max<std::int64_t>(lanes_of_row(target.matrix), 2);  // of whole units of each lane
  out.slabs = tuned_positive(tuning, "slabs", slabs);
  const auto step = out.slabs * kSlab;
  if (problem.k % step != 0 || !fits(block, problem, shape)) return std::nullopt;
  const std::int64_t unit_blocks = block.rows * block.tokens <= 64 * kManyTokens ? 4 : 2;
  std::int64_t least = 0;
  for (std::int64_t splits = 1; splits <= (experts ? 1 : 8); splits *= 2) {
    if (splits > 1 && (problem.k % (splits * step) != 0 || problem.k / splits < kPartLeast)) break;
    const auto rounds = (problem.blocks(block) * splits + kUnits * unit_blocks - 1) / (kUnits * unit_blocks);
    const auto time = rounds * (problem.k / splits + kEpilogue + (splits > 1 ? splits * kSplit : 0));
    if (splits == 1 || time < least) out.splits = splits, least = time;
  }
  out.splits = tuned_positive(tuning, "k_splits", out.splits);
  out.waves_down = tuned_positive(tuning, "waves_down", kWaves);
  out.waves_across = 1;
  out.tiles_down = block.rows / out.waves_down / kTileRows;
  out.tiles_across = block.tokens / instruction;
  out.rows = out.waves_down * out.tiles_down * kTileRows;
  out.tokens = block.tokens;
  const auto threads = out.waves_down * target.wave;
  if (out.rows != block.rows || out.tiles_down == 0 || out.slabs % slabs != 0 ||
      (block.tokens % kTokenTile != 0 && block.tokens != instruction) || problem.k % (out.splits * step) != 0 ||
      threads > kThreadsPerBlockMax || threads % (step / 8) != 0)
    throw Error(
        ErrorCode::kUsage,
        fmt::format("tuning asks for blocks of {} columns and {} tokens by {} waves, {} slabs in a step and {} "
                    "parts of k",
                    block.rows, block.tokens, out.waves_down, out.slabs, out.splits),
        fmt::format("a wave needs whole tiles of 16 (or all tokens in one of {}), a step a multiple of {} slabs, "
                    "each part of k whole steps",
                    instruction, slabs));
  out.blocks = problem.blocks(block) * out.splits;
  out.ahead = tuned_positive(tuning, "ahead", !mma || block.tokens <= kTokenTile ? 2 : 1);
  out.stages = tuned_positive(tuning, "stages", 2);
  out.unit_blocks = tuned(tuning, "min_blocks", mma ? unit_blocks : 0);
  out.tokens_together = std::min(block.tokens, kTokenTile);
  const auto ring = out.stages * block.tokens * step * 2;
  fill_ring(ring, out);
  out.lds_bytes = launched_lds(target, ring, out);
  return out;
}

}  // namespace

std::optional<TilesConfig> choose_few_rows(const GpuTarget& target, DType weight, std::int64_t columns, std::int64_t k,
                                           std::int64_t rows, const EpilogueShape& shape, const Tuning& tuning) {
  if (rows < kTokenTile || rows > kStripsTokensMost || !multiplies_tiles(target, weight, 0, rows, tuning))
    return std::nullopt;
  return choose_strips(target, {columns, k, rows, 1, 0}, kTokenTile, shape, tuning);
}

std::optional<TilesConfig> choose_tiles(const GpuTarget& target, DType weight, std::int64_t rows, std::int64_t k,
                                        std::int64_t tokens, std::int64_t slots, std::int64_t experts,
                                        const EpilogueShape& shape, const Tuning& tuning) {
  constexpr std::int64_t kBlockMost = 256;
  if (!multiplies_tiles(target, weight, experts, tokens, tuning) || k % 32 != 0) return std::nullopt;
  const TilesProblem problem{rows, k, tokens, slots, experts};
  if (problem.rows_of_out() / std::max<std::int64_t>(experts, 1) <=
      (experts > 1 ? kStripsSlotsMost : kStripsTokensMost))
    if (auto strips = choose_strips(target, problem, tokens_of_strips(target, problem), shape, tuning)) return strips;
  if (tokens < (experts > 1 ? kTokenTile : kPromptTokensLeast)) return std::nullopt;
  const bool mma = target.matrix == MatrixKind::kMma;
  const auto choice = choose_size(target, problem, shape);
  if (!choice) return std::nullopt;
  const TileSize block{tuned_positive(tuning, "block_rows", choice->size.rows),
                       tuned_positive(tuning, "block_tokens", choice->size.tokens)};
  TilesConfig out;
  // A wave's sums stay in registers, so large blocks have eight waves. With mma.sync small blocks have eight too,
  // because with a grid of few blocks a unit would have too few waves to schedule.
  const std::int64_t waves = mma || block.rows * block.tokens > 64 * 64 ? 8 : 4;
  const bool few_tokens = block.tokens < 64, large = !mma && block.tokens >= 2 * kWaveTile;
  // WMMA fragments take many registers (on gfx11 both halves of a wave hold the same): fewer columns per wave leave
  // room.
  std::int64_t down = is_wmma(target.matrix) && block.rows > 64 ? 4 : 2, across = 0;  // 0: the other waves
  if (large) down = std::max<std::int64_t>(block.rows / kWaveTile, 1), across = block.tokens / kWaveTile;
  if (few_tokens) down = block.rows / 32, across = 1;
  out.waves_down = tuned_positive(tuning, "waves_down", down);
  out.waves_across = tuned_positive(tuning, "waves_across", across > 0 ? across : waves / out.waves_down);
  const std::int64_t tile_tokens = mma ? 8 : 16;
  out.tiles_down = block.rows / out.waves_down / kTileRows;
  out.tiles_across = block.tokens / out.waves_across / tile_tokens;
  out.rows = out.waves_down * out.tiles_down * kTileRows;
  out.tokens = out.waves_across * out.tiles_across * tile_tokens;
  out.splits = tuned_positive(tuning, "k_splits", choice->splits);
  out.blocks = problem.blocks(block) * out.splits;
  const bool whole_parts = k % (out.splits * 32) == 0 && (out.splits == 1 || experts <= 1);
  if (!whole_parts || out.rows != block.rows || out.tokens != block.tokens ||
      out.tiles_across * tile_tokens % kTokenTile != 0 || !fits(block, problem, shape) ||
      std::max(block.rows, block.tokens) > kBlockMost || out.waves() * target.wave > kThreadsPerBlockMax)
    throw Error(ErrorCode::kUsage,
                fmt::format("tuning asks for blocks of {} columns and {} tokens by {} x {} waves", block.rows,
                            block.tokens, out.waves_down, out.waves_across),
                "a wave needs whole tiles of 16, a block whole heads and parts and at most 256 columns and tokens");
  // Sums (accumulator registers) of a lane. With many, a block has a unit for itself.
  const auto sums = block.rows * block.tokens / (out.waves() * target.wave);
  const std::int64_t unit_blocks = sums > 64 ? 1 : sums > 32 ? 2 : 0;
  out.unit_blocks = tuned(tuning, "min_blocks", mma ? unit_blocks : 0);
  // Asynchronous copies: as many steps ahead as the blocks of a unit have room for.
  const auto step_bytes = [&] { return out.slabs * (block.rows + block.tokens) * 64; };
  if (target.copies) {
    const auto room = std::min<std::int64_t>(
                          target.lds_bytes_per_block,
                          target.lds_bytes_per_unit / std::max<std::int64_t>(unit_blocks, 1) - target.lds_reserved) -
                      rest_bytes(block.tokens);
    // With two blocks on a unit a lane has half of the registers, which do not suffice for loads of two slabs.
    const bool two = k % (out.splits * 64) == 0 && unit_blocks != 2;
    out.slabs = tuned_positive(tuning, "slabs", two ? 2 : 1);
    out.stages = tuned_positive(tuning, "stages", std::clamp<std::int64_t>(room / step_bytes(), 2, 4));
  }
  if (target.copies || large) {
    fill_ring(out.stages * step_bytes(), out);
    const auto wave_tokens = block.tokens / out.waves_across;
    while (out.tokens_together % wave_tokens != 0 && wave_tokens % out.tokens_together != 0) out.tokens_together /= 2;
  }
  out.lds_bytes = launched_lds(target, out.stages * step_bytes(), out);
  return out;
}

}  // namespace forge::codegen

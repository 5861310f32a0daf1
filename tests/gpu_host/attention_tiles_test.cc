// Prefill attention by matrix instructions, with the tile layouts of every vendor: prompts that fill tiles and prompts
// that do not, at the start of a sequence and far into it, mixed with decode rows, with windows, soft-caps and sinks.

#include "tests/gpu_host/attention_case.h"
#include "tests/gpu_host/f16_tiles.h"

using namespace forge;
using namespace forge::gpu_host;

namespace {
// Heads per block of the tile kernel and of the row kernel, tokens, and waves that share a head.
struct Shape {
  AttentionHeads heads;
  int tile_heads, tile_tokens, per_block, parts = 1;
  int narrow = 0;  ///< columns of a value; 0: as many as keys have
  [[nodiscard]] int waves() const { return tile_heads * tile_tokens / 16 * parts; }
};
constexpr Shape kShapes[] = {{{4, 4, 64}, 1, 32, 1},        {{6, 2, 32}, 3, 16, 3},     {{8, 1, 128}, 4, 16, 2},
                             {{4, 2, 96}, 2, 32, 2, 1, 64}, {{2, 1, 512}, 2, 16, 1, 4}, {{2, 2, 160}, 1, 32, 1, 2, 96}};
// Latent rows: narrow is the number of their columns that are values.
constexpr Shape kLatentShapes[] = {
    {{2, 1, 160}, 1, 16, 16, 2, 128}, {{20, 1, 320}, 2, 16, 16, 4, 256}, {{2, 1, 576}, 1, 16, 16, 6, 512}};
constexpr int kChunks[] = {32, 64}, kBlockTokens[] = {16, 32};

/// Appends `count` consecutive rows of a sequence, starting at `position`.
void append(std::vector<AttentionRow>& rows, int sequence, int position, int count) {
  for (int i = 0; i < count; ++i) rows.push_back({sequence, position + i});
}
std::vector<AttentionRow> rows_of(int step) {
  std::vector<AttentionRow> rows;
  switch (step) {
    case 0:  // whole tiles, from the start of the sequence
      append(rows, 0, 0, 64);
      break;
    case 1:  // far into a context, with a partial tile and padding
      append(rows, 1, 101, 43);
      append(rows, 0, -1, 1);
      rows.resize(64, {0, -1});
      break;
    case 2:  // one tile with rows of two sequences, then decode rows
      append(rows, 2, 7, 40);
      append(rows, 3, 90, 1);
      append(rows, 0, 33, 1);
      append(rows, 1, 5, 6);
      rows.resize(48, {0, -1});
      break;
    default:  // too few rows for a tile; the total is not a multiple of the tile
      append(rows, 3, 64, 32);
      append(rows, 3, 96, 5);
      rows.resize(48, {0, -1});
  }
  return rows;
}
constexpr int kSteps = 4;

struct TilesCase {
  Shape shape;
  int chunk;
  AttentionMask mask;
  AttentionOutput output;
  int block_tokens, step;
  Instruction instruction;
  bool latent = false;
  DType kv = DType::kF16;
  float growth = 0;
  /// With 4, a block has two of the single rows of step 2.
  [[nodiscard]] int row_turns() const { return step % 2 == 0 ? 4 : 1; }
  [[nodiscard]] AttentionProblem problem() const {
    AttentionProblem problem{shape.heads, mask, output, block_tokens, rows_of(step), 1, 3e-3};
    (latent ? problem.latent : problem.narrow) = shape.narrow;
    problem.kv = kv;
    problem.growth = growth;
    if (growth > 0) problem.tolerance = 2e-2;  // large scores of F16 queries
    return problem;
  }
};

WaveText text_of(const TilesCase& c) {
  codegen::KernelText text{.header = c.latent ? "kernels/gpu/latent_tiles.h" : "kernels/gpu/attention_tiles.h",
                           .kernel = c.latent ? "LatentTiles" : "AttentionTiles",
                           .defaults = c.latent ? "LatentTilesDefaults" : "AttentionTilesDefaults",
                           .before = {}};
  const auto problem = c.problem();
  problem.write_to(text.config);
  text.config.use("Tile", c.instruction.name)
      .number("kHeadsPerBlock", c.shape.per_block)
      .number("kWaves", c.shape.waves())
      .number("kParts", c.shape.parts)
      .number("kTileHeads", c.shape.tile_heads)
      .number("kTileTokens", c.shape.tile_tokens)
      .number("kChunk", c.chunk)
      .number("kRowTurns", c.row_turns());
  if (c.latent)
    text.config.number("kValueDim", c.shape.narrow);
  else
    text.config.number("kTeamTokens", 4);
  const int heads = c.shape.heads.heads, total = problem.total();
  text.blocks = (total + c.shape.tile_tokens - 1) / c.shape.tile_tokens * (heads / c.shape.tile_heads) +
                total * ((heads + c.shape.per_block - 1) / c.shape.per_block) / c.row_turns();
  text.threads = c.shape.waves() * c.instruction.wave;
  return {c.instruction.wave, std::move(text), KvRows::target_of(c.kv, c.instruction.wave)};
}

void check_all(const std::vector<TilesCase>& cases) {
  check_cases(cases, text_of, [](const TilesCase& c, const Kernel& kernel) {
    INFO(c.instruction.name << ", " << c.shape.tile_heads << " heads and " << c.shape.tile_tokens
                            << " tokens a tile, chunk " << c.chunk << ", step " << c.step);
    check_attention(c.problem(), kernel);
  });
}

}  // namespace

TEST_CASE("attention by matrix instructions gives softmax(q k) v for prompts and for the rows between them") {
  const Choice<7> sizes{std::size(kShapes),      std::size(kChunks),      std::size(kAttentionMasks),
                        kAttentionOutputs,       std::size(kBlockTokens), kSteps,
                        std::size(kInstructions)};
  std::vector<TilesCase> cases;
  // Wide heads fill shared memory with the shorter chunks.
  const auto fits = [](const Choice<7>& at) { return kShapes[at[0]].parts == 1 || kChunks[at[1]] == 32; };
  for (const auto& at : cases_of(sizes, fits))
    cases.push_back({kShapes[at[0]], kChunks[at[1]], kAttentionMasks[at[2]], AttentionOutput(at[3]),
                     kBlockTokens[at[4]], at[5], kInstructions[at[6]]});
  check_all(cases);
}

TEST_CASE("attention by matrix instructions scales what it has summed when a maximum rises far") {
  std::vector<TilesCase> cases;
  for (const auto& instruction : kInstructions)
    for (const auto& [shape, chunk] : {std::pair{0, 32}, {0, 64}, {1, 32}, {4, 32}})
      for (const int step : {0, 1})
        cases.push_back({kShapes[shape], chunk, {}, kStored, 16, step, instruction, false, DType::kF16, 0.1F});
  check_all(cases);
}

TEST_CASE("attention by matrix instructions reads a quantised cache") {
  constexpr DType kTypes[] = {DType::kQ8_0, DType::kQ4_0, DType::kFp8};
  const Choice<7> sizes{
      std::size(kShapes),       std::size(kChunks), std::size(kAttentionMasks), std::size(kBlockTokens), kSteps,
      std::size(kInstructions), std::size(kTypes)};
  std::vector<TilesCase> cases;
  const auto fits = [](const Choice<7>& at) { return kShapes[at[0]].parts == 1 || kChunks[at[1]] == 32; };
  for (const auto& at : cases_of(sizes, fits))
    cases.push_back({kShapes[at[0]], kChunks[at[1]], kAttentionMasks[at[2]], kStored, kBlockTokens[at[3]], at[4],
                     kInstructions[at[5]], false, kTypes[at[6]]});
  check_all(cases);
}

TEST_CASE("attention on latents by matrix instructions gives softmax(q k) of the keys' first columns") {
  const Choice<4> sizes{std::size(kLatentShapes), kAttentionOutputs, kSteps, std::size(kInstructions)};
  std::vector<TilesCase> cases;
  for (const auto& at : cases_of(sizes, [](const Choice<4>&) { return true; }))
    cases.push_back({kLatentShapes[at[0]], 32, {}, AttentionOutput(at[1]), 32, at[2], kInstructions[at[3]], true});
  check_all(cases);
}

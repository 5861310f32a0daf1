// Attention on latents gives softmax(q k) k', k' being the first columns of k, compared with f64: rows of several
// sequences, padding, numbers of heads that blocks share, any number of workers per row, and selected positions;
// without matrix instructions, and with those of every vendor.

#include "tests/gpu_host/attention_case.h"
#include "tests/gpu_host/f16_tiles.h"

using namespace forge;
using namespace forge::gpu_host;

namespace {

struct Rows {
  AttentionHeads heads;
  int value_dim, per_block;
};
constexpr Rows kRows[] = {
    {{4, 1, 80}, 64, 4}, {{16, 1, 576}, 512, 8}, {{3, 1, 32}, 16, 1}, {{10, 1, 160}, 144, 5}, {{2, 1, 32}, 24, 2}};
struct Workers {
  int count, tokens, merged;  ///< most workers, least tokens of one, workers of a group
};
constexpr Workers kWorkers[] = {{1, 64, 1}, {3, 16, 2}, {8, 32, 3}, {11, 32, 4}};
const std::vector<std::vector<AttentionRow>> kSteps{{{0, 0}},
                                                    {{0, 383}},
                                                    {{2, 31}, {0, 32}, {3, 0}, {1, 77}, {0, -1}},
                                                    {{0, 14}, {0, 15}, {0, 16}, {1, 17}, {1, 95}, {0, -1}, {0, -1}}};

/// Lists that have room for all positions of short rows, that end within a chunk, and of more chunks than are looked up
/// at once.
constexpr AttentionSelection kSelections[] = {{}, {40, 1}, {5, 8}, {3, 7}, {300, 1}};

/// For matrix instructions: whole slabs of 32 columns, and whole tiles of heads, of which the last may be partly real.
constexpr Rows kTileRows[] = {{{16, 1, 576}, 512, 16},
                              {{20, 1, 96}, 64, 16},
                              {{40, 1, 288}, 256, 32},
                              {{3, 1, 64}, 48, 16},
                              {{128, 1, 64}, 32, 32}};

struct LatentCase {
  Rows rows;
  Workers workers;
  AttentionSelection selection;
  AttentionOutput output;
  int step, wave;
  const char* tile = nullptr;  ///< of matrix instructions; Mma's copies are asynchronous
  [[nodiscard]] AttentionProblem problem() const {
    const double tolerance = tile == nullptr ? 2e-5 : 3e-3;
    return {rows.heads, {0, 0}, output, 32, kSteps[step], workers.count, tolerance, rows.value_dim, selection};
  }
};

WaveText text_of(const LatentCase& c) {
  const bool tiles = c.tile != nullptr;
  codegen::KernelText text{.header = tiles ? "kernels/gpu/latent_head_tiles.h" : "kernels/gpu/latent_attention.h",
                           .kernel = tiles ? "LatentHeadTiles" : "LatentAttention",
                           .defaults = tiles ? "LatentHeadTilesDefaults" : "LatentAttentionDefaults",
                           .before = {}};
  const auto problem = c.problem();
  problem.write_to(text.config);
  const int threads = tiles ? 256 : std::max(c.rows.per_block * 32, c.rows.value_dim / 8);
  const int waves = (threads + c.wave - 1) / c.wave;
  if (tiles) text.config.use("Tile", c.tile);
  text.config.number("kValueDim", c.rows.value_dim)
      .number("kHeadsPerBlock", c.rows.per_block)
      .number("kWorkers", c.workers.count)
      .number("kMerged", c.workers.merged)
      .number("kTokensPerWorker", c.workers.tokens)
      .number("kWaves", waves);
  const int jobs = (c.rows.heads.heads + c.rows.per_block - 1) / c.rows.per_block;
  text.blocks = problem.total() * jobs * c.workers.count;
  text.threads = waves * c.wave;
  const bool copies = tiles && std::string_view(c.tile) == "MmaF16Tile";
  if (copies) {
    text.config.number("kStages", 2);
    text.lds_bytes = 100 << 10;
  }
  return {c.wave, std::move(text), copies ? "sm_90" : nullptr};
}

}  // namespace

TEST_CASE("attention on latents gives softmax(q k) of the keys' first columns") {
  const Choice<6> sizes{std::size(kRows),  std::size(kWorkers),   kAttentionOutputs, static_cast<int>(kSteps.size()),
                        std::size(kWaves), std::size(kSelections)};
  std::vector<LatentCase> cases;
  for (const auto& at : cases_of(sizes, [](const Choice<6>& at) {
         const auto& rows = kRows[at[0]];
         return at[2] == kStored || rows.heads.heads * rows.value_dim % 32 == 0;
       }))
    cases.push_back({kRows[at[0]], kWorkers[at[1]], kSelections[at[5]], AttentionOutput(at[2]), at[3], kWaves[at[4]]});
  check_cases(cases, text_of, [](const LatentCase& c, const Kernel& kernel) {
    INFO(c.rows.per_block << " heads a block, workers " << c.workers.count << ", step " << c.step << ", wave "
                          << c.wave);
    check_attention(c.problem(), kernel);
  });
}

TEST_CASE("attention on latents by matrix instructions whose rows are heads gives the same") {
  const Choice<6> sizes{std::size(kTileRows),     std::size(kWorkers),
                        kAttentionOutputs,        static_cast<int>(kSteps.size()),
                        std::size(kInstructions), std::size(kSelections)};
  std::vector<LatentCase> cases;
  for (const auto& at : cases_of(sizes, [](const Choice<6>& at) {
         const auto& rows = kTileRows[at[0]];
         return at[2] == kStored || rows.heads.heads * rows.value_dim % 32 == 0;
       }))
    cases.push_back({kTileRows[at[0]], kWorkers[at[1]], kSelections[at[5]], AttentionOutput(at[2]), at[3],
                     kInstructions[at[4]].wave, kInstructions[at[4]].name});
  check_cases(cases, text_of, [](const LatentCase& c, const Kernel& kernel) {
    INFO(c.tile << ", " << c.rows.per_block << " heads a block, workers " << c.workers.count << ", step " << c.step);
    check_attention(c.problem(), kernel);
  });
}

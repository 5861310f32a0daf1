// Attention on latents gives softmax(q k) k', k' being the first columns of k, compared with f64: rows of several
// sequences, padding, numbers of heads that blocks share, any number of workers per row, and selected positions.

#include "tests/gpu_host/attention_case.h"

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
  int count, tokens;
};
constexpr Workers kWorkers[] = {{1, 64}, {3, 16}, {8, 32}};
const std::vector<std::vector<AttentionRow>> kSteps{{{0, 0}},
                                                    {{0, 383}},
                                                    {{2, 31}, {0, 32}, {3, 0}, {1, 77}, {0, -1}},
                                                    {{0, 14}, {0, 15}, {0, 16}, {1, 17}, {1, 95}, {0, -1}, {0, -1}}};

/// Lists that have room for all positions of short rows, that end within a chunk, and of more chunks than are looked up
/// at once.
constexpr AttentionSelection kSelections[] = {{}, {40, 1}, {5, 8}, {3, 7}, {300, 1}};

struct LatentCase {
  Rows rows;
  Workers workers;
  AttentionSelection selection;
  AttentionOutput output;
  int step, wave;
  [[nodiscard]] AttentionProblem problem() const {
    return {rows.heads, {0, 0}, output, 32, kSteps[step], workers.count, 2e-5, rows.value_dim, selection};
  }
};

WaveText text_of(const LatentCase& c) {
  codegen::KernelText text{.header = "kernels/gpu/latent_attention.h",
                           .kernel = "LatentAttention",
                           .defaults = "LatentAttentionDefaults",
                           .before = {}};
  const auto problem = c.problem();
  problem.write_to(text.config);
  const int threads = std::max(c.rows.per_block * 32, c.rows.value_dim / 8), waves = (threads + c.wave - 1) / c.wave;
  text.config.number("kValueDim", c.rows.value_dim)
      .number("kHeadsPerBlock", c.rows.per_block)
      .number("kWorkers", c.workers.count)
      .number("kTokensPerWorker", c.workers.tokens)
      .number("kWaves", waves);
  text.blocks = problem.total() * (c.rows.heads.heads / c.rows.per_block) * c.workers.count;
  text.threads = waves * c.wave;
  return {c.wave, std::move(text)};
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

// The row-wise attention kernel gives softmax(q k) v, compared with f64, for ragged rows of several sequences, padding,
// all head layouts and head dimensions, and any number of workers per row.

#include "tests/gpu_host/attention_case.h"

using namespace forge;
using namespace forge::gpu_host;

namespace {

// The heads that a block handles; per_block 0: all query heads of a KV head.
struct Heads {
  AttentionHeads of;
  int per_block;
  int narrow = 0;  ///< columns of a value; 0: as many as keys have
};
constexpr Heads kHeads[] = {{{4, 4, 64}, 0},    {{6, 2, 32}, 0},  {{4, 1, 80}, 2},  {{2, 1, 256}, 0},
                            {{3, 3, 16}, 1, 8}, {{2, 1, 512}, 1}, {{4, 2, 512}, 0}, {{2, 1, 320}, 0, 256}};
// How the work on one row is split.
struct Cut {
  int workers, waves, worker_tokens, team_tokens;
};
constexpr Cut kCuts[] = {{1, 1, 1, 8}, {3, 4, 8, 2}, {8, 1, 32, 1}, {2, 8, 64, 4}};
constexpr int kBlockTokens[] = {16, 32};

using Row = AttentionRow;
const std::vector<std::vector<Row>> kSteps{
    {{0, 0}},                                                         // the very first token
    {{0, 150}},                                                       // one row with many chunks
    {{2, 31}, {0, 32}, {3, 0}, {1, 77}, {0, -1}},                     // full and partly filled cache blocks
    {{0, 15}, {1, 16}, {1, 17}, {1, 18}, {0, -1}, {0, -1}, {0, -1}},  // prefill and decode in one step
    {{0, 0},
     {0, 1},
     {0, 2},
     {0, 3},
     {0, 4},
     {0, 5},
     {0, 6},
     {0, 7},
     {1, 40},
     {1, 41},  //
     {1, 42},
     {1, 43},
     {2, 9},
     {2, 10},
     {2, 11},
     {3, 100},
     {0, -1},
     {0, -1},
     {0, -1}}};  // more rows than a tile

struct AttentionCase {
  Heads heads;
  Cut cut;
  AttentionMask mask;
  AttentionOutput output;
  int block_tokens, step, wave;
  AttentionSelection selection = {};
  DType kv = DType::kF16;
  [[nodiscard]] AttentionProblem problem() const {
    // A key of integers is multiplied by a query of 16 bits.
    const double tolerance = kv == DType::kF16 || kv == DType::kFp8 ? 2e-5 : 1e-4;
    return {heads.of, mask, output, block_tokens, kSteps[step], cut.workers, tolerance, 0, selection, heads.narrow, kv};
  }
};

WaveText text_of(const AttentionCase& c) {
  codegen::KernelText text{
      .header = "kernels/gpu/attention.h", .kernel = "Attention", .defaults = "AttentionDefaults", .before = {}};
  const auto problem = c.problem();
  problem.write_to(text.config);
  text.config.number("kHeadsPerBlock", c.heads.per_block)
      .number("kWorkers", c.cut.workers)
      .number("kWaves", c.cut.waves)
      .number("kTokensPerWorker", c.cut.worker_tokens)
      .number("kTeamTokens", c.cut.team_tokens);
  if (c.selection.count > 0) text.config.number("kSelectedLists", c.selection.lists);
  const int group = c.heads.per_block > 0 ? c.heads.per_block : c.heads.of.heads / c.heads.of.kv_heads;
  text.blocks = problem.total() * (c.heads.of.heads / group) * c.cut.workers;
  text.threads = c.cut.waves * c.wave;
  return {c.wave, std::move(text), KvRows::target_of(c.kv, c.wave)};
}

void check_all(const std::vector<AttentionCase>& cases) {
  check_cases(cases, text_of, [](const AttentionCase& c, const Kernel& kernel) {
    INFO("workers " << c.cut.workers << ", waves " << c.cut.waves << ", team tokens " << c.cut.team_tokens << ", step "
                    << c.step << ", wave " << c.wave);
    check_attention(c.problem(), kernel);
  });
}

}  // namespace

TEST_CASE("attention gives softmax(q k) v for all heads, masks, splits and steps") {
  const Choice<7> sizes{std::size(kHeads), std::size(kCuts),        std::size(kAttentionMasks),
                        kAttentionOutputs, std::size(kBlockTokens), static_cast<int>(kSteps.size()),
                        std::size(kWaves)};
  const auto case_of = [](const Choice<7>& at) {
    return AttentionCase{kHeads[at[0]],       kCuts[at[1]], kAttentionMasks[at[2]], AttentionOutput(at[3]),
                         kBlockTokens[at[4]], at[5],        kWaves[at[6]]};
  };
  std::vector<AttentionCase> cases;
  for (const auto& choice : cases_of(sizes, [&](const Choice<7>& at) {
         const auto c = case_of(at);
         return c.output == kStored ||
                c.problem().columns() % 32 == 0;  // rows of quantised activations consist of whole blocks
       }))
    cases.push_back(case_of(choice));
  check_all(cases);
}

TEST_CASE("attention reads a quantised cache: all heads of whole blocks, masks, splits and steps") {
  constexpr Heads kSome[] = {{{4, 4, 64}, 0},       {{6, 2, 32}, 0},      {{8, 1, 128}, 2},
                             {{2, 1, 256}, 0},      {{4, 2, 512}, 0},     {{6, 2, 96}, 1},
                             {{2, 1, 320}, 0, 256}, {{4, 2, 128}, 2, 64}, {{6, 2, 80}, 1}};
  constexpr DType kTypes[] = {DType::kQ8_0, DType::kQ4_0, DType::kFp8};
  const Choice<7> sizes{std::size(kSome),
                        std::size(kCuts),
                        std::size(kAttentionMasks),
                        std::size(kBlockTokens),
                        static_cast<int>(kSteps.size()),
                        std::size(kWaves),
                        std::size(kTypes)};
  std::vector<AttentionCase> cases;
  const auto fits = [&](const Choice<7>& at) { return kTypes[at[6]] == DType::kFp8 || kSome[at[0]].of.dim % 32 == 0; };
  for (const auto& at : cases_of(sizes, fits))
    cases.push_back({kSome[at[0]],
                     kCuts[at[1]],
                     kAttentionMasks[at[2]],
                     kBoth,
                     kBlockTokens[at[3]],
                     at[4],
                     kWaves[at[5]],
                     {},
                     kTypes[at[6]]});
  check_all(cases);
}

TEST_CASE("sparse attention sees the selected blocks of positions, whether chunks lie within a block or not") {
  constexpr Heads kSome[] = {{{4, 4, 64}, 0}, {{6, 2, 32}, 1}, {{4, 2, 80}, 2, 64}, {{4, 2, 512}, 0}};
  constexpr AttentionSelection kSelections[] = {{20, 1}, {3, 5}, {2, 32}, {1, 64}};
  constexpr AttentionMask kMasks[] = {{0, 0}, {0, 30, true}};
  const Choice<7> sizes{std::size(kSome),
                        std::size(kCuts),
                        std::size(kSelections),
                        std::size(kMasks),
                        2,
                        kAttentionOutputs,
                        static_cast<int>(kSteps.size() * std::size(kWaves))};
  std::vector<AttentionCase> cases;
  for (const auto& at : cases_of(sizes, [](const Choice<7>&) { return true; })) {
    auto selection = kSelections[at[2]];
    if (at[4] == 1) selection.lists = kSome[at[0]].of.kv_heads;
    cases.push_back({kSome[at[0]], kCuts[at[1]], kMasks[at[3]], AttentionOutput(at[5]), 32, at[6] / 2,
                     kWaves[at[6] % 2], selection});
  }
  check_all(cases);
}

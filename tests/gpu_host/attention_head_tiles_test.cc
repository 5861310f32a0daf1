// Decode attention by matrix instructions whose columns are the query heads of a KV head gives softmax(q k) v, compared
// with f64: with the tiles of every vendor, for groups of 2 to 16 heads, f16 and quantised caches, and every mask.

#include <array>
#include <span>

#include "tests/gpu_host/attention_case.h"
#include "tests/gpu_host/f16_tiles.h"

using namespace forge;
using namespace forge::gpu_host;

namespace {

struct Heads {
  AttentionHeads of;
  int per_block;   ///< heads of a block
  int narrow = 0;  ///< columns of a value; 0: as many as keys have
};
/// Whole and partly filled tiles of heads, several blocks of a KV head, and dimensions that fill the lanes' rows of a
/// tile once, several times, in part, or with fewer bytes than a unit.
constexpr Heads kHeads[] = {{{4, 2, 64}, 2},  {{8, 2, 128}, 4},   {{6, 2, 80}, 3},  {{7, 1, 32}, 7},
                            {{8, 1, 256}, 8}, {{16, 1, 128}, 16}, {{12, 2, 48}, 3}, {{4, 2, 128}, 2, 64}};
constexpr Heads kQuantisedHeads[] = {{{8, 2, 64}, 4},  {{8, 2, 128}, 4},   {{6, 2, 96}, 3},       {{7, 1, 32}, 7},
                                     {{8, 1, 256}, 8}, {{16, 1, 128}, 16}, {{16, 1, 256}, 4, 96}, {{12, 2, 48}, 3}};
/// How the work on one row is split. tiles: of a chunk.
struct Cut {
  int workers, waves, worker_tokens, tiles;
};
constexpr Cut kCuts[] = {{1, 1, 1, 1}, {3, 2, 16, 1}, {8, 1, 32, 2}, {20, 4, 16, 2}};
/// The first token, positions on both sides of chunks' borders, long rows alone in a step, several sequences, padding.
const std::vector<std::vector<AttentionRow>> kSteps{
    {{0, 0}},
    {{3, 16}},
    {{2, 31}},
    {{0, 383}},
    {{2, 31}, {0, 32}, {3, 0}, {1, 77}, {0, -1}},
    {{0, 14}, {0, 15}, {0, 16}, {1, 17}, {1, 95}, {2, 300}, {0, -1}, {0, -1}},
};

struct HeadTilesCase {
  Heads heads;
  Cut cut;
  AttentionMask mask;
  AttentionOutput output;
  int step;
  Instruction instruction;
  DType kv = DType::kF16;
  int terms = 1;
  int short_tokens = -1;  ///< >= 0: rows that see at most so many tokens are computed without matrix instructions
  [[nodiscard]] bool by_length() const { return short_tokens >= 0; }
  [[nodiscard]] int workers() const { return by_length() ? std::max(cut.workers, kShortWorkers) : cut.workers; }
  [[nodiscard]] AttentionProblem problem() const {
    // Rounded to F16, or with 22 bits of queries and weights as exact as sums in f32 are. Quantised keys are rounded.
    const double bound = terms == 2 && kv == DType::kF16 ? 2e-5 : 3e-3;
    return {heads.of, mask, output, 32, kSteps[step], workers(), bound, 0, {}, heads.narrow, kv};
  }
  static constexpr int kShortHeads = 2, kShortWorkers = 3;
};

WaveText text_of(const HeadTilesCase& c) {
  codegen::KernelText text{.header = "kernels/gpu/attention_head_tiles.h",
                           .kernel = "AttentionHeadTiles",
                           .defaults = "AttentionHeadTilesDefaults",
                           .before = {}};
  const auto problem = c.problem();
  problem.write_to(text.config);
  text.config.use("Tile", c.instruction.name)
      .number("kHeadsPerBlock", c.heads.per_block)
      .number("kWorkers", c.cut.workers)
      .number("kWaves", c.cut.waves)
      .number("kTokensPerWorker", c.cut.worker_tokens)
      .number("kChunkTiles", c.cut.tiles)
      .number("kTerms", c.terms);
  auto blocks = c.heads.of.heads / c.heads.per_block * c.cut.workers;
  if (c.by_length()) {
    text.header = "kernels/gpu/attention_by_length.h";
    text.kernel = "AttentionByLength";
    text.defaults = "AttentionByLengthDefaults";
    text.config.number("kShortTokens", c.short_tokens)
        .number("kShortHeadsPerBlock", c.kShortHeads)
        .number("kShortWorkers", c.kShortWorkers);
    blocks = std::max(blocks, c.heads.of.heads / c.kShortHeads * c.kShortWorkers);
  }
  text.blocks = problem.total() * blocks;
  text.threads = c.cut.waves * c.instruction.wave;
  return {c.instruction.wave, std::move(text), KvRows::target_of(c.kv, c.instruction.wave)};
}

void check_all(const std::vector<HeadTilesCase>& cases) {
  check_cases(cases, text_of, [](const HeadTilesCase& c, const Kernel& kernel) {
    INFO(c.instruction.name << ", " << c.heads.per_block << " heads a block, workers " << c.cut.workers << ", waves "
                            << c.cut.waves << ", tiles " << c.cut.tiles << ", step " << c.step);
    check_attention(c.problem(), kernel);
  });
}

void check_caches(std::span<const DType> types, std::span<const Heads> heads) {
  const Choice<7> sizes{
      static_cast<int>(heads.size()),  std::size(kCuts),         std::size(kAttentionMasks),    kAttentionOutputs,
      static_cast<int>(kSteps.size()), std::size(kInstructions), static_cast<int>(types.size())};
  std::vector<HeadTilesCase> cases;
  for (const auto& at : cases_of(sizes, [&](const Choice<7>& at) {
         const auto& some = heads[at[0]];
         const bool blocks = types[at[6]] == DType::kQ8_0 || types[at[6]] == DType::kQ4_0;
         if (blocks && some.of.dim % 32 != 0) return false;
         return at[3] == kStored || some.of.heads * (some.narrow > 0 ? some.narrow : some.of.dim) % 32 == 0;
       }))
    cases.push_back({heads[at[0]], kCuts[at[1]], kAttentionMasks[at[2]], AttentionOutput(at[3]), at[4],
                     kInstructions[at[5]], types[at[6]]});
  check_all(cases);
}

}  // namespace

TEST_CASE("decode attention by matrix instructions whose columns are heads gives softmax(q k) v") {
  check_caches(std::array{DType::kF16}, kHeads);
}

TEST_CASE("decode attention by matrix instructions with two terms is as exact as without") {
  std::vector<HeadTilesCase> cases;
  for (const auto& instruction : kInstructions)
    for (const auto& [heads, cut, mask, step] : {std::tuple{1, 1, 0, 3}, {7, 3, 5, 4}, {4, 0, 2, 2}, {5, 2, 8, 5}})
      cases.push_back({kHeads[heads], kCuts[cut], kAttentionMasks[mask], kStored, step, instruction, DType::kF16, 2});
  check_all(cases);
}

TEST_CASE("decode attention by length gives softmax(q k) v for short and long rows") {
  constexpr Heads kSome[] = {{{8, 2, 64}, 4}, {{8, 2, 128}, 4}, {{16, 1, 128}, 16}, {{8, 1, 256}, 8}};
  const Choice<6> sizes{std::size(kSome),  std::size(kCuts),         std::size(kAttentionMasks),
                        kAttentionOutputs, std::size(kInstructions), 4};
  constexpr std::array kShort{0, 17, 33, 384};
  std::vector<HeadTilesCase> cases;
  int number = 0;
  for (const auto& at : cases_of(sizes, [](const Choice<6>&) { return true; })) {
    constexpr DType kTypes[] = {DType::kF16, DType::kQ8_0, DType::kQ4_0};
    const int step = ++number % 4;
    cases.push_back({kSome[at[0]], kCuts[at[1]], kAttentionMasks[at[2]], AttentionOutput(at[3]), step,
                     kInstructions[at[4]], kTypes[number % 3], 1 + number / 3 % 2, kShort[at[5]]});
  }
  check_all(cases);
}

TEST_CASE("decode attention by matrix instructions whose columns are heads reads a quantised cache") {
  check_caches(std::array{DType::kQ8_0, DType::kQ4_0, DType::kFp8}, kQuantisedHeads);
}

// The kernels that choose the keys of sparse attention, compared with the definition in f64: scores of index keys
// without matrix instructions and with those of every vendor, the choice by given scores, and both in one launch.
// Numbers are small integers, so that f32 is exact and many scores are equal: the lists must agree in every entry. Or
// they are real numbers, whose scores differ by roundings, which are far smaller than the distance of scores.

#include <fmt/format.h>

#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>
#include <limits>
#include <numeric>
#include <vector>

#include "kernels/quant/f16.h"
#include "tests/gpu_host/attention_case.h"
#include "tests/gpu_host/f16_tiles.h"

using namespace forge;
using namespace forge::gpu_host;

namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr int kBlockTokens = 32, kSequences = 4, kPositions = kTableBlocks * kBlockTokens;

struct Indexer {
  int heads, dim;
  bool weighted;
};
constexpr Indexer kIndexers[] = {{5, 24, true}, {20, 64, true}, {2, 32, false}, {11, 8, false}};
struct Blocks {
  int top_k, size, local;
};
constexpr Blocks kChoices[] = {{40, 1, 0}, {130, 1, 3}, {5, 2, 1}, {1, 32, 0}, {4, 64, 2}, {2, 7, 2}};
/// For matrix instructions: heads that fill tiles of 16 or do not, whole slabs of 32 columns.
constexpr Indexer kTileIndexers[] = {{4, 32, true}, {20, 64, true}, {64, 128, true}, {5, 96, false}, {33, 32, false}};
constexpr Blocks kTileChoices[] = {{40, 1, 0}, {5, 2, 1}, {1, 32, 0}, {4, 64, 2}};
constexpr int kRowsTogether[] = {1, 2, 4};
const std::vector<std::vector<AttentionRow>> kSteps{{{0, 383}},
                                                    {{2, 31}, {0, 32}, {3, 0}, {1, 277}, {0, 200}, {0, -1}},
                                                    {{0, 38}, {0, 39}, {0, 40}, {1, 127}, {1, 128}, {0, -1}},
                                                    {{3, 190}, {3, 191}, {3, 192}, {3, 193}, {3, 194}}};
constexpr int kWorkers[] = {1, 3, 8};

struct SelectCase {
  Indexer index;
  Blocks blocks;
  int step, workers, wave;
  const char* tile = nullptr;  ///< of matrix instructions
  int together = 1;            ///< rows that a block scores together, with tiles

  [[nodiscard]] const std::vector<AttentionRow>& rows() const { return kSteps[step]; }
  [[nodiscard]] int total() const { return static_cast<int>(rows().size()); }
  [[nodiscard]] int lists() const { return index.weighted ? 1 : index.heads; }
  [[nodiscard]] int unit() const { return blocks.size % 32 == 0 ? 32 : 1; }  ///< positions of a score
  [[nodiscard]] int scores() const { return kPositions / unit(); }           ///< of a list
  /// Groups of rows, and blocks that score and choose in one launch.
  [[nodiscard]] int row_blocks() const { return std::min(workers, (total() + together - 1) / together); }
  [[nodiscard]] bool chooses(int t) const { return rows()[t].position / blocks.size + 1 > blocks.top_k; }
  [[nodiscard]] std::string text() const {
    return fmt::format(
        "{} heads of {}{}, {} blocks of {}, {} local, step {}, {} workers, wave {}, {}, {} rows together", index.heads,
        index.dim, index.weighted ? ", weighted" : "", blocks.top_k, blocks.size, blocks.local, step, workers, wave,
        tile == nullptr ? "no tiles" : tile, together);
  }
};

std::vector<SelectCase> select_cases() {
  const Choice<5> sizes{std::size(kIndexers), std::size(kChoices), static_cast<int>(kSteps.size()), std::size(kWorkers),
                        std::size(kWaves)};
  std::vector<SelectCase> cases;
  for (const auto& at : cases_of(sizes, [](const Choice<5>&) { return true; }))
    cases.push_back({kIndexers[at[0]], kChoices[at[1]], at[2], kWorkers[at[3]], kWaves[at[4]]});
  return cases;
}
/// The same by matrix instructions. `rows`: how many values of kRowsTogether take part.
std::vector<SelectCase> tile_cases(int rows) {
  const Choice<6> sizes{std::size(kTileIndexers), std::size(kTileChoices),  static_cast<int>(kSteps.size()),
                        std::size(kWorkers),      std::size(kInstructions), rows};
  std::vector<SelectCase> cases;
  const auto fits = [](const Choice<6>& at) { return kTileIndexers[at[0]].heads * kRowsTogether[at[5]] <= 132; };
  for (const auto& at : cases_of(sizes, fits))
    cases.push_back({kTileIndexers[at[0]], kTileChoices[at[1]], at[2], kWorkers[at[3]], kInstructions[at[4]].wave,
                     kInstructions[at[4]].name, kRowsTogether[at[5]]});
  return cases;
}

/// which: "Score", "Select" or "Choose".
WaveText text_of(const SelectCase& c, const std::string& which, int blocks, int threads) {
  const bool tiles = c.tile != nullptr && which != "Choose";
  codegen::KernelText text{.header = tiles ? "kernels/gpu/key_score_tiles.h" : "kernels/gpu/select_keys.h",
                           .kernel = which + (tiles ? "KeyTiles" : "Keys"),
                           .defaults = tiles ? "SelectKeyTilesDefaults" : "SelectKeysDefaults",
                           .before = {}};
  text.config.use("Pool", fmt::format("KvPool<1, {}, {}>", c.index.dim, kBlockTokens))
      .number("kHeads", c.index.heads)
      .number("kTopK", c.blocks.top_k)
      .number("kBlock", c.blocks.size)
      .number("kLocal", c.blocks.local)
      .flag("kWeighted", c.index.weighted)
      .number("kTableBlocks", kTableBlocks)
      .number("kTokensTotal", c.total())
      .number("kWorkers", c.workers)
      .number("kRowBlocks", c.row_blocks())
      .number("kWaves", threads / c.wave);
  const bool copies = tiles && std::string_view(c.tile) == "MmaF16Tile";  // asynchronous
  if (tiles) text.config.use("Tile", c.tile).number("kRowsTogether", c.together).number("kStages", copies ? 2 : 1);
  text.blocks = blocks;
  text.threads = threads;
  return {c.wave, std::move(text), copies ? "sm_90" : nullptr};
}
/// Threads of a block that scores. With tiles each wave has a tile of 16 positions of 64 at least.
int scoring_threads(const SelectCase& c, int most) {
  if (c.tile == nullptr) return (std::min(most, 256) + c.wave - 1) / c.wave * c.wave;
  return std::min(256, c.together * ((c.index.heads + 15) / 16) * 4 * c.wave);
}
WaveText score_text(const SelectCase& c) {
  return text_of(c, "Score", c.total() * c.workers, scoring_threads(c, c.index.heads * 32));
}
WaveText select_text(const SelectCase& c) {
  return text_of(c, "Select", c.row_blocks(), scoring_threads(c, 256));
}

enum class Numbers { kIntegers, kReals };
/// The largest sum of squared errors of real scores, divided by that of squared scores.
constexpr double kErrorMost = 1e-11;

/// A step's index queries and the paged index keys. Positions that no row sees are NaN. Real queries of a head are all
/// large or all small.
struct Step {
  Buffer<float> q, weights;
  Buffer<std::uint16_t> keys;
  Buffer<int> positions, sequences, tables{static_cast<std::size_t>(kSequences) * kTableBlocks}, counts;
  int dim;
  Numbers numbers;

  [[nodiscard]] float number() const {
    const float value = random_floats(1, 1)[0];
    return numbers == Numbers::kReals ? value : std::round(value);
  }

  explicit Step(const SelectCase& c, Numbers kind = Numbers::kIntegers)
      : q(static_cast<std::size_t>(c.total()) * c.index.heads * c.index.dim),
        weights(static_cast<std::size_t>(c.total()) * c.index.heads),
        keys(static_cast<std::size_t>(kSequences) * kPositions * c.index.dim),
        positions(c.total()),
        sequences(c.total()),
        counts(4),
        dim(c.index.dim),
        numbers(kind) {
    for (float& value : std::span(weights.data(), weights.size())) value = number();
    for (std::size_t head = 0; head < weights.size(); ++head) {
      constexpr float kScales[] = {1, 1e-6F, 3e4F};
      const float scale = kind == Numbers::kReals ? kScales[head % std::size(kScales)] : 1;
      for (float& value : std::span(q.data() + head * dim, dim)) value = number() * scale;
      weights[head] /= scale;
    }
    for (auto& value : std::span(keys.data(), keys.size())) value = quant::f16_of_f32(NAN);
    std::vector<int> blocks(tables.size());
    std::iota(blocks.begin(), blocks.end(), 0);
    std::shuffle(blocks.begin(), blocks.end(), random_engine());
    std::ranges::copy(blocks, tables.data());
    counts.fill(-1);
    counts[0] = 0;
    for (int t = 0; t < c.total(); ++t) {
      const auto& row = c.rows()[t];
      positions[t] = row.position;
      sequences[t] = row.sequence;
      counts[0] += row.position >= 0 ? 1 : 0;
      for (int p = 0; p <= row.position; ++p)
        for (int d = 0; d < dim; ++d) {
          auto& key = keys[index(row.sequence, p) + d];
          if (std::isnan(quant::f32_of_f16(key))) key = quant::f16_of_f32(number());
        }
    }
    // A key that is NaN scores worst where its head has a list of its own.
    if (!c.index.weighted) keys[index(0, 5)] = quant::f16_of_f32(NAN);
  }
  [[nodiscard]] std::size_t index(int sequence, int position) const {
    const int block = tables[sequence * kTableBlocks + position / kBlockTokens];
    return (static_cast<std::size_t>(block) * kBlockTokens + position % kBlockTokens) * dim;
  }
  /// The score of a position in a list of row t.
  [[nodiscard]] double score(const SelectCase& c, int t, int list, int position) const {
    double out = 0;
    for (int head = c.index.weighted ? 0 : list; head < (c.index.weighted ? c.index.heads : list + 1); ++head) {
      double dot = 0;
      for (int d = 0; d < dim; ++d)
        dot += static_cast<double>(q[(static_cast<std::size_t>(t) * c.index.heads + head) * dim + d]) *
               quant::f32_of_f16(keys[index(c.rows()[t].sequence, position) + d]);
      out += c.index.weighted ? weights[t * c.index.heads + head] * std::max(dot, 0.0) : dot;
    }
    return std::isnan(out) ? -kInfinity : out;
  }
  [[nodiscard]] KernelArgs args(Buffer<float>& scores, Buffer<int>& out) const {
    return {{q.data(), weights.data(), keys.data(), positions.data(), sequences.data(), tables.data(), counts.data(),
             scores.data(), out.data()}};
  }
};

/// The list of a row at `position` by the scores of its positions.
std::vector<int> chosen(const Blocks& blocks, int position, const std::vector<double>& scores) {
  const int count = position < 0 ? 0 : position / blocks.size + 1;
  std::vector<double> best(count, -kInfinity);
  for (int p = 0; p <= position; ++p) best[p / blocks.size] = std::max(best[p / blocks.size], scores[p]);
  for (int b = std::max(0, count - blocks.local); b < count; ++b) best[b] = kInfinity;
  std::vector<int> order(count);
  std::iota(order.begin(), order.end(), 0);
  std::ranges::stable_sort(order, [&](int a, int b) { return best[a] > best[b]; });
  order.resize(std::min(count, blocks.top_k));
  std::ranges::sort(order);
  order.resize(blocks.top_k, -1);
  return order;
}

/// Checks the lists of all rows that are not in a tile of padding; scores(t, list) gives those of the positions.
template <class Scores>
void check_lists(const SelectCase& c, const Buffer<int>& out, Scores&& scores) {
  for (int t = 0; t < c.total(); ++t)
    for (int list = 0; list < c.lists(); ++list) {
      INFO("row " << t << ", list " << list);
      const int* at = out.data() + static_cast<std::size_t>(t * c.lists() + list) * c.blocks.top_k;
      CHECK(std::vector<int>(at, at + c.blocks.top_k) == chosen(c.blocks, c.rows()[t].position, scores(t, list)));
    }
  out.check();
}

/// Runs ScoreKeys and compares what it writes with the definition.
void check_scores(const SelectCase& c, const Kernel& kernel, Numbers numbers) {
  INFO(c.text() << (numbers == Numbers::kReals ? ", real" : ", integers"));
  const Step step(c, numbers);
  Buffer<float> scores(static_cast<std::size_t>(c.total()) * c.lists() * c.scores());
  Buffer<int> out(0);
  run_in_all_orders(kernel, step.args(scores, out), [&] { scores.fill(NAN); }, [&] { return bytes_of(scores); });
  for (int t = 0; t < c.total(); ++t)
    for (int list = 0; list < c.lists(); ++list) {
      double squares = 0, errors = 0;
      for (int s = 0; s < c.scores(); ++s) {
        const float got = scores[static_cast<std::size_t>(t * c.lists() + list) * c.scores() + s];
        const int position = c.rows()[t].position;
        INFO("row " << t << ", list " << list << ", score " << s << ": " << got);
        if (!c.chooses(t) || s * c.unit() > position) {
          REQUIRE(std::isnan(got));  // not written
          continue;
        }
        double expected = -kInfinity;
        for (int p = s * c.unit(); p < std::min((s + 1) * c.unit(), position + 1); ++p)
          expected = std::max(expected, step.score(c, t, list, p));
        if (numbers == Numbers::kIntegers || std::isinf(expected)) {
          REQUIRE(got == expected);
        } else {
          REQUIRE(std::isfinite(got));
          squares += expected * expected;
          errors += (got - expected) * (got - expected);
        }
      }
      INFO("row " << t << ", list " << list << ": " << errors / squares);
      REQUIRE(errors <= kErrorMost * squares);
    }
  scores.check();
}

/// Runs SelectKeys and compares its lists with the definition.
void check_selection(const SelectCase& c, const Kernel& kernel, Numbers numbers) {
  INFO(c.text() << (numbers == Numbers::kReals ? ", real" : ", integers"));
  const Step step(c, numbers);
  Buffer<float> scores(static_cast<std::size_t>(c.row_blocks()) * c.together * c.lists() * c.scores());
  Buffer<int> out(static_cast<std::size_t>(c.total()) * c.lists() * c.blocks.top_k);
  run_in_all_orders(
      kernel, step.args(scores, out),
      [&] {
        scores.fill(NAN);
        out.fill(-9);
      },
      [&] { return bytes_of(out); });
  check_lists(c, out, [&](int t, int list) {
    std::vector<double> all;
    for (int p = 0; p <= c.rows()[t].position; ++p) all.push_back(step.score(c, t, list, p));
    return all;
  });
  scores.check();
}

}  // namespace

TEST_CASE("index keys are scored exactly, by one worker or several") {
  check_cases(select_cases(), score_text, [](const SelectCase& c, const Kernel& kernel) {
    for (const auto numbers : {Numbers::kIntegers, Numbers::kReals}) check_scores(c, kernel, numbers);
  });
}

TEST_CASE("matrix instructions whose rows are index heads score keys as exactly") {
  check_cases(tile_cases(1), score_text, [](const SelectCase& c, const Kernel& kernel) {
    for (const auto numbers : {Numbers::kIntegers, Numbers::kReals}) check_scores(c, kernel, numbers);
  });
}

TEST_CASE("the best blocks of keys are chosen, of equal ones the earlier") {
  const auto text = [](const SelectCase& c) {
    return text_of(c, "Choose", c.total() * c.lists(), c.workers > 1 ? 256 : 1024);
  };
  check_cases(select_cases(), text, [](const SelectCase& c, const Kernel& kernel) {
    INFO(c.text());
    const Step step(c);
    Buffer<float> scores(static_cast<std::size_t>(c.total()) * c.lists() * c.scores());
    // Few values, so that ties are long; or any values, whose digits all differ.
    constexpr float kFew[] = {-kInfinity, -3.0e38F, -2, -0.0F, 0, 1e-42F, 1, 3.402823466e38F};
    auto values = random_floats(scores.size(), 1);
    for (std::size_t i = 0; i < scores.size(); ++i)
      scores[i] = c.step == 1 ? values[i] : kFew[static_cast<unsigned>(std::fabs(values[i]) * 100) % std::size(kFew)];
    Buffer<int> out(static_cast<std::size_t>(c.total()) * c.lists() * c.blocks.top_k);
    run_in_all_orders(kernel, step.args(scores, out), [&] { out.fill(-9); }, [&] { return bytes_of(out); });
    check_lists(c, out, [&](int t, int list) {
      std::vector<double> all;
      for (int p = 0; p <= c.rows()[t].position; ++p)
        all.push_back(scores[static_cast<std::size_t>(t * c.lists() + list) * c.scores() + p / c.unit()]);
      return all;
    });
  });
}

TEST_CASE("one launch scores and chooses row after row") {
  check_cases(select_cases(), select_text, [](const SelectCase& c, const Kernel& kernel) {
    for (const auto numbers : {Numbers::kIntegers, Numbers::kReals}) check_selection(c, kernel, numbers);
  });
}

TEST_CASE("one launch scores rows of a sequence together by matrix instructions, and chooses the same keys") {
  check_cases(tile_cases(std::size(kRowsTogether)), select_text, [](const SelectCase& c, const Kernel& kernel) {
    for (const auto numbers : {Numbers::kIntegers, Numbers::kReals}) check_selection(c, kernel, numbers);
  });
}

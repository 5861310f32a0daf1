// Attention over the paged pool: ragged rows of several sequences, padding, heads and dimensions of all kinds, whatever
// the number of workers, against softmax in f64.

#include <algorithm>
#include <cmath>
#include <numeric>

#include "kernels/quant/f16.h"
#include "tests/gpu_host/kernel_bench.h"

using namespace forge;
using namespace forge::gpu_host;

namespace {

struct Heads {
  int heads, kv_heads, dim, per_block;  ///< per_block 0: all of a KV head
};
constexpr Heads kHeads[] = {{4, 4, 64, 0}, {6, 2, 32, 0}, {4, 1, 80, 2}, {2, 1, 256, 0}, {3, 3, 16, 1}};
// How a row is cut up.
struct Cut {
  int workers, waves, worker_tokens, team_tokens;
};
constexpr Cut kCuts[] = {{1, 1, 1, 8}, {3, 4, 8, 2}, {8, 1, 32, 1}, {2, 8, 64, 4}};
struct Mask {
  int window;
  float softcap;
  bool sinks = false;
};
constexpr Mask kMasks[] = {{0, 0}, {20, 0}, {0, 30}, {1, 0}, {0, 0, true}, {20, 30, true}};
enum Output { kStored, kQuantised, kBoth, kOutputs };
constexpr int kBlockTokens[] = {16, 32}, kTableBlocks = 12;

/// The rows of a step: sequence and position of each; -1 is padding.
struct Row {
  int sequence, position;
};
const std::vector<std::vector<Row>> kSteps{
    {{0, 0}},                                                         // the first token of all
    {{0, 150}},                                                       // one row, many chunks
    {{2, 31}, {0, 32}, {3, 0}, {1, 77}, {0, -1}},                     // blocks full and begun
    {{0, 15}, {1, 16}, {1, 17}, {1, 18}, {0, -1}, {0, -1}, {0, -1}},  // prefill beside decode
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
     {0, -1}}};  // more than a tile

struct AttentionCase {
  Heads heads;
  Cut cut;
  Mask mask;
  Output output;
  int block_tokens, step, wave;
  [[nodiscard]] const std::vector<Row>& rows() const { return kSteps[step]; }
  [[nodiscard]] int total() const { return static_cast<int>(rows().size()); }
  [[nodiscard]] int real() const {
    return static_cast<int>(std::ranges::count_if(rows(), [](const Row& row) { return row.position >= 0; }));
  }
  [[nodiscard]] int group() const { return heads.per_block > 0 ? heads.per_block : heads.heads / heads.kv_heads; }
  [[nodiscard]] int jobs() const { return heads.heads / group(); }
  [[nodiscard]] int columns() const { return heads.heads * heads.dim; }
  [[nodiscard]] float scale() const { return 1.0F / std::sqrt(static_cast<float>(heads.dim)); }
};

WaveText text_of(const AttentionCase& c) {
  codegen::KernelText text{
      .header = "kernels/gpu/attention.h", .kernel = "Attention", .defaults = "AttentionDefaults", .before = {}};
  text.config
      .use("Pool", "KvPool<" + std::to_string(c.heads.kv_heads) + ", " + std::to_string(c.heads.dim) + ", " +
                       std::to_string(c.block_tokens) + ">")
      .number("kHeads", c.heads.heads)
      .number("kTableBlocks", kTableBlocks)
      .real("kScale", c.scale())
      .number("kTokensTotal", c.total())
      .number("kHeadsPerBlock", c.heads.per_block)
      .number("kWorkers", c.cut.workers)
      .number("kWaves", c.cut.waves)
      .number("kTokensPerWorker", c.cut.worker_tokens)
      .number("kTeamTokens", c.cut.team_tokens)
      .number("kWindow", c.mask.window)
      .real("kSoftcap", c.mask.softcap)
      .flag("kSinks", c.mask.sinks)
      .flag("kStored", c.output != kQuantised)
      .flag("kQuantised", c.output != kStored);
  text.blocks = c.total() * c.jobs() * c.cut.workers;
  text.threads = c.cut.waves * c.wave;
  return {c.wave, std::move(text)};
}

/// Pools of keys and values with what the sequences have so far in them; all else is NaN.
struct Cache {
  static constexpr int kSequences = 4;
  int kv_heads, dim, block_tokens;
  Buffer<std::uint16_t> k, v;
  Buffer<int> tables{static_cast<std::size_t>(kSequences) * kTableBlocks};

  explicit Cache(const AttentionCase& c)
      : kv_heads(c.heads.kv_heads),
        dim(c.heads.dim),
        block_tokens(c.block_tokens),
        k(static_cast<std::size_t>(kSequences) * kTableBlocks * kv_heads * block_tokens * dim),
        v(k.size()) {
    std::vector<int> blocks(tables.size());
    std::iota(blocks.begin(), blocks.end(), 0);
    std::shuffle(blocks.begin(), blocks.end(), random_engine());
    for (int s = 0; s < kSequences; ++s) {
      int length = 0;
      for (const Row& row : c.rows())
        if (row.sequence == s) length = std::max(length, row.position + 1);
      for (int b = 0; b * block_tokens < length; ++b) tables[s * kTableBlocks + b] = blocks[s * kTableBlocks + b];
      for (int token = 0; token < length; ++token)
        for (int head = 0; head < kv_heads; ++head) {
          const auto keys = random_floats(dim), values = random_floats(dim);
          for (int d = 0; d < dim; ++d) {
            k[index(s, token, head, d)] = quant::f16_of_f32(keys[d]);
            v[index(s, token, head, d)] = quant::f16_of_f32(values[d]);
          }
        }
    }
  }
  [[nodiscard]] std::size_t index(int sequence, int token, int head, int d) const {
    const auto block = static_cast<std::size_t>(tables[sequence * kTableBlocks + token / block_tokens]);
    return ((block * kv_heads + head) * block_tokens + token % block_tokens) * dim + d;
  }
};

/// One head of one row, [dim].
std::vector<double> attend(const AttentionCase& c, const Cache& cache, const float* q, const Row& row, int head,
                           float sink) {
  std::vector<double> out(c.heads.dim);
  if (row.position < 0) return out;
  const int kv_head = head / (c.heads.heads / c.heads.kv_heads);
  const int oldest = c.mask.window > 0 ? std::max(0, row.position - c.mask.window + 1) : 0;
  std::vector<double> scores;
  for (int token = oldest; token <= row.position; ++token) {
    double dot = 0;
    for (int d = 0; d < c.heads.dim; ++d)
      dot += static_cast<double>(q[d]) * quant::f32_of_f16(cache.k[cache.index(row.sequence, token, kv_head, d)]);
    dot *= c.scale();
    scores.push_back(c.mask.softcap > 0 ? c.mask.softcap * std::tanh(dot / c.mask.softcap) : dot);
  }
  double most = *std::ranges::max_element(scores);
  if (c.mask.sinks) most = std::max<double>(most, sink);
  double sum = c.mask.sinks ? std::exp(sink - most) : 0;
  for (double& score : scores) sum += score = std::exp(score - most);
  for (std::size_t i = 0; i < scores.size(); ++i)
    for (int d = 0; d < c.heads.dim; ++d)
      out[d] += scores[i] / sum *
                quant::f32_of_f16(cache.v[cache.index(row.sequence, oldest + static_cast<int>(i), kv_head, d)]);
  return out;
}

void check_attention(const AttentionCase& c, const Kernel& kernel) {
  INFO(c.heads.heads << '/' << c.heads.kv_heads << " heads of " << c.heads.dim << ", workers " << c.cut.workers
                     << ", waves " << c.cut.waves << ", team tokens " << c.cut.team_tokens << ", window "
                     << c.mask.window << ", softcap " << c.mask.softcap << ", output " << c.output << ", block "
                     << c.block_tokens << ", step " << c.step << ", wave " << c.wave);
  const Cache cache(c);
  const int total = c.total(), real = c.real(), columns = c.columns();
  const auto q_values = random_floats(static_cast<std::size_t>(real) * columns);
  Buffer<float> q(static_cast<std::size_t>(total) * columns), out(q.size());
  std::ranges::copy(q_values, q.data());
  Buffer<int> positions(total), sequences(total);
  for (int t = 0; t < total; ++t) {
    positions[t] = c.rows()[t].position;
    sequences[t] = c.rows()[t].sequence;
  }
  const Buffer<int> counts = Buffer<int>::of({real, -1, -1, -1});
  Buffer<float> scratch(static_cast<std::size_t>(total) * c.jobs() * c.cut.workers * c.group() * (c.heads.dim + 2));
  Buffer<std::uint32_t> counters(static_cast<std::size_t>(total) * c.jobs());
  counters.fill(0);
  const Buffer<float> sinks{std::span<const float>(random_floats(static_cast<std::size_t>(c.heads.heads), 3))};
  const bool quantises = c.output != kStored;
  Buffer<std::byte> rows(quantises ? total * q8_row_bytes(columns) : 0);
  const KernelArgs args({q.data(), cache.k.data(), cache.v.data(), positions.data(), sequences.data(),
                         cache.tables.data(), counts.data(), scratch.data(), counters.data(), out.data(), rows.data(),
                         sinks.data()});
  run_in_all_orders(
      kernel, args,
      [&] {
        scratch.fill(NAN);
        out.fill(NAN);
      },
      [&] {
        auto bytes = bytes_of(out);
        const auto more = bytes_of(rows);
        bytes.insert(bytes.end(), more.begin(), more.end());
        return bytes;
      });

  const auto result = c.output == kQuantised ? values_of_rows(rows.data(), total, columns) : out.values();
  // tiles of 16 rows without a real one are left alone, but for a grid of one row
  const int made = std::min(total, (real + 15) / 16 * 16);
  for (int t = 0; t < made; ++t)
    for (int head = 0; head < c.heads.heads; ++head) {
      const auto at = static_cast<std::size_t>(t) * columns + head * c.heads.dim;
      const auto expected = attend(c, cache, t < real ? &q_values[at] : nullptr, c.rows()[t], head, sinks[head]);
      for (int d = 0; d < c.heads.dim; ++d) {
        INFO("row " << t << ", head " << head << ", dim " << d << ": " << result[at + d] << ", expected "
                    << expected[d]);
        REQUIRE(std::fabs(result[at + d] - expected[d]) <= (c.output == kQuantised ? 0.03 : 2e-5));
      }
    }
  if (c.output == kBoth) {
    const auto quantised = quantise_rows({out.data(), out.data() + static_cast<std::size_t>(made) * columns}, columns);
    for (std::size_t i = 0; i < quantised.size(); ++i)
      if (i % q8_row_bytes(columns) < static_cast<std::size_t>(columns + columns / 4)) REQUIRE(rows[i] == quantised[i]);
  }
  for (std::size_t i = 0; i < counters.size(); ++i) REQUIRE(counters[i] == 0);
  for (const auto* buffer : {&q, &out, &scratch}) buffer->check();
  counters.check();
  rows.check();
}

}  // namespace

TEST_CASE("attention gives softmax(q k) v for heads, masks, cuts and steps of all kinds") {
  const Choice<7> sizes{std::size(kHeads), std::size(kCuts),        std::size(kMasks),
                        kOutputs,          std::size(kBlockTokens), static_cast<int>(kSteps.size()),
                        std::size(kWaves)};
  const auto case_of = [](const Choice<7>& at) {
    return AttentionCase{kHeads[at[0]],       kCuts[at[1]], kMasks[at[2]], Output(at[3]),
                         kBlockTokens[at[4]], at[5],        kWaves[at[6]]};
  };
  std::vector<AttentionCase> cases;
  for (const auto& choice : cases_of(sizes, [&](const Choice<7>& at) {
         const auto c = case_of(at);
         return c.output == kStored || c.columns() % 32 == 0;  // rows of quantised activations have whole blocks
       }))
    cases.push_back(case_of(choice));
  check_cases(cases, text_of, check_attention);
}

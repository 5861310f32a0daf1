// Builds the paged KV cache and the reference (softmax in f64) for the attention kernel tests, and checks all outputs.
#include "tests/gpu_host/attention_case.h"

#include <algorithm>
#include <climits>
#include <cmath>
#include <numeric>

#include "ir/attrs.h"
#include "kernels/quant/f16.h"

namespace forge::gpu_host {
namespace {

/// The key and value pools. Positions that some row attends to hold random numbers; everything else is NaN, so that a
/// kernel that reads a wrong position gives NaN.
struct Cache {
  static constexpr int kSequences = 4;
  int kv_heads, dim, block_tokens;
  Buffer<std::uint16_t> k, v;
  Buffer<int> tables{static_cast<std::size_t>(kSequences) * kTableBlocks};

  explicit Cache(const AttentionProblem& c)
      : kv_heads(c.heads.kv_heads),
        dim(c.heads.dim),
        block_tokens(c.block_tokens),
        k(static_cast<std::size_t>(kSequences) * kTableBlocks * kv_heads * block_tokens * dim),
        v(k.size()) {
    std::vector<int> blocks(tables.size());
    std::iota(blocks.begin(), blocks.end(), 0);
    std::shuffle(blocks.begin(), blocks.end(), random_engine());
    for (int s = 0; s < kSequences; ++s) {
      int length = 0, oldest = INT_MAX;  // positions that no row attends to stay NaN
      for (const AttentionRow& row : c.rows) {
        if (row.sequence != s || row.position < 0) continue;
        length = std::max(length, row.position + 1);
        oldest = std::min(oldest, c.mask.oldest(row.position));
      }
      for (int b = 0; b * block_tokens < length; ++b) tables[s * kTableBlocks + b] = blocks[s * kTableBlocks + b];
      for (int token = oldest; token < length; ++token)
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

/// Attention of one head of one row, in f64. Returns [dim].
std::vector<double> attend(const AttentionProblem& c, const Cache& cache, const float* q, const AttentionRow& row,
                           int head, float sink) {
  std::vector<double> out(c.value_dim());
  if (row.position < 0) return out;
  const int kv_head = head / (c.heads.heads / c.heads.kv_heads);
  const int oldest = c.mask.oldest(row.position);
  std::vector<double> scores;
  for (int token = oldest; token <= row.position; ++token) {
    double dot = 0;
    for (int d = 0; d < c.heads.dim; ++d)
      dot += static_cast<double>(q[d]) * quant::f32_of_f16(cache.k[cache.index(row.sequence, token, kv_head, d)]);
    dot *= c.scale();
    if (c.mask.softcap > 0) dot = c.mask.softcap * std::tanh(dot / c.mask.softcap);
    if (c.mask.alibi > 0)
      dot -= static_cast<double>(ir::alibi_slope(c.mask.alibi, c.heads.heads, head)) * (row.position - token);
    scores.push_back(dot);
  }
  double most = *std::ranges::max_element(scores);
  if (c.mask.sinks) most = std::max<double>(most, sink);
  double sum = c.mask.sinks ? std::exp(sink - most) : 0;
  for (double& score : scores) sum += score = std::exp(score - most);
  for (std::size_t i = 0; i < scores.size(); ++i)
    for (int d = 0; d < c.value_dim(); ++d)
      out[d] +=
          scores[i] / sum *
          quant::f32_of_f16(
              (c.latent > 0 ? cache.k : cache.v)[cache.index(row.sequence, oldest + static_cast<int>(i), kv_head, d)]);
  return out;
}

}  // namespace

void AttentionProblem::write_to(codegen::ConfigText& out) const {
  out.use("Pool", "KvPool<" + std::to_string(heads.kv_heads) + ", " + std::to_string(heads.dim) + ", " +
                      std::to_string(block_tokens) + ">")
      .number("kHeads", heads.heads)
      .number("kTableBlocks", kTableBlocks)
      .real("kScale", scale())
      .number("kTokensTotal", total())
      .number("kWindow", mask.window)
      .number("kChunkedTo", mask.chunk)
      .real("kSoftcap", mask.softcap)
      .real("kAlibi", mask.alibi)
      .flag("kSinks", mask.sinks)
      .flag("kStored", output != kQuantised)
      .number("kTerms", terms());
}

void check_attention(const AttentionProblem& c, const Kernel& kernel) {
  INFO(c.heads.heads << '/' << c.heads.kv_heads << " heads of " << c.heads.dim << ", window " << c.mask.window
                     << ", chunk " << c.mask.chunk << ", alibi " << c.mask.alibi << ", softcap " << c.mask.softcap
                     << ", sinks " << c.mask.sinks << ", output " << c.output << ", block " << c.block_tokens);
  const Cache cache(c);
  const int total = c.total(), real = c.real(), columns = c.columns();
  const int query_columns = c.heads.heads * c.heads.dim;
  const auto q_values = random_floats(static_cast<std::size_t>(real) * query_columns);
  Buffer<float> q(static_cast<std::size_t>(total) * query_columns), out(static_cast<std::size_t>(total) * columns);
  std::ranges::copy(q_values, q.data());
  Buffer<int> positions(total), sequences(total);
  for (int t = 0; t < total; ++t) {
    positions[t] = c.rows[t].position;
    sequences[t] = c.rows[t].sequence;
  }
  const Buffer<int> counts = Buffer<int>::of({real, -1, -1, -1});
  Buffer<float> scratch(static_cast<std::size_t>(total) * c.heads.heads * c.workers * (c.heads.dim + 2));
  Buffer<std::uint32_t> counters(static_cast<std::size_t>(total) * c.heads.heads);
  counters.fill(0);
  const Buffer<float> sinks{std::span<const float>(random_floats(static_cast<std::size_t>(c.heads.heads), 3))};
  const bool quantises = c.output != kStored;
  Buffer<std::byte> rows(quantises ? total * c.terms() * q8_row_bytes(columns) : 0);
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

  const auto result = c.output == kQuantised ? values_of_rows(rows.data(), total, columns, c.terms()) : out.values();
  // Tiles of 16 rows that hold only padding are not written, except where the grid is a single row.
  const int made = std::min(total, (real + 15) / 16 * 16);
  for (int t = 0; t < made; ++t)
    for (int head = 0; head < c.heads.heads; ++head) {
      const auto at = static_cast<std::size_t>(t) * columns + head * c.value_dim();
      const auto from = static_cast<std::size_t>(t) * query_columns + head * c.heads.dim;
      const auto expected = attend(c, cache, t < real ? &q_values[from] : nullptr, c.rows[t], head, sinks[head]);
      for (int d = 0; d < c.value_dim(); ++d) {
        INFO("row " << t << ", head " << head << ", dim " << d << ": " << result[at + d] << ", expected "
                    << expected[d]);
        REQUIRE(std::fabs(result[at + d] - expected[d]) <= (c.output == kQuantised ? 0.03 : c.tolerance));
      }
    }
  if (c.output == kBoth) {
    const auto quantised =
        quantise_rows({out.data(), out.data() + static_cast<std::size_t>(made) * columns}, columns, c.terms());
    for (std::size_t i = 0; i < quantised.size(); ++i)
      if (is_written(i, columns)) REQUIRE(rows[i] == quantised[i]);
  }
  for (std::size_t i = 0; i < counters.size(); ++i) REQUIRE(counters[i] == 0);
  for (const auto* buffer : {&q, &out, &scratch}) buffer->check();
  counters.check();
  rows.check();
}

}  // namespace forge::gpu_host

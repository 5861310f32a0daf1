// Builds the paged KV cache and the reference (softmax in f64) for the attention kernel tests, and checks all outputs.
#include "tests/gpu_host/attention_case.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <numeric>

#include "ir/attrs.h"
#include "kernels/quant/f16.h"

namespace forge::gpu_host {
namespace {

/// The lists of selected blocks, [rows][lists][count]: ascending, then -1.
struct SelectedBlocks {
  AttentionSelection selection;
  Buffer<int> entries;

  explicit SelectedBlocks(const AttentionProblem& c)
      : selection(c.selection), entries(c.rows.size() * selection.lists * selection.count) {
    int* at = entries.data();
    for (const AttentionRow& row : c.rows)
      for (int list = 0; list < selection.lists && selection.count > 0; ++list, at += selection.count) {
        std::vector<int> blocks(row.position < 0 ? 0 : row.position / selection.block + 1);
        std::iota(blocks.begin(), blocks.end(), 0);
        std::vector<int> some;
        std::ranges::sample(blocks, std::back_inserter(some), selection.count, random_engine());
        some.resize(selection.count, -1);
        std::ranges::copy(some, at);
      }
  }
  /// True if row t, whose mask lets it see `position`, sees it.
  [[nodiscard]] bool sees(int t, int kv_head, int position) const {
    if (selection.count == 0) return true;
    const int list = t * selection.lists + (selection.lists > 1 ? kv_head : 0);
    const auto own = std::span(entries.data(), entries.size()).subspan(list * selection.count, selection.count);
    return std::ranges::find(own, position / selection.block) != own.end();
  }
};

/// The key and value pools. Positions that some row attends to hold random numbers; everything else is NaN, so that a
/// kernel that reads a wrong position gives NaN.
struct Cache {
  static constexpr int kSequences = 4;
  int kv_heads, block_tokens;
  KvRows k, v;
  Buffer<int> tables{static_cast<std::size_t>(kSequences) * kTableBlocks};

  Cache(const AttentionProblem& c, const SelectedBlocks& selected, bool fnuz)
      : kv_heads(c.heads.kv_heads),
        block_tokens(c.block_tokens),
        k(c.kv, kSequences * kTableBlocks, kv_heads, block_tokens, c.heads.dim, fnuz),
        v(c.kv, kSequences * kTableBlocks, kv_heads, block_tokens, c.value_dim(), fnuz) {
    std::vector<int> blocks(tables.size());
    std::iota(blocks.begin(), blocks.end(), 0);
    std::shuffle(blocks.begin(), blocks.end(), random_engine());
    for (int s = 0; s < kSequences; ++s) {
      int length = 0;
      for (const AttentionRow& row : c.rows)
        if (row.sequence == s) length = std::max(length, row.position + 1);
      for (int b = 0; b * block_tokens < length; ++b) tables[s * kTableBlocks + b] = blocks[s * kTableBlocks + b];
      const auto is_seen = [&](int token, int head) {
        for (int t = 0; t < c.total(); ++t) {
          const auto& row = c.rows[t];
          if (row.sequence == s && token >= c.mask.oldest(row.position) && token <= row.position &&
              selected.sees(t, head, token))
            return true;
        }
        return false;
      };
      for (int token = 0; token < length; ++token)
        for (int head = 0; head < kv_heads; ++head) {
          if (!is_seen(token, head)) continue;
          k.put(index(s, token, head), random_floats(c.heads.dim, 1 + c.growth * static_cast<float>(token)));
          v.put(index(s, token, head), random_floats(c.heads.dim));
        }
    }
  }
  /// The number of a row.
  [[nodiscard]] std::size_t index(int sequence, int token, int head) const {
    const auto block = static_cast<std::size_t>(tables[sequence * kTableBlocks + token / block_tokens]);
    return (block * kv_heads + head) * block_tokens + token % block_tokens;
  }
};

/// Attention of one head of row t, in f64. Returns [dim].
std::vector<double> attend(const AttentionProblem& c, const Cache& cache, const SelectedBlocks& selected,
                           const float* q, int t, int head, float sink) {
  const AttentionRow& row = c.rows[t];
  std::vector<double> out(c.value_dim());
  if (row.position < 0) return out;
  const int kv_head = head / (c.heads.heads / c.heads.kv_heads);
  std::vector<double> scores;
  std::vector<int> tokens;
  for (int token = c.mask.oldest(row.position); token <= row.position; ++token) {
    if (!selected.sees(t, kv_head, token)) continue;
    tokens.push_back(token);
    double dot = 0;
    for (int d = 0; d < c.heads.dim; ++d)
      dot += static_cast<double>(q[d]) * cache.k.get(cache.index(row.sequence, token, kv_head), d);
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
          scores[i] / sum * (c.latent > 0 ? cache.k : cache.v).get(cache.index(row.sequence, tokens[i], kv_head), d);
  return out;
}

}  // namespace

void AttentionProblem::write_to(codegen::ConfigText& out) const {
  out.use("Pool", "KvPool<" + std::to_string(heads.kv_heads) + ", " + std::to_string(heads.dim) + ", " +
                      std::to_string(block_tokens) + ", " + KvRows::format_of(kv) + ">")
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
      .number("kFormat", terms());
  if (narrow > 0) out.number("kValueDim", narrow);
  if (selection.count > 0) out.number("kSelected", selection.count).number("kSelectedBlock", selection.block);
}

void check_attention(const AttentionProblem& c, const Kernel& kernel) {
  INFO(c.heads.heads << '/' << c.heads.kv_heads << " heads of " << c.heads.dim << ", window " << c.mask.window
                     << ", chunk " << c.mask.chunk << ", alibi " << c.mask.alibi << ", softcap " << c.mask.softcap
                     << ", sinks " << c.mask.sinks << ", output " << c.output << ", block " << c.block_tokens
                     << ", cache " << dtype_name(c.kv) << ", selected " << c.selection.count << " of "
                     << c.selection.block);
  const SelectedBlocks selected(c);
  const Cache cache(c, selected, kernel.code.wave == 64);
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
  // Kernels for latents compute up to 31 heads that do not exist, and merge the workers' shares in groups.
  const int heads = c.latent > 0 ? (c.heads.heads + 31) / 32 * 32 : c.heads.heads;
  Buffer<float> scratch(static_cast<std::size_t>(total) * heads * c.workers * (c.heads.dim + 2));
  Buffer<std::uint32_t> counters(static_cast<std::size_t>(total) * heads * (c.latent > 0 ? 1 + c.workers : 1));
  counters.fill(0);
  const Buffer<float> sinks{std::span<const float>(random_floats(static_cast<std::size_t>(c.heads.heads), 3))};
  const bool quantises = c.output != kStored;
  Buffer<std::byte> rows(quantises ? total * c.terms() * q8_row_bytes(columns) : 0);
  const KernelArgs args({q.data(), cache.k.data(), cache.v.data(), positions.data(), sequences.data(),
                         cache.tables.data(), counts.data(), scratch.data(), counters.data(), out.data(), rows.data(),
                         sinks.data(), selected.entries.data()});
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
      const auto expected = attend(c, cache, selected, t < real ? &q_values[from] : nullptr, t, head, sinks[head]);
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

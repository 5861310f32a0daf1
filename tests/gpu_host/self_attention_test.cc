// Attention of encoders (kernels/gpu/self_attention.h) against a definition in double.

#include <algorithm>
#include <cmath>
#include <numbers>

#include "ir/attrs.h"
#include "tests/gpu_host/kernel_bench.h"
#include "tests/support/kernel_macros.h"

using namespace forge;
using namespace forge::gpu_host;

namespace {

constexpr int kTotal = 160, kReal = 150, kGap = 3;  ///< tokens that memory has, those of the step; floats between rows

struct SelfCase {
  int heads, kv_heads, dim, reach, lanes, keys;
  float alibi = 0;
};

/// The sequence of each token: runs of 1, 2, 70, 5 and then all other tokens.
std::vector<int> sequences() {
  std::vector<int> out;
  for (int s = 0; const int count : {1, 2, 70, 5, kReal - 78})
    out.insert(out.end(), static_cast<std::size_t>(count), s++);
  out.resize(kTotal, 0);
  return out;
}

WaveText text_of(const SelfCase& c, int wave) {
  codegen::KernelText text{
      .header = "kernels/gpu/self_attention.h", .kernel = "SelfAttention", .defaults = {}, .before = {}};
  const int waves = 2, queries = waves * wave / c.lanes;
  text.threads = waves * wave;
  text.blocks = c.heads * ((kTotal + queries - 1) / queries);
  text.config.number("kHeads", c.heads)
      .number("kKvHeads", c.kv_heads)
      .number("kHeadDim", c.dim)
      .number("kReach", c.reach)
      .real("kAlibi", c.alibi)
      .real("kScale", std::numbers::log2e_v<float> / std::sqrt(static_cast<float>(c.dim)))
      .number("kLanes", c.lanes)
      .number("kKeys", c.keys)
      .number("kWaves", waves)
      .number("kTokensTotal", kTotal)
      .number("kQFloats", c.heads * c.dim + kGap)
      .number("kKFloats", c.kv_heads * c.dim + kGap)
      .number("kVFloats", c.kv_heads * c.dim)
      .number("kOutFloats", c.heads * c.dim + kGap);
  return {wave, std::move(text)};
}

/// The result's element for token t, head h and column n.
double expected_at(const SelfCase& c, const std::vector<float>& q, const std::vector<float>& k,
                   const std::vector<float>& v, const std::vector<int>& of, int t, int h, int n) {
  const int kv = h / (c.heads / c.kv_heads), q_row = c.heads * c.dim + kGap, k_row = c.kv_heads * c.dim + kGap;
  double total = 0, sum = 0;
  for (int j = 0; j < kReal; ++j) {
    if (of[j] != of[t] || (c.reach >= 0 && std::abs(j - t) > c.reach)) continue;
    double dot = 0;
    for (int i = 0; i < c.dim; ++i) dot += double{q[t * q_row + h * c.dim + i]} * k[j * k_row + kv * c.dim + i];
    const double slope = c.alibi > 0 ? ir::alibi_slope(c.alibi, c.heads, h) : 0;
    const double weight = std::exp(dot / std::sqrt(c.dim) - slope * std::abs(j - t));
    total += weight;
    sum += weight * v[(j * c.kv_heads + kv) * c.dim + n];
  }
  return sum / total;
}

void check(const SelfCase& c, int wave) {
  CAPTURE(wave, c.heads, c.kv_heads, c.dim, c.reach, c.lanes, c.keys);
  const auto rows = [](int columns) { return random_floats(static_cast<std::size_t>(kTotal) * columns); };
  auto q = rows(c.heads * c.dim + kGap);
  for (auto& value : q) value *= 4;  // so that some weights are nearly 1
  const auto k = rows(c.kv_heads * c.dim + kGap), v = rows(c.kv_heads * c.dim);
  const auto of = sequences();
  const Buffer<float> q_buffer{std::span<const float>(q)}, k_buffer{std::span<const float>(k)},
      v_buffer{std::span<const float>(v)};
  const Buffer<int> counts = Buffer<int>::of({kReal, -1, -1, -1}), sequence{std::span<const int>(of)};
  const int out_row = c.heads * c.dim + kGap;
  Buffer<float> out(static_cast<std::size_t>(kTotal) * out_row);
  run_in_all_orders(
      build_kernels({text_of(c, wave)})[0],
      KernelArgs({q_buffer.data(), k_buffer.data(), v_buffer.data(), counts.data(), sequence.data(), out.data()}),
      [] {}, [&] { return bytes_of(out); });
  out.check();
  for (int t = 0; t < kTotal; ++t) {
    for (int i = 0; i < kGap; ++i) REQUIRE(std::isnan(out[t * out_row + c.heads * c.dim + i]));
    if (t >= kReal) {
      REQUIRE(std::isnan(out[t * out_row]));
      continue;
    }
    for (int h = 0; h < c.heads; ++h)
      for (int n = 0; n < c.dim; n += 5)
        REQUIRE(out[t * out_row + h * c.dim + n] ==
                Approx(expected_at(c, q, k, v, of, t, h, n)).epsilon(1e-4).margin(1e-4));
  }
}

}  // namespace

TEST_CASE("self-attention sees its own sequence on both sides, whole or within reach") {
  for (const int wave : kWaves)
    for (const SelfCase& c : {SelfCase{2, 2, 32, -1, 1, 16},
                              {3, 1, 20, 4, 2, 8},
                              {2, 1, 64, 0, 2, 32},
                              {1, 1, 136, 40, 8, 8},
                              {3, 3, 32, -1, 1, 16, 8}})
      check(c, wave);
}

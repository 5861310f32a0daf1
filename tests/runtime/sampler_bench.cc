// Time of one draw from a vocabulary of 262,144 tokens with common filter settings.
#include <benchmark/benchmark.h>

#include <random>

#include "runtime/sampler.h"

namespace {

using forge::runtime::Sampler;
using forge::runtime::SamplerParams;

constexpr std::size_t kVocab = 262'144;

void bench(benchmark::State& state, SamplerParams params, float spread) {
  std::mt19937 random(1);
  std::normal_distribution<float> normal(0, spread);
  std::vector<float> logits(kVocab);
  for (float& logit : logits) logit = normal(random);
  forge::runtime::SamplerScratch scratch(kVocab);
  Sampler sampler(kVocab, params);
  for (auto _ : state) benchmark::DoNotOptimize(sampler.sample(logits, scratch));
}

SamplerParams with(float temperature, int top_k, float top_p, float min_p, float typical_p = 1) {
  SamplerParams params;
  params.temperature = temperature;
  params.top_k = top_k;
  params.top_p = top_p;
  params.min_p = min_p;
  params.typical_p = typical_p;
  return params;
}

BENCHMARK_CAPTURE(bench, greedy, with(0, 0, 1, 0), 3.0F)->Unit(benchmark::kMicrosecond);
BENCHMARK_CAPTURE(bench, temperature_only, with(1, 0, 1, 0), 3.0F)->Unit(benchmark::kMicrosecond);
BENCHMARK_CAPTURE(bench, top_k_40_top_p, with(0.8F, 40, 0.95F, 0.05F), 3.0F)->Unit(benchmark::kMicrosecond);
BENCHMARK_CAPTURE(bench, top_p_peaked, with(0.8F, 0, 0.95F, 0), 5.0F)->Unit(benchmark::kMicrosecond);
BENCHMARK_CAPTURE(bench, top_p_flat, with(0.8F, 0, 0.95F, 0), 0.5F)->Unit(benchmark::kMicrosecond);
BENCHMARK_CAPTURE(bench, min_p, with(0.8F, 0, 1, 0.05F), 3.0F)->Unit(benchmark::kMicrosecond);
BENCHMARK_CAPTURE(bench, typical, with(0.8F, 0, 1, 0, 0.9F), 3.0F)->Unit(benchmark::kMicrosecond);

}  // namespace

BENCHMARK_MAIN();

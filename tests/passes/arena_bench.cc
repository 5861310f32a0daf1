// Time to pack an arena, and the ratio of the packed size to the lower bound (counter "ratio").

#include <benchmark/benchmark.h>

#include <random>

#include "passes/schedule/pack_arena.h"

namespace {

using forge::passes::Interval;

/// Seven buffers per layer, each used only by the next steps, as in a fused decoder.
std::vector<Interval> layered(std::int64_t layers) {
  std::vector<Interval> out;
  for (std::int32_t l = 0; l < static_cast<std::int32_t>(layers); ++l)
    for (std::int32_t k = 0; k < 7; ++k) out.push_back({5 * l + k % 5, 5 * l + k % 5 + 1 + k % 3, 4096 * (1 + k * k)});
  return out;
}

std::vector<Interval> random_intervals(std::int64_t count) {
  std::mt19937 random(7);
  std::vector<Interval> out;
  for (std::int64_t i = 0; i < count; ++i) {
    const auto first = static_cast<std::int32_t>(random() % 200);
    out.push_back(
        {first, first + static_cast<std::int32_t>(random() % 40), static_cast<std::int64_t>(random() % 50'000)});
  }
  return out;
}

void pack(benchmark::State& state, const std::vector<Interval>& intervals) {
  double ratio = 0;
  for (auto _ : state) {
    const auto packing = forge::passes::pack_arena(intervals, 64);
    ratio = double(packing.bytes) / double(packing.bound_bytes);
    benchmark::DoNotOptimize(packing.bytes);
  }
  state.counters["ratio"] = ratio;
}

void BM_layered(benchmark::State& state) {
  pack(state, layered(state.range(0)));
}
void BM_random(benchmark::State& state) {
  pack(state, random_intervals(state.range(0)));
}
BENCHMARK(BM_layered)->Arg(30)->Arg(80)->Arg(126)->Unit(benchmark::kMillisecond);
BENCHMARK(BM_random)->Arg(100)->Arg(400)->Unit(benchmark::kMillisecond);

}  // namespace

BENCHMARK_MAIN();

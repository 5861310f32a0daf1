// Time to read and write a plan file of about 2 MB (30 layers, 8 variants). Reading it is part of the start-up time
// before the first step.
#include <benchmark/benchmark.h>

#include "tests/runtime/plan_samples.h"

namespace {

void bench_read_plan(benchmark::State& state) {
  const forge::test::TemporaryDirectory directory;
  const auto path = directory.path / "model.plan";
  forge::plan::write_plan(path, forge::test::sample_plan(1200, 400'000));
  for (auto _ : state) benchmark::DoNotOptimize(forge::plan::read_plan(path));
  state.counters["MB"] = static_cast<double>(std::filesystem::file_size(path)) * 1e-6;
}
BENCHMARK(bench_read_plan)->Unit(benchmark::kMillisecond);

void bench_write_plan(benchmark::State& state) {
  const forge::test::TemporaryDirectory directory;
  const auto plan = forge::test::sample_plan(1200, 400'000);
  for (auto _ : state) forge::plan::write_plan(directory.path / "model.plan", plan);
}
BENCHMARK(bench_write_plan)->Unit(benchmark::kMillisecond);

}  // namespace

BENCHMARK_MAIN();

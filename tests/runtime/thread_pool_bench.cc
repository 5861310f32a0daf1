// Fork-join round trips of the thread pool: back to back, after a pause in which the workers fell asleep, and with many
// tasks.
#include <benchmark/benchmark.h>

#include <chrono>
#include <thread>

#include "runtime/thread_pool.h"

namespace {

void bench_hot(benchmark::State& state) {
  forge::runtime::ThreadPool pool(static_cast<std::size_t>(state.range(0)));
  const auto tasks = static_cast<std::size_t>(state.range(1));
  for (auto _ : state) pool.run(tasks, [](std::size_t task, std::size_t) { benchmark::DoNotOptimize(task); });
}
BENCHMARK(bench_hot)->ArgNames({"threads", "tasks"})->Args({1, 2})->Args({2, 2})->Args({2, 64})->UseRealTime();

void bench_after_sleep(benchmark::State& state) {
  forge::runtime::ThreadPool pool(2);
  for (auto _ : state) {
    std::this_thread::sleep_for(std::chrono::microseconds(300));
    const auto start = std::chrono::steady_clock::now();
    pool.run(2, [](std::size_t task, std::size_t) { benchmark::DoNotOptimize(task); });
    state.SetIterationTime(std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count());
  }
}
BENCHMARK(bench_after_sleep)->UseManualTime();

}  // namespace

BENCHMARK_MAIN();

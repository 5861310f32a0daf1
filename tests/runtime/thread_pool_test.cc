// The thread pool: every task runs exactly once, writes of one run are visible in the next, sleeping workers wake, idle
// threads use no CPU time, and runs do not allocate. Races show under ThreadSanitizer.
#include "runtime/thread_pool.h"

#include <sched.h>
#include <time.h>

#include <atomic>
#include <catch2/catch.hpp>
#include <chrono>
#include <numeric>
#include <thread>
#include <vector>

#include "support/error.h"
#include "tests/runtime/allocation_counter.h"

namespace forge {
namespace {

using namespace std::chrono_literals;
using runtime::ThreadPool;

double cpu_seconds() {
  timespec used{};
  ::clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &used);
  return static_cast<double>(used.tv_sec) + 1e-9 * static_cast<double>(used.tv_nsec);
}

TEST_CASE("every task runs once, for any numbers of tasks and threads") {
  for (const std::size_t threads : {1, 2, 3, 8}) {
    ThreadPool pool(threads);
    REQUIRE(pool.size() == threads);
    for (const std::size_t tasks : {0, 1, 2, 3, 7, 64, 1000}) {
      std::vector<int> hits(tasks), worker_of(tasks, -1);
      pool.run(tasks,
               [&](std::size_t task, std::size_t worker) {  // plain ints: running a task twice would be a data race
                 ++hits[task];
                 worker_of[task] = static_cast<int>(worker);
               });
      CHECK(std::accumulate(hits.begin(), hits.end(), std::size_t{0}) == tasks);
      for (std::size_t i = 0; i < tasks; ++i) {
        CHECK(hits[i] == 1);
        CHECK(static_cast<std::size_t>(worker_of[i]) < threads);
      }
    }
  }
}

TEST_CASE("many short runs see each other's writes") {
  ThreadPool pool(3);
  std::vector<std::uint64_t> values(5, 0);
  for (std::uint64_t run = 0; run < 20'000; ++run) {
    pool.run(values.size(), [&](std::size_t task, std::size_t) { values[task] = values[task] * 3 + run; });
    values[run % 5] += values[(run + 1) % 5];
  }
  std::vector<std::uint64_t> expected(5, 0);
  for (std::uint64_t run = 0; run < 20'000; ++run) {
    for (auto& value : expected) value = value * 3 + run;
    expected[run % 5] += expected[(run + 1) % 5];
  }
  CHECK(values == expected);
}

TEST_CASE("runs of varied length with pauses wake sleeping workers and lose no task") {
  ThreadPool pool(4);
  std::atomic<std::uint64_t> sum{0};
  std::uint64_t expected = 0;
  for (std::uint64_t run = 0; run < 300; ++run) {
    const std::size_t tasks = run * 7 % 23;
    pool.run(tasks, [&](std::size_t task, std::size_t) { sum += task; });
    expected += tasks * (tasks > 0 ? tasks - 1 : 0) / 2;
    if (run % 3 == 0) std::this_thread::sleep_for(std::chrono::microseconds(run % 200));
  }
  CHECK(sum == expected);
}

TEST_CASE("more tasks than a claim word holds are split into several runs") {
  ThreadPool pool(2);
  const std::size_t tasks = (std::size_t{1} << 24) + 12345;
  std::vector<std::uint8_t> hit(tasks);
  pool.run(tasks, [&](std::size_t task, std::size_t) { ++hit[task]; });
  CHECK(std::all_of(hit.begin(), hit.end(), [](auto h) { return h == 1; }));
}

TEST_CASE("a slow worker holds one task, the others take the rest") {
  ThreadPool pool(2);
  std::atomic<int> tasks_of[2]{};
  std::atomic<bool> blocked{false}, release{false};
  // The first worker thread that takes a task stays in it until the caller has done the other 199.
  pool.run(200, [&](std::size_t, std::size_t worker) {
    if (worker == 1 && !blocked.exchange(true)) {
      while (!release) std::this_thread::sleep_for(100us);
    } else if (!blocked) {
      std::this_thread::sleep_for(200us);  // gives the worker time to take a task
    }
    if (++tasks_of[worker] == (blocked ? 199 : 200) && worker == 0) release = true;
    if (tasks_of[0] + (blocked ? 1 : 0) >= 200) release = true;
  });
  CHECK(tasks_of[0] + tasks_of[1] == 200);
  CHECK(tasks_of[0] >= 199);
}

TEST_CASE("an idle pool and a caller that waits long use no CPU time") {
  ThreadPool pool(2);
  pool.run(2, [](std::size_t, std::size_t) {});
  const double before_idle = cpu_seconds();
  std::this_thread::sleep_for(200ms);
  CHECK(cpu_seconds() - before_idle < 0.02);

  const double before_join = cpu_seconds();
  pool.run(2, [](std::size_t, std::size_t) { std::this_thread::sleep_for(150ms); });
  pool.run(2, [](std::size_t, std::size_t worker) {
    if (worker == 1) std::this_thread::sleep_for(150ms);  // the caller has nothing to do but wait
  });
  CHECK(cpu_seconds() - before_join < 0.02);
}

TEST_CASE("the default number of threads follows the affinity mask") {
  cpu_set_t before, one;
  REQUIRE(::sched_getaffinity(0, sizeof before, &before) == 0);
  CHECK(ThreadPool::default_threads() <= static_cast<std::size_t>(CPU_COUNT(&before)));
  CPU_ZERO(&one);
  for (std::size_t cpu = 0; cpu < CPU_SETSIZE; ++cpu)
    if (CPU_ISSET(cpu, &before)) {
      CPU_SET(cpu, &one);
      break;
    }
  REQUIRE(::sched_setaffinity(0, sizeof one, &one) == 0);
  CHECK(ThreadPool::default_threads() == 1);
  {
    // Two threads on one core: correct, and without spinning against each other.
    ThreadPool pool(2);
    std::atomic<int> ran{0};
    for (int i = 0; i < 200; ++i) pool.run(4, [&](std::size_t, std::size_t) { ++ran; });
    CHECK(ran == 800);
  }
  REQUIRE(::sched_setaffinity(0, sizeof before, &before) == 0);
}

TEST_CASE("runs allocate nothing") {
  ThreadPool pool(2);
  std::vector<int> out(64);
  const auto before = test::allocations();
  for (int i = 0; i < 1000; ++i) pool.run(out.size(), [&](std::size_t task, std::size_t) { ++out[task]; });
  CHECK(test::allocations() == before);
}

TEST_CASE("an absurd number of threads is refused") {
  CHECK_THROWS_AS(ThreadPool(1'000'000), Error);
}

TEST_CASE("pools can be created and destroyed repeatedly") {
  for (int i = 0; i < 100; ++i) {
    ThreadPool pool(3);
    std::atomic<int> ran{0};
    if (i % 2 == 0) pool.run(5, [&](std::size_t, std::size_t) { ++ran; });
    CHECK(ran == (i % 2 == 0 ? 5 : 0));
  }
}

}  // namespace
}  // namespace forge

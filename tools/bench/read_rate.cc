#include "tools/bench/read_rate.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <vector>

#include "tools/bench/statistics.h"

namespace forge::tools {
namespace {

constexpr std::size_t kTaskBytes = std::size_t{2} << 20;  ///< large enough that scheduling a task costs nothing
constexpr std::size_t kLanes = 32;                        ///< independent partial sums

/// The sum of `count` words, a multiple of kLanes. With independent partial sums g++ vectorises the loop, and it is
/// limited by loads, not by the latency of additions.
std::uint64_t sum_of(const std::uint64_t* words, std::size_t count) {
  std::uint64_t lanes[kLanes] = {};
  for (std::size_t i = 0; i < count; i += kLanes)
    for (std::size_t lane = 0; lane < kLanes; ++lane) lanes[lane] += words[i + lane];
  std::uint64_t sum = 0;
  for (const std::uint64_t lane : lanes) sum += lane;
  return sum;
}

}  // namespace

ReadRate::ReadRate(std::size_t threads, std::size_t bytes)
    : pool_(threads),
      block_(std::max<std::size_t>(bytes / kTaskBytes, 1) * kTaskBytes, "the block for the read rate", true) {
  // Write every page: pages that were never written all map to the same zero page, which fits into a cache.
  pool_.run(block_.bytes() / kTaskBytes, [this](std::size_t task, std::size_t) {
    auto* words = reinterpret_cast<std::uint64_t*>(block_.data() + task * kTaskBytes);
    for (std::size_t i = 0; i < kTaskBytes / sizeof *words; ++i) words[i] = i;
  });
}

double ReadRate::measure() {
  std::atomic<std::uint64_t> sum{0};
  const auto begin = std::chrono::steady_clock::now();
  pool_.run(block_.bytes() / kTaskBytes, [&](std::size_t task, std::size_t) {
    const auto* words = reinterpret_cast<const std::uint64_t*>(block_.data() + task * kTaskBytes);
    sum.fetch_add(sum_of(words, kTaskBytes / sizeof *words), std::memory_order_relaxed);
  });
  const auto seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  sum_ = sum.load();
  return static_cast<double>(block_.bytes()) / std::max(seconds, 1e-9);
}

double ReadRate::median(int passes) {
  std::vector<double> rates;
  (void)measure();
  for (int i = 0; i < passes; ++i) rates.push_back(measure());
  return summary_of(rates).median;
}

}  // namespace forge::tools

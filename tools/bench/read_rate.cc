#include "tools/bench/read_rate.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <vector>

#include "tools/bench/statistics.h"

namespace forge::tools {
namespace {

constexpr std::size_t kTaskBytes = std::size_t{2} << 20;  ///< large enough that claiming one costs nothing
constexpr std::size_t kLanes = 32;                        ///< sums that do not wait for each other

/// The sum of `count` words; `count` is a multiple of kLanes. Loads are all that it waits for: g++ makes vectors of it.
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
      block_(std::max<std::size_t>(bytes / kTaskBytes, 1) * kTaskBytes, "what the read rate is measured on", true) {
  // Pages that were never written are all one page of zeros, which a cache holds.
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

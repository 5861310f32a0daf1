#pragma once
// What the kernel tests share: modules by wave, runs in several orders, random numbers.

#include <cmath>
#include <functional>
#include <map>
#include <random>
#include <string>
#include <vector>

#include <catch2/catch.hpp>

#include "tests/gpu_host/buffer.h"
#include "tests/gpu_host/executor.h"

namespace forge::gpu_host {

inline constexpr int kWaves[] = {32, 64};
inline constexpr Order kOrders[] = {Order::kForward, Order::kReverse, Order::kShuffled};

/// The module of a case, opened once.
inline const Module& module_of(const std::string& which, int wave) {
  static std::map<std::string, Module> modules;
  const std::string name = which + "_w" + std::to_string(wave);
  auto found = modules.find(name);
  if (found == modules.end()) found = modules.emplace(name, Module(FORGE_CASES "/" + name + ".so")).first;
  return found->second;
}

inline std::mt19937& random_engine() {
  static std::mt19937 engine(7);
  return engine;
}
inline std::vector<float> random_floats(std::size_t count, float deviation = 1) {
  std::normal_distribution<float> normal(0, deviation);
  std::vector<float> out(count);
  for (float& value : out) value = normal(random_engine());
  return out;
}

/// Runs a kernel in each order; `result()` after each must be the same bytes, which are returned.
template <class Args, class Result>
auto run_in_all_orders(const std::string& which, int wave, const std::string& name, const Args& args,
                       const std::function<void()>& reset, Result&& result) {
  decltype(result()) first;
  for (const Order order : kOrders) {
    reset();
    run_kernel(module_of(which, wave).kernel(name), Launch{.order = order, .seed = 3}, args);
    auto got = result();
    if (order == Order::kForward) {
      first = std::move(got);
      continue;
    }
    REQUIRE(got.size() == first.size());
    REQUIRE(std::memcmp(got.data(), first.data(), got.size() * sizeof(got[0])) == 0);
  }
  return first;
}

}  // namespace forge::gpu_host

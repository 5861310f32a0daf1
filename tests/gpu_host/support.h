#pragma once
// Shared code of the kernel tests: modules by wave size, random numbers.

#include <cmath>
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

/// The module of a case, opened on first use.
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

}  // namespace forge::gpu_host

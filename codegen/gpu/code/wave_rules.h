#pragma once
// What operations do to a wave's registers, by name. The tables are in wave_scalar.cc, wave_vector.cc, wave_memory.cc.

#include <span>
#include <string_view>

#include "codegen/gpu/code/wave.h"

namespace forge::codegen {

struct Rule {
  std::string_view name;
  void (*run)(Wave&, const Operation&);
};

/// Comparisons of scalar and vector operations.
inline constexpr auto kEqual = [](auto a, auto b) { return a == b; };
inline constexpr auto kUnequal = [](auto a, auto b) { return a != b; };
inline constexpr auto kLess = [](auto a, auto b) { return a < b; };
inline constexpr auto kAtMost = [](auto a, auto b) { return a <= b; };
inline constexpr auto kGreater = [](auto a, auto b) { return a > b; };
inline constexpr auto kAtLeast = [](auto a, auto b) { return a >= b; };

[[nodiscard]] std::span<const Rule> scalar_rules();
[[nodiscard]] std::span<const Rule> vector_rules();
[[nodiscard]] std::span<const Rule> memory_rules();

/// The rule of an operation, by the names that gfx11 has for it; never null: results of an operation without a rule of
/// its own become unknown.
[[nodiscard]] const Rule* find_rule(const Operation& operation);

}  // namespace forge::codegen

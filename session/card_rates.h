#pragma once
// Measures what a GPU reaches when a kernel does nothing else: the limits that forge-bench --roofline compares with.

#include <chrono>
#include <cstdint>
#include <string>

#include "codegen/kernel_compiler.h"
#include "runtime/driver/driver.h"

namespace forge::session {

struct CardRates {
  double read = 0;    ///< bytes/s that a kernel reads from memory
  double matrix = 0;  ///< FLOP/s of F16 matrix instructions with f32 sums; 0: the target has none
};

struct CardRateOptions {
  std::uint64_t read_bytes = std::uint64_t{2} << 30;  ///< to read in a run; less if less memory is free
  std::int64_t matrix_rounds = 1024;                  ///< at most gpu::card_rates::kMatrixRoundsMax
  int runs = 9;                                       ///< timed ones, of which the median counts
  std::chrono::milliseconds warm_up{50};              ///< for how long a kernel runs before, so that clocks rise
};

/// Compiles the kernels of codegen/gpu/card_rates.h for `target`, runs each alone, and tests what they leave in memory.
/// Errors: kMemory if too little memory is free for a buffer beyond the caches; kDevice for a driver's error, a kernel
/// that has computed something else, and times that make no sense; the compiler's.
[[nodiscard]] CardRates measure_card_rates(const driver::Device& device, const std::string& target,
                                           codegen::KernelCompiler& compiler, const CardRateOptions& options = {});
/// The same with the compile service and its cache.
[[nodiscard]] CardRates measure_card_rates(const driver::Device& device, const std::string& target);

}  // namespace forge::session

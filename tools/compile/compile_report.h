#pragma once
// Reports about compilations and plans, for forge-compile and forge-inspect.

#include <chrono>
#include <cstdint>
#include <string>

#include "codegen/compile.h"
#include "runtime/plan/plan_generated.h"

namespace forge::tools {

class Stopwatch {
 public:
  [[nodiscard]] double seconds() const {
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin_).count();
  }

 private:
  std::chrono::steady_clock::time_point begin_ = std::chrono::steady_clock::now();
};

/// The number of steps that most layers have (the first may have more); 0 if no step belongs to a layer.
[[nodiscard]] std::size_t steps_a_layer(const plan::VariantT& variant);

/// Bytes of weights that one execution of the variant reads.
[[nodiscard]] std::int64_t weight_bytes_read(const plan::VariantT& variant);

/// Arena size divided by its lower bound, the largest total size of buffers that are live in the same step; 1 if the
/// bound is 0.
[[nodiscard]] double arena_ratio(std::int64_t arena_bytes, std::int64_t bound_bytes);

/// Prints one line per pass and the passes' notes if `every_pass`; otherwise only which passes were skipped.
void note_compile_report(const codegen::CompileReport& report, bool every_pass);

/// Prints one line per program, then where the plan is, whether it was compiled or found in the cache, and the time.
void note_plan(const plan::PlanT& plan, const std::string& where, bool built, double seconds);

}  // namespace forge::tools

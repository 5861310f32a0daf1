#pragma once
// What a compilation made, in a few lines on stderr.

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

/// Steps that most layers have (the first one may do more); 0 when no step belongs to a layer.
[[nodiscard]] std::size_t steps_a_layer(const plan::VariantT& variant);

/// Bytes of weights that one execution of the variant reads.
[[nodiscard]] std::int64_t weight_bytes_read(const plan::VariantT& variant);

/// arena / live-set bound; 1 when the bound is 0.
[[nodiscard]] double arena_ratio(std::int64_t arena_bytes, std::int64_t bound_bytes);

/// With `every_pass` one line a pass; notes of passes that refused always.
void note_compile_report(const codegen::CompileReport& report, bool every_pass);

/// A line a program, and where the plan is: made by this process, or found.
void note_plan(const plan::PlanT& plan, const std::string& where, bool built, double seconds);

}  // namespace forge::tools

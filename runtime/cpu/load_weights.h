#pragma once
// Load-time steps of a CPU program: weights from the model file into their layouts, in parallel.

#include <cstddef>
#include <cstdint>

#include "runtime/plan/plan_generated.h"
#include "runtime/thread_pool.h"
#include "runtime/weight_source.h"

namespace forge::runtime {

/// Runs the program's load steps into `weights`. Pages of the file are given back as soon as they are packed, so the
/// peak is the packed weights plus a few megabytes. Returns the bytes that were read.
/// Throws Error(kPlan) when a weight does not fit its block, its sources or the file.
std::uint64_t load_weights(const plan::ProgramT& program, WeightSource& model, std::byte* weights,
                           std::size_t weights_bytes, ThreadPool& pool);

}  // namespace forge::runtime

#pragma once
// Load-time steps of a CPU program: weights from the model file into their layouts, in parallel.

#include <cstddef>
#include <cstdint>

#include "kernels/cpu/kernels.h"
#include "runtime/plan/plan_generated.h"
#include "runtime/thread_pool.h"
#include "runtime/weights/weight_source.h"

namespace forge::runtime {

/// Runs the program's load steps into `weights`, packing as `kernels` does. The file is read piece by piece and no page
/// of it mapped (1.2 GiB of Q8_0 took 0.22 s more by page faults), so the peak is the packed weights plus a piece for
/// each thread. Returns the bytes that were read. Throws Error(kPlan) when a weight does not fit its block, its sources
/// or the file, and what model.read throws.
std::uint64_t load_weights(const plan::ProgramT& program, const WeightSource& model, std::byte* weights,
                           std::size_t weights_bytes, const cpu::Kernels& kernels, ThreadPool& pool);

}  // namespace forge::runtime

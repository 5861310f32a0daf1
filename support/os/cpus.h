#pragma once
// The number of CPUs that this process may use, for choosing thread counts.

#include <cstddef>

namespace forge {

/// The CPUs in the process's affinity mask (taskset, cpusets); at least 1.
[[nodiscard]] std::size_t allowed_cpus();
/// The same, but no more than the CPU time that the control group's quota pays for (containers). At least 1.
[[nodiscard]] std::size_t usable_cpus();

}  // namespace forge

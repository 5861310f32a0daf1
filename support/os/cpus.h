#pragma once
// How many CPUs there are for this process.

#include <cstddef>

namespace forge {

/// That the affinity mask allows (taskset, cpusets); at least 1.
[[nodiscard]] std::size_t allowed_cpus();
/// The same, or as many as the control group's quota pays for (containers) where that is less.
[[nodiscard]] std::size_t usable_cpus();

}  // namespace forge

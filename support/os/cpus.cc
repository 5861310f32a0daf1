#include "support/os/cpus.h"

#include <sched.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <fstream>
#include <thread>

namespace forge {
namespace {

/// The control group's quota in whole CPUs, rounded up; SIZE_MAX if there is none. cpu.max (cgroup v2) holds the quota
/// and the period in microseconds: "max 100000" means no limit, "200000 100000" means two CPUs.
std::size_t quota_cpus() {
  std::ifstream file("/sys/fs/cgroup/cpu.max");
  std::uint64_t quota = 0, period = 0;
  if (!(file >> quota >> period) || quota == 0 || period == 0) return SIZE_MAX;
  return static_cast<std::size_t>((quota - 1) / period + 1);
}

}  // namespace

std::size_t allowed_cpus() {
  // sched_getaffinity fails with EINVAL if the mask is smaller than the kernel's, so the mask is doubled until it fits.
  for (int cpus = CPU_SETSIZE; cpus <= 1 << 16; cpus *= 2) {
    cpu_set_t* set = CPU_ALLOC(cpus);
    const std::size_t bytes = CPU_ALLOC_SIZE(cpus);
    const int failed = set == nullptr ? ENOMEM : (::sched_getaffinity(0, bytes, set) == 0 ? 0 : errno);
    const int count = failed == 0 ? CPU_COUNT_S(bytes, set) : 0;
    CPU_FREE(set);
    if (count > 0) return static_cast<std::size_t>(count);
    if (failed != EINVAL) break;
  }
  return std::max(1U, std::thread::hardware_concurrency());
}

std::size_t usable_cpus() {
  return std::max<std::size_t>(std::min(allowed_cpus(), quota_cpus()), 1);
}

}  // namespace forge

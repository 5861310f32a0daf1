#pragma once
// Available memory of the machine and the check that a program fits into it, made before weights are loaded.

#include <cstdint>
#include <string>

#include "runtime/executor.h"

namespace forge {

struct MemoryLimit {
  std::uint64_t bytes = 0;
  std::string what;  ///< source of the limit, for messages: "this machine's memory", "the control group's limit"
};

/// Host memory that this process can still allocate: the smallest of MemAvailable of /proc/meminfo, what is left under
/// the memory limits of its control groups (cgroup v2), and what is left under `ulimit -v`.
[[nodiscard]] MemoryLimit memory_available();

/// Peak resident set size of this process so far, in bytes.
[[nodiscard]] std::uint64_t memory_peak();

/// Errors: kMemory when `need` exceeds `limit`, with all numbers and the largest context that would fit. `context`:
/// tokens of each of the `sequences` sequences that the KV cache of `need` is for. `state_slots`: slots of its
/// recurrent state.
void check_memory(const runtime::MemoryRequirements& need, std::int64_t context, std::int64_t sequences,
                  const MemoryLimit& limit, std::int64_t state_slots = 0);

/// "weights 91.2 MiB, KV 90.0 MiB, arena 7.1 MiB, logits 12.0 MiB"
[[nodiscard]] std::string describe_need(const runtime::MemoryRequirements& need);

}  // namespace forge

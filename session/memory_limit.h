#pragma once
// How much memory there is, and whether a program's blocks fit.

#include <cstdint>
#include <string>

#include "runtime/executor.h"

namespace forge {

struct MemoryLimit {
  std::uint64_t bytes = 0;
  std::string what;  ///< "free memory of this machine", "the control group's limit", "the process's limit (ulimit -v)"
};

/// The tightest of what the kernel calls available, the control groups' limits and the address space limit.
[[nodiscard]] MemoryLimit memory_available();

/// Bytes of this process that were in memory at most so far.
[[nodiscard]] std::uint64_t memory_peak();

/// Error(kMemory) with the numbers and what would fit, when `need` exceeds `limit`. `context`: positions the KV cache
/// of `need` holds, over all sequences.
void check_memory(const runtime::MemoryRequirements& need, std::int64_t context, std::int64_t sequences,
                  const MemoryLimit& limit);

/// "weights 91.2 MiB, KV 90.0 MiB, arena 7.1 MiB, logits 12.0 MiB"
[[nodiscard]] std::string describe_need(const runtime::MemoryRequirements& need);

}  // namespace forge

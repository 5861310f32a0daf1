#pragma once
// Who runs a program: by what the program says of its target, never by the target's name.

#include <cstdint>
#include <memory>

#include "runtime/driver/driver.h"
#include "runtime/executor.h"
#include "runtime/weight_source.h"

namespace forge::tools {

/// What an executor of the program takes; `kv_blocks` as in ExecutorOptions. Errors: kPlan for absurd sizes.
[[nodiscard]] runtime::MemoryNeed memory_need_of(const plan::ProgramT& program, std::int64_t kv_blocks);

/// Opens the program: on the host, or on `device` where it needs one. Errors: the executor's; kPlan when the program
/// needs a device and there is none, or needs none and there is one.
[[nodiscard]] std::unique_ptr<runtime::Executor> open_executor(std::shared_ptr<const plan::ProgramT> program,
                                                               runtime::WeightSource& source,
                                                               const driver::Device* device,
                                                               const runtime::ExecutorOptions& options);

}  // namespace forge::tools

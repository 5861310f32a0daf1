#pragma once
// Opens the executor of the back-end (CPU or GPU) that runs a plan's program. The back-end is chosen by the program's
// facts (runtime/program_facts.h), never by the target's name, so that a new target needs no change here.

#include <cstdint>
#include <memory>

#include "runtime/driver/driver.h"
#include "runtime/executor.h"
#include "runtime/weights/weight_source.h"

namespace forge::session {

/// One back-end's executor. session/executor_NAME.cc defines one for each back-end NAME of codegen/back_ends.def.
struct ExecutorKind {
  bool on_host = false;  ///< true: runs programs for the host, without a device; false: runs the others on a device
  /// `kv_blocks` and `state_slots` as in ExecutorOptions. Errors: kPlan for sizes out of range.
  runtime::MemoryRequirements (*memory_requirements)(const plan::ProgramT& program, std::int64_t kv_blocks,
                                                     std::int64_t state_slots) = nullptr;
  std::unique_ptr<runtime::Executor> (*open)(std::shared_ptr<const plan::ProgramT> program,
                                             runtime::WeightSource& source, const driver::Device* device,
                                             const runtime::ExecutorOptions& options) = nullptr;
};

/// Memory that the program's executor will allocate. `kv_blocks` and `state_slots` as in ExecutorOptions. Errors: kPlan
/// for sizes out of range; kUsage if this build lacks the back-end.
[[nodiscard]] runtime::MemoryRequirements memory_need_of(const plan::ProgramT& program, std::int64_t kv_blocks,
                                                         std::int64_t state_slots = 0);

/// Opens the program and loads its weights from `source`: on the host if `device` is null, else on `device`.
/// Errors: the executor's; kPlan when the program is for a device and `device` is null, or the reverse; kUsage if this
/// build lacks the back-end.
[[nodiscard]] std::unique_ptr<runtime::Executor> open_executor(std::shared_ptr<const plan::ProgramT> program,
                                                               runtime::WeightSource& source,
                                                               const driver::Device* device,
                                                               const runtime::ExecutorOptions& options);

}  // namespace forge::session

#pragma once
// Who runs a program: by what the program says of its target, never by the target's name.

#include <cstdint>
#include <memory>

#include "runtime/driver/driver.h"
#include "runtime/executor.h"
#include "runtime/weights/weight_source.h"

namespace forge::session {

/// The executor of a back-end: tools/executor_NAME.cc of each that this build has (codegen/back_ends.def).
struct ExecutorKind {
  bool on_host = false;  ///< it runs programs whose facts say so, without a device; else the others, on one
  /// `kv_blocks` as in ExecutorOptions. Errors: kPlan for absurd sizes.
  runtime::MemoryRequirements (*memory_requirements)(const plan::ProgramT& program, std::int64_t kv_blocks) = nullptr;
  std::unique_ptr<runtime::Executor> (*open)(std::shared_ptr<const plan::ProgramT> program,
                                             runtime::WeightSource& source, const driver::Device* device,
                                             const runtime::ExecutorOptions& options) = nullptr;
};

/// What the program's executor takes. Errors: kPlan for absurd sizes; kUsage where this build has no such executor.
[[nodiscard]] runtime::MemoryRequirements memory_need_of(const plan::ProgramT& program, std::int64_t kv_blocks);

/// Opens the program: on the host, or on `device` where it needs one. Errors: the executor's; kPlan when the program
/// needs a device and there is none, or needs none and there is one; kUsage where this build has no such executor.
[[nodiscard]] std::unique_ptr<runtime::Executor> open_executor(std::shared_ptr<const plan::ProgramT> program,
                                                               runtime::WeightSource& source,
                                                               const driver::Device* device,
                                                               const runtime::ExecutorOptions& options);

}  // namespace forge::session

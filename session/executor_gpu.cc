#include "runtime/gpu/executor.h"
#include "session/executors.h"

namespace forge::session {

ExecutorKind gpu_executor();  // executors.cc lists it

ExecutorKind gpu_executor() {
  return {.on_host = false,
          .memory_requirements =
              [](const plan::ProgramT& program, std::int64_t kv_blocks, std::int64_t state_slots) {
                return runtime::GpuMemory(program, kv_blocks, state_slots).need;
              },
          .open = [](std::shared_ptr<const plan::ProgramT> program, runtime::WeightSource& source,
                     const driver::Device* device,
                     const runtime::ExecutorOptions& options) -> std::unique_ptr<runtime::Executor> {
            return std::make_unique<runtime::GpuExecutor>(std::move(program), source, *device, options);
          }};
}

}  // namespace forge::session

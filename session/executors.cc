#include "session/executors.h"

#include <algorithm>
#include <array>

#include "support/error.h"

namespace forge::session {

#define FORGE_BACK_END(name) ExecutorKind name##_executor();
#include "codegen/back_ends.def"
#undef FORGE_BACK_END

namespace {

const ExecutorKind& kind_of(const plan::ProgramT& program) {
#define FORGE_BACK_END(name) name##_executor(),
  static const std::array kKinds{
#include "codegen/back_ends.def"
  };
#undef FORGE_BACK_END
  const bool on_host = runtime::facts_of(program).on_host;
  const auto* const found = std::ranges::find(kKinds, on_host, &ExecutorKind::on_host);
  if (found == kKinds.end())
    throw Error(ErrorCode::kUsage, "this forge cannot run the plan's program for '" + printable(program.target) + "'",
                on_host ? "it was built without the CPU back-end" : "it was built without the GPU back-end");
  return *found;
}

}  // namespace

runtime::MemoryRequirements memory_need_of(const plan::ProgramT& program, std::int64_t kv_blocks,
                                           std::int64_t state_slots) {
  return kind_of(program).memory_requirements(program, kv_blocks, state_slots);
}

std::unique_ptr<runtime::Executor> open_executor(std::shared_ptr<const plan::ProgramT> program,
                                                 runtime::WeightSource& source, const driver::Device* device,
                                                 const runtime::ExecutorOptions& options) {
  const auto& kind = kind_of(*program);
  if (kind.on_host != (device == nullptr))
    throw Error(ErrorCode::kPlan, "the plan's program for '" + printable(program->target) + "' cannot run",
                kind.on_host ? "it is for the host, and a device was chosen" : "it needs a device",
                "compile the model again (forge-compile)");
  return kind.open(std::move(program), source, device, options);
}

}  // namespace forge::session

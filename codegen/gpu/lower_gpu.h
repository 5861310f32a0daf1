#pragma once
// A scheduled program becomes the GPU steps of a plan: kernels specialised for it, compiled, and their arguments.

#include <memory>

#include "codegen/gpu/gpu_target.h"
#include "codegen/gpu/kernel_compiler.h"
#include "codegen/model_file.h"
#include "passes/program.h"
#include "runtime/plan/plan_generated.h"

namespace forge::codegen {

/// Everything of the plan's program but target, options and context, which the caller knows.
/// Errors: the compiler's; Error(kModelUnsupported) for a step without a kernel; Error(kInternal).
std::unique_ptr<plan::ProgramT> lower_gpu(const passes::Program& program, const ModelFile& model,
                                          const GpuTargetModel& target, KernelCompiler& compiler);

}  // namespace forge::codegen

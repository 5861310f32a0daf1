#pragma once
// A scheduled program becomes a GPU's part of a plan: chosen steps get their addresses, their kernels are compiled, and
// weights get places and the steps that load them.

#include <memory>

#include "codegen/gpu/gpu_target.h"
#include "codegen/kernel_compiler.h"
#include "codegen/model_file.h"
#include "passes/program.h"
#include "runtime/plan/plan_generated.h"

namespace forge::codegen {

/// Everything of the plan's program but target, options and context, which the caller knows.
/// Errors: the compiler's; Error(kInternal) when a value has no place or a tensor is not in the model file.
std::unique_ptr<plan::ProgramT> lower_gpu(passes::Program program, const ModelFile& model, const GpuTarget& target,
                                          KernelCompiler& compiler);

}  // namespace forge::codegen

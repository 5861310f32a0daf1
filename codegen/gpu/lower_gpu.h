#pragma once
// Lowers a scheduled program for a GPU: places weights, writes the addresses of the chosen steps, compiles their
// kernels (equal ones once), and adds the steps that load and repack the weights.

#include <memory>

#include "codegen/gpu/gpu_target.h"
#include "codegen/kernel_compiler.h"
#include "codegen/model_file.h"
#include "passes/program.h"
#include "runtime/plan/plan_generated.h"

namespace forge::codegen {

/// Fills all of the plan's program except target, facts, options and context, which the caller fills in.
/// Errors: those of the kernel compiler; kInternal if a value has no place; kPlan if a tensor is not in the model file.
std::unique_ptr<plan::ProgramT> lower_gpu(passes::Program program, const ModelFile& model, const GpuTarget& target,
                                          KernelCompiler& compiler);

}  // namespace forge::codegen

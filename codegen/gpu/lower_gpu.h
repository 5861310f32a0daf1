#pragma once
// Lowers a scheduled program for a GPU: places weights, writes the addresses of the chosen steps, compiles their
// kernels (equal ones once), and adds the steps that load and repack the weights.

#include <memory>
#include <optional>

#include "codegen/gpu/gpu_target.h"
#include "codegen/kernel_compiler.h"
#include "codegen/model_file.h"
#include "passes/program.h"
#include "runtime/plan/plan_generated.h"

namespace forge::codegen {

/// Fills all of the plan's program except target, facts, options and context, which the caller fills in. hidden: the
/// variants that output hidden rows beside those that output logits.
/// Errors: those of the kernel compiler; kInternal if a value has no place; kPlan if a tensor is not in the model file.
std::unique_ptr<plan::ProgramT> lower_gpu(passes::Program program, std::optional<passes::Program> hidden,
                                          const ModelFile& model, const GpuTarget& target, const KvFormat& kv,
                                          KernelCompiler& compiler);

}  // namespace forge::codegen

#pragma once
// Kernel sources of small models' plans: every class of kernel that forge has for GPUs, and few kernels of each.

#include <string>
#include <vector>

#include "codegen/gpu/targets.h"
#include "codegen/kernel_compiler.h"

namespace forge::tests {

/// Those of a dense model with weights of several types, of one with experts, and of models like gpt-oss and Gemma 2:
/// decode and prefill, batches, sampling, repacking. Each once.
[[nodiscard]] std::vector<codegen::KernelSource> plan_kernels(const codegen::GpuTarget& target);

/// How the names of the kernels begin that must be among them.
[[nodiscard]] std::vector<std::string> kernel_classes(const codegen::GpuTarget& target);

/// A kernel of all that lanes do together, whose results are only used behind a branch that switches lanes off: nothing
/// may be moved there.
[[nodiscard]] codegen::KernelSource used_behind_branch(const codegen::GpuTarget& target);

/// A kernel that reads another lane where some are off, which every compiler leaves as it is.
[[nodiscard]] codegen::KernelSource planted_kernel(const codegen::GpuTarget& target);

}  // namespace forge::tests

#pragma once
// Kernel sources from the plans of small models: every class of GPU kernel that forge has, and few kernels of each.

#include <string>
#include <vector>

#include "codegen/gpu/targets.h"
#include "codegen/kernel_compiler.h"

namespace forge::tests {

/// The kernels of a dense model with weights of several types, of a mixture of experts, of models like gpt-oss and
/// Gemma 2, and those that only other families have: decode and prefill, batches, sampling, repacking. Each is listed
/// once. Models with recurrent state are files of the reference data; where it is absent, they are left out.
[[nodiscard]] std::vector<codegen::KernelSource> plan_kernels(const codegen::GpuTarget& target);

/// True if the models with recurrent state are there.
[[nodiscard]] bool has_recurrent_models();

/// Name prefixes of the kernel classes that must be present.
[[nodiscard]] std::vector<std::string> kernel_classes(const codegen::GpuTarget& target);

/// A kernel with all cross-lane operations whose results are used only inside a branch that switches lanes off. The
/// compiler must not move the operations into the branch.
[[nodiscard]] codegen::KernelSource used_behind_branch(const codegen::GpuTarget& target);

/// A kernel that reads another lane while some are off, in a form that every compiler leaves unchanged. The checker
/// must find it.
[[nodiscard]] codegen::KernelSource planted_kernel(const codegen::GpuTarget& target);

}  // namespace forge::tests

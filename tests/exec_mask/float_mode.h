#pragma once
// Checks the floating-point mode that a kernel starts in, as given by the kernel descriptor of an AMD code object.

#include <cstddef>
#include <span>
#include <string>

#include "codegen/gpu/code/listing.h"

namespace forge::tests {

/// Returns why a kernel would violate forge's floating-point rules: round to nearest and keep denormals, for all
/// widths, from the first to the last instruction. Empty if it obeys them. Sources: LLVM's AMDGPUUsage,
/// compute_pgm_rsrc1; the ISA guides' MODE register.
[[nodiscard]] std::string float_mode_error(std::span<const std::byte> code, const codegen::Function& function);

}  // namespace forge::tests

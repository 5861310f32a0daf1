#pragma once
// The mode in which a kernel's floating-point arithmetic starts: what an AMD code object's kernel descriptor says.

#include <cstddef>
#include <span>
#include <string>

#include "tests/exec_mask/listing.h"

namespace forge::tests {

/// Why a kernel would not compute as forge's kernels are to: rounding to nearest, denormals kept, of all widths, from
/// the first instruction to the last. "" where it does. Sources: LLVM's AMDGPUUsage, compute_pgm_rsrc1; the ISA guides'
/// MODE register.
[[nodiscard]] std::string float_mode_error(std::span<const std::byte> code, const Function& function);

}  // namespace forge::tests

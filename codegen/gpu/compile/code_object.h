#pragma once
// What code objects say of the kernel in them, and their disassembly where a tool for that is installed.

#include <cstddef>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "codegen/gpu/targets.h"
#include "codegen/kernel_compiler.h"

namespace forge::codegen {

/// -1 where the code object does not say.
struct CodeObjectFacts {
  KernelFacts kernel;
  int threads = -1;           ///< a block, at most
  int register_spills = -1;   ///< AMD: vector registers spilled, to memory or to accumulation registers
  int scalar_spills = -1;     ///< AMD: scalar registers spilled, mostly to lanes of vector registers
  std::string compiler_text;  ///< "clang version 19.1.7", of AMD's .comment section
};

/// Reads kernel `entry` of an AMD code object (its metadata note, code object V3 and later) or of a cubin.
/// Errors: Error(kDevice) when the bytes are no such file, are damaged, are for another target or have no such kernel.
[[nodiscard]] CodeObjectFacts read_code_object(std::span<const std::byte> code, const GpuTarget& target,
                                               std::string_view entry);

/// What a file of the target's code objects is called: ".hsaco" (AMD), ".cubin" (NVIDIA).
[[nodiscard]] std::string_view code_object_suffix(const GpuTarget& target);

/// The machine code as text, by llvm-objdump (AMD) or cuobjdump (NVIDIA); nothing where that is not installed or fails.
[[nodiscard]] std::optional<std::string> disassemble(std::span<const std::byte> code, const GpuTarget& target);

}  // namespace forge::codegen

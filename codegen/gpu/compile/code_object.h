#pragma once
// Reads the resources of a kernel (registers, shared memory, spills) from its code object, and disassembles code
// objects if a tool for it is installed. Used by the compile service and forge-inspect.

#include <cstddef>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "codegen/gpu/targets.h"
#include "codegen/kernel_compiler.h"

namespace forge::codegen {

/// Numbers are -1 if the code object does not say.
struct CodeObjectFacts {
  KernelFacts kernel;
  int threads = -1;           ///< most threads of a block
  int register_spills = -1;   ///< AMD: vector registers spilled, to memory or to accumulation registers
  int scalar_spills = -1;     ///< AMD: scalar registers spilled, mostly to lanes of vector registers
  std::string compiler_text;  ///< "clang version 19.1.7", of AMD's .comment section
};

/// Reads kernel `entry` of an AMD code object (its metadata note, code object V3 and later) or of a cubin.
/// Errors: Error(kDevice) if the bytes are not such a file, are damaged, are for another target or do not have the
/// kernel.
[[nodiscard]] CodeObjectFacts read_code_object(std::span<const std::byte> code, const GpuTarget& target,
                                               std::string_view entry);

/// The suffix of files with the target's code objects: ".hsaco" (AMD), ".cubin" (NVIDIA).
[[nodiscard]] std::string_view code_object_suffix(const GpuTarget& target);

/// The machine code as text, by llvm-objdump (AMD) or cuobjdump or nvdisasm (NVIDIA); nothing if none is installed or
/// it fails.
[[nodiscard]] std::optional<std::string> disassemble(std::span<const std::byte> code, const GpuTarget& target);

}  // namespace forge::codegen

#pragma once
// The interface of kernel compilers: from kernel sources to code objects. Implemented by gpu/compile/compile_service.h,
// and in tests by the host's C++ compiler.

#include <cstddef>
#include <span>
#include <string>
#include <vector>

#include "passes/kernel_source.h"

namespace forge::codegen {

/// A kernel's name and source text. The text includes "kernels/..." headers, which are embedded in the binary.
using passes::KernelSource;

/// Resources of a kernel, read from its code object; -1 if the code object does not say.
struct KernelFacts {
  int registers = -1;         ///< vector registers per lane, accumulation registers included
  int scalar_registers = -1;  ///< scalar registers per wave (AMD)
  int spill_bytes = -1;       ///< private memory per lane: spills and local arrays
  int lds_bytes = -1;         ///< static shared memory per block
  int wave = -1;              ///< lanes of a wave
  int occupancy = -1;         ///< waves that a compute unit (SM) holds at once, by registers, LDS and block size
};

struct CompiledKernel {
  std::vector<std::byte> code;  ///< the code object: an ELF file
  KernelFacts facts;
  std::string compiler;  ///< "hipRTC 5.2.3", "clang 19.1.7"
};

class KernelCompiler {
 public:
  virtual ~KernelCompiler() = default;
  /// Compiles all sources for `target` ("gfx1100", "sm_90"); results are in the order of the sources.
  /// Errors: Error(kUsage) for an unknown target; Error(kDevice) if no compiler for it is installed (the message names
  /// the package to install) or a source does not compile (with the log and the place where the source was saved).
  virtual std::vector<CompiledKernel> compile(const std::string& target, std::span<const KernelSource> sources) = 0;
};

}  // namespace forge::codegen

#pragma once
// What code generation asks of whoever turns kernel sources into code objects: gpu/compile_service.h, or,
// in tests, the host compiler.

#include <cstddef>
#include <span>
#include <string>
#include <vector>

#include "passes/kernel_source.h"

namespace forge::codegen {

/// Its text includes "kernels/..." headers, which stand in the binary.
using passes::KernelSource;

/// What a code object says of its kernel; -1 where it does not.
struct KernelFacts {
  int registers = -1;         ///< vector registers a lane, accumulation registers included
  int scalar_registers = -1;  ///< AMD
  int spill_bytes = -1;       ///< private memory a lane: spills and local arrays
  int lds_bytes = -1;         ///< static, a block
  int wave = -1;
  int occupancy = -1;  ///< waves that a compute unit (SM) holds at once, by registers, LDS and block size
};

struct CompiledKernel {
  std::vector<std::byte> code;
  KernelFacts facts;
  std::string compiler;  ///< "hipRTC 5.2.3", "clang 19.1.7"
};

class KernelCompiler {
 public:
  virtual ~KernelCompiler() = default;
  /// Compiles all sources for `target` ("gfx1100", "sm_90"), results in the sources' order.
  /// Errors: Error(kUsage) for a target that it does not know, Error(kDevice) when no compiler for it is installed
  /// (with the package that brings one) or when a source does not compile (with the log and where the source was kept).
  virtual std::vector<CompiledKernel> compile(const std::string& target, std::span<const KernelSource> sources) = 0;
};

}  // namespace forge::codegen

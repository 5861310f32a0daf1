#pragma once
// Which compiler makes code objects for a target, and what it is told.

#include <filesystem>
#include <string>
#include <vector>

#include "codegen/gpu/compile/compile_wire.h"
#include "codegen/gpu/targets.h"

namespace forge::codegen {

/// A compiler of this machine.
struct InstalledCompiler {
  CompilerKind kind = CompilerKind::kHiprtc;
  std::string name;          ///< "hipRTC 5.2.21153", "clang 19", "NVRTC 13.0"
  std::filesystem::path at;  ///< clang's program, the others' library
  int version = 0;           ///< 100 * major + minor; clang: LLVM's major; 0: unknown
  bool of_rocm = false;      ///< a clang with `version` of ROCm, 100 * major + minor
};

/// What may compile, best first.
struct InstalledCompilers {
  std::vector<InstalledCompiler> list;
  std::vector<std::string> problems;  ///< one line each: why a library that is there does not load
};

/// Looks for compilers for a vendor's targets. AMD: hipRTC, then `clang` or, when that is empty, ROCm's clangs and
/// those in $PATH with their lld, newest first. NVIDIA: NVRTC. Loads libraries, runs nothing.
[[nodiscard]] InstalledCompilers find_compilers(driver::Vendor vendor, const std::filesystem::path& clang = {});

/// The first that knows the target; one of unknown version is believed to.
/// Errors: Error(kDevice) when there is none, with the package that brings one.
[[nodiscard]] InstalledCompiler choose_compiler(const InstalledCompilers& installed, const GpuTarget& target);

/// The options that each kernel is compiled with. Arithmetic is the same everywhere: no contraction (kernels spell fma
/// where they want it), denormals kept, division and square root correctly rounded.
[[nodiscard]] std::vector<std::string> compile_options(CompilerKind kind, const GpuTarget& target);

/// Changes whenever another compiler stands at the same place: path, size and time of its file.
[[nodiscard]] std::string compiler_identity(const InstalledCompiler& compiler);

}  // namespace forge::codegen

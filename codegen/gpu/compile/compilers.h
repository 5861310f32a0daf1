#pragma once
// Finds the installed kernel compilers (hipRTC, clang, NVRTC), chooses one for a target, and gives its options. Used by
// compile_service.h.

#include <filesystem>
#include <string>
#include <vector>

#include "codegen/gpu/compile/compile_wire.h"
#include "codegen/gpu/targets.h"

namespace forge::codegen {

/// A compiler that is installed on this machine.
struct InstalledCompiler {
  CompilerKind kind = CompilerKind::kHiprtc;
  std::string name;          ///< "hipRTC 5.2.21153", "clang 19", "NVRTC 13.0"
  std::filesystem::path at;  ///< clang's program, the others' library
  int version = 0;           ///< 100 * major + minor; clang: LLVM's major; 0: unknown
  bool of_rocm = false;      ///< ROCm's clang; `version` is then ROCm's, 100 * major + minor
};

/// The installed compilers, best first.
struct InstalledCompilers {
  std::vector<InstalledCompiler> list;
  std::vector<std::string> problems;  ///< one line each: why an installed compiler cannot be used
};

/// Looks for the compilers for a vendor's targets. AMD: hipRTC, then `clang`, or if that is empty, ROCm's clangs and
/// those in $PATH that have lld beside them, newest first. NVIDIA: NVRTC. Loads libraries, but runs no program.
[[nodiscard]] InstalledCompilers find_compilers(driver::Vendor vendor, const std::filesystem::path& clang = {});

/// The first compiler that supports the target; one of unknown version is assumed to.
/// Errors: Error(kDevice) if there is none, with the package to install.
[[nodiscard]] InstalledCompiler choose_compiler(const InstalledCompilers& installed, const GpuTarget& target);

/// The options of every compilation. Arithmetic is the same with all compilers: no contraction (kernels call fma
/// explicitly), denormals are kept, division and square root are correctly rounded.
[[nodiscard]] std::vector<std::string> compile_options(CompilerKind kind, const GpuTarget& target);

/// A text for cache keys that changes if the compiler is replaced: name, path, size and modification time of its file.
[[nodiscard]] std::string compiler_identity(const InstalledCompiler& compiler);

}  // namespace forge::codegen

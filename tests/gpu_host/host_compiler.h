#pragma once
// Kernels for the null driver: specialised sources built by the host compiler into shared objects, and the driver made
// to run them by the executor. So a plan compiled with HostKernelCompiler, for any GPU target, runs lane by lane under
// whatever is above the driver layer:
//
//   HostKernelCompiler compiler;
//   options.kernels = &compiler;                                         // of codegen::compile_plan
//   const auto control = std::make_shared<driver::NullControl>(driver::NullOptions{.wave_size = 64, .arch = "gfx90a"});
//   run_on_host(*control);
//   const auto driver = driver::open_null(control);              // modules made there launch on the host

#include <filesystem>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "codegen/kernel_compiler.h"
#include "tests/gpu_host/executor.h"
#include "tests/null_driver/null_driver.h"

namespace forge::gpu_host {

/// A directory that is removed with all that is in it.
class ScratchDirectory {
 public:
  /// Errors: std::runtime_error.
  ScratchDirectory();
  ScratchDirectory(const ScratchDirectory&) = delete;
  ScratchDirectory& operator=(const ScratchDirectory&) = delete;
  ~ScratchDirectory();
  [[nodiscard]] const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
};

/// The compiler that built this program, with the AddressSanitizer that it has. Two compilations at once; what was
/// compiled once is kept as long as this lives (and longer where ccache is installed).
class HostKernelCompiler final : public codegen::KernelCompiler {
 public:
  HostKernelCompiler() = default;
  /// `undefined`: with UndefinedBehaviorSanitizer too, which ends the program at a finding. It doubles the time.
  explicit HostKernelCompiler(bool undefined) : undefined_(undefined) {}
  /// A code object is an image for the null driver with the shared object behind it. Facts: the wave. `target` may be
  /// any: the source says which wave it is for, and must agree with "host-wave32" and "host-wave64".
  /// Errors: Error(kDevice) with the compiler's words, or when a source has another kernel than it says.
  std::vector<codegen::CompiledKernel> compile(const std::string& target,
                                               std::span<const codegen::KernelSource> sources) override;
  /// How often a compiler was started.
  [[nodiscard]] int compilations() const { return compilations_; }

 private:
  struct Job;
  void build(std::vector<Job>& jobs);
  codegen::CompiledKernel load(const Job& job) const;

  ScratchDirectory directory_;
  std::map<std::string, codegen::CompiledKernel> built_;  ///< by the source's text
  int compilations_ = 0;
  bool undefined_ = false;
};

/// The kernel of a code object that HostKernelCompiler made, loaded. Errors: std::runtime_error.
Kernel load_host_kernel(const std::string& entry, std::span<const std::byte> code);

/// Makes modules of `control`'s driver run their kernels by the executor, with `launch`'s order. A kernel's fault
/// comes out of the call that launched it as LaneFault.
void run_on_host(driver::NullControl& control, const Launch& launch = {});

}  // namespace forge::gpu_host

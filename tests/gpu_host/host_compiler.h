#pragma once
// A KernelCompiler for the null driver: it builds specialised sources with the host compiler into shared objects, and
// makes the null driver run them with the lane executor. A plan compiled with HostKernelCompiler, for any GPU target,
// so runs lane by lane under the unchanged runtime above the driver layer:
//
//   HostKernelCompiler compiler;
//   options.kernels = &compiler;                                         // of codegen::compile_plan
//   const auto control = std::make_shared<driver::NullControl>(driver::NullOptions{.wave_size = 64, .arch = "gfx90a"});
//   run_on_host(*control);
//   const auto driver = driver::open_null(control);              // its modules now launch on the host

#include <filesystem>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "codegen/kernel_compiler.h"
#include "tests/gpu_host/executor.h"
#include "tests/null_driver/null_driver.h"

namespace forge::gpu_host {

/// A temporary directory, removed with its contents on destruction.
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

/// Runs the compiler that built this program, with AddressSanitizer if the program has it. Two compilations run at
/// once. Results are cached as long as this lives, and longer where ccache is installed.
class HostKernelCompiler final : public codegen::KernelCompiler {
 public:
  HostKernelCompiler() = default;
  /// `undefined`: also uses UndefinedBehaviorSanitizer, which aborts at a finding and doubles the time.
  explicit HostKernelCompiler(bool undefined) : undefined_(undefined) {}
  /// A code object is a null-driver image followed by the shared object. The only kernel fact is the wave size.
  /// `target` may be any GPU target: the source determines its wave size, which must agree with "host-wave32" and
  /// "host-wave64". Errors: Error(kDevice) with the compiler's message, or if a source does not define the kernel that
  /// it names.
  std::vector<codegen::CompiledKernel> compile(const std::string& target,
                                               std::span<const codegen::KernelSource> sources) override;
  /// Number of compiler processes started.
  [[nodiscard]] int compilations() const { return compilations_; }

 private:
  struct Job;
  void build(std::vector<Job>& jobs);
  codegen::CompiledKernel load(const Job& job) const;

  ScratchDirectory directory_;
  std::map<std::string, codegen::CompiledKernel> built_;  ///< key: the source text
  int compilations_ = 0;
  bool undefined_ = false;
};

/// Stands for a kernel that a test never launches: a code object that loads, whose launch is an error.
codegen::CompiledKernel left_out_kernel(const std::string& entry, int wave);

/// Loads the kernel of a code object that HostKernelCompiler made. Errors: std::runtime_error.
Kernel load_host_kernel(const std::string& entry, std::span<const std::byte> code);

/// Makes the modules of `control`'s driver run their kernels on the executor, in the order of `launch`. A fault of a
/// kernel leaves the launching call as a LaneFault.
void run_on_host(driver::NullControl& control, const Launch& launch = {});

}  // namespace forge::gpu_host

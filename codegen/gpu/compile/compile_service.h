#pragma once
// The kernel compiler of GPU back-ends: takes code objects from the cache, compiles missing ones in helper processes
// (compile_pool.h), and reads each code object's resources (code_object.h).

#include <chrono>
#include <cstddef>
#include <filesystem>
#include <functional>
#include <map>
#include <string>

#include "codegen/gpu/compile/compilers.h"
#include "codegen/gpu/compile/kernel_cache.h"
#include "codegen/kernel_compiler.h"
#include "runtime/plan/cache.h"

namespace forge::codegen {

struct CompileServiceOptions {
  plan::CacheOptions cache;                   ///< kernels are in its directory's kernels/; empty: no cache
  std::filesystem::path helper;               ///< forge-kernel-compiler; empty: find_helper()'s
  std::filesystem::path clang;                ///< empty: the newest installed one
  bool prefer_clang = false;                  ///< also for AMD targets that hipRTC supports
  int jobs = 0;                               ///< compilations at once; 0: one per CPU
  std::chrono::milliseconds timeout{60'000};  ///< of one kernel: CPU time, or wall-clock time without any CPU time
  /// Folder for sources that do not compile, and their logs; empty: failed/ in the cache directory, or, without a
  /// cache, a new folder in the temporary directory.
  std::filesystem::path keep_dir;
  std::function<void(const std::string&)> note;  ///< gets warnings, one line each, and logs of failures; may be empty
};

struct CompileStatistics {
  std::size_t cached = 0, compiled = 0;  ///< kernels
  std::size_t helpers = 0;               ///< processes started
};

/// Used by one thread at a time.
class CompileService final : public KernelCompiler {
 public:
  explicit CompileService(CompileServiceOptions options);
  std::vector<CompiledKernel> compile(const std::string& target, std::span<const KernelSource> sources) override;

  [[nodiscard]] const CompileStatistics& statistics() const { return statistics_; }
  /// The path of the kernel's cache entry, whether it exists or not; empty without a cache or for an unknown target.
  /// Errors: those of compile() that do not concern the source.
  [[nodiscard]] std::filesystem::path cache_path(const std::string& target, const KernelSource& source);

 private:
  struct Job;
  const InstalledCompiler& compiler_for(const GpuTarget& target);
  Job job_of(const GpuTarget& target, const KernelSource& source);
  void compile_missing(const GpuTarget& target, std::vector<Job>& jobs);
  CompiledKernel finish(const GpuTarget& target, const Job& job, CompileReply reply);
  [[noreturn]] void fail(const GpuTarget& target, const Job& job, const CompileReply& reply);
  std::filesystem::path keep(const GpuTarget& target, const Job& job, const std::string& log) const;

  CompileServiceOptions options_;
  KernelCache cache_;
  std::map<std::string, InstalledCompiler, std::less<>> compilers_;  ///< by target
  CompileStatistics statistics_;
};

}  // namespace forge::codegen

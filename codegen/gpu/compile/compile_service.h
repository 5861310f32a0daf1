#pragma once
// Kernel sources to code objects: looks into the cache, compiles what is not there in helper processes, reads each
// code object's facts.

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
  plan::CacheOptions cache;                   ///< kernels lie in its directory's kernels/; empty: none are kept
  std::filesystem::path helper;               ///< forge-kernel-compiler; empty: find_helper()'s
  std::filesystem::path clang;                ///< empty: the newest that is installed
  bool prefer_clang = false;                  ///< for AMD targets that hipRTC knows too
  int jobs = 0;                               ///< compilations at once; 0: one a CPU
  std::chrono::milliseconds timeout{60'000};  ///< of one kernel: CPU time, and clock time without any
  /// Where sources that do not compile are kept, with their logs; empty: failed/ in the cache directory, else in the
  /// temporary directory.
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
  /// Where the kernel lies or would lie in the cache; empty without one. Errors: as compile's, but for the source.
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

#pragma once
// Compiled kernels on disk, one file a key in <cache>/kernels, where the key is a hash of everything that decides the
// code: expanded source, target, options, compiler. As with the plan cache (runtime/plan/cache.h), whatever is wrong
// with it becomes one line and costs a compilation. Entries appear by rename, so readers and writers need no lock: two
// processes that compile the same kernel at once write the same.

#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <string_view>

#include "codegen/gpu/compile/cache_entry.h"
#include "runtime/plan/cache.h"

namespace forge::codegen {

inline constexpr const char* kKernelFolder = "kernels";  ///< in the cache
inline constexpr std::string_view kKernelSuffix = ".kernel";

struct CachedKernel {
  std::string compiler;
  std::string code;
};

class KernelCache {
 public:
  /// `note` gets warnings, one line each.
  KernelCache(const plan::CacheOptions& options, std::function<void(const std::string&)> note);

  /// The entry of `key`, when it is whole.
  [[nodiscard]] std::optional<CachedKernel> find(const std::string& key);
  void store(const std::string& key, const CachedKernel& kernel);
  /// Removes least recently used entries until the rest fits.
  void evict() const;
  [[nodiscard]] std::filesystem::path entry_path(const std::string& key) const;

 private:
  bool usable();
  std::filesystem::path directory_;  ///< empty: no cache
  std::uint64_t bytes_max_;
  std::function<void(const std::string&)> note_;
  bool prepared_ = false;
};

}  // namespace forge::codegen

#pragma once
// The cache of compiled kernels: one file per key in <cache>/kernels. The key is a hash of everything that determines
// the code: expanded source, target, options and compiler. As with the plan cache (runtime/plan/cache.h), a problem
// with the cache is reported in one line and only costs a compilation. Entries are written to a temporary file and
// renamed, so readers and writers need no lock; two processes that compile the same kernel at once write the same
// contents.

#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <string_view>

#include "codegen/gpu/compile/cache_entry.h"
#include "runtime/plan/cache.h"

namespace forge::codegen {

inline constexpr const char* kKernelFolder = "kernels";  ///< folder in the cache directory
inline constexpr std::string_view kKernelSuffix = ".kernel";

struct CachedKernel {
  std::string compiler;
  std::string code;
};

class KernelCache {
 public:
  /// `note` receives warnings, one line each.
  KernelCache(const plan::CacheOptions& options, std::function<void(const std::string&)> note);

  /// The entry of `key`, if it exists and is intact.
  [[nodiscard]] std::optional<CachedKernel> find(const std::string& key);
  void store(const std::string& key, const CachedKernel& kernel);
  /// Removes the least recently used entries until the others fit the cache's share.
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

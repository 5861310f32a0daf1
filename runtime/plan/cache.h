#pragma once
// The plan cache: one file <directory>/<key>.plan per key. The key is a hash of everything that determines the plan
// (model identity, target, options, forge's version). The cache is an optimisation only: any problem with it becomes a
// warning, and the plan is built and used from memory.
//
// Several processes: one takes flock(2) on <directory>/<key>.lock and builds, the others wait and then read its entry.
// If the builder dies, the kernel releases its lock and the next process builds. Entries appear by rename, so readers
// need no lock.

#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/plan/plan_file.h"

namespace forge::plan {

inline constexpr std::string_view kPlanSuffix = ".plan";
inline constexpr std::uint64_t kCacheBytesDefault = std::uint64_t{4} << 30;

/// Location and size limit of the cache.
struct CacheOptions {
  std::filesystem::path directory;               ///< empty: no cache, every plan is built
  std::uint64_t bytes_max = kCacheBytesDefault;  ///< limit for all entries together; 0: nothing is kept

  /// From $FORGE_CACHE_DIR, else $XDG_CACHE_HOME/forge, else ~/.cache/forge; the limit from $FORGE_CACHE_MAX_BYTES.
  /// Errors: Error(kUsage) if the limit is not a number.
  [[nodiscard]] static CacheOptions from_environment();
};

/// Result of PlanCache::get_or_build.
struct CachedPlan {
  PlanT plan;
  std::filesystem::path path;         ///< the entry's file; empty if the plan could not be stored
  bool built = false;                 ///< true if this call built the plan
  std::vector<std::string> warnings;  ///< one line each, ready to print
};

/// Thread-safe and usable from several processes at once.
class PlanCache {
 public:
  using Build = std::function<PlanT()>;

  explicit PlanCache(CacheOptions options);

  /// Returns the cached plan of `key` (1 to 128 letters, digits, '-' or '_'), or calls `build` and stores its result.
  /// `waiting` is called once before this call blocks on another process that is building the same key. Errors: those
  /// of `build` (nothing is stored then); Error(kInternal) for a malformed key.
  [[nodiscard]] CachedPlan get_or_build(std::string_view key, const Build& build,
                                        const std::function<void()>& waiting = {}) const;

  /// The path of the entry of `key`, whether it exists or not; empty without a cache.
  [[nodiscard]] std::filesystem::path entry_path(std::string_view key) const;

 private:
  CacheOptions options_;
};

}  // namespace forge::plan

#pragma once
// The plan cache: <directory>/<key>.plan, one file a key, where the key is a hash of everything that decides the plan
// (model identity, target, options, forge's version). A cache is never needed for a result: whatever is wrong with it
// becomes a warning, and the plan is built and used from memory.
//
// Processes agree through flock(2) on <directory>/<key>.lock: one builds, the others wait and read; when the builder
// dies its lock falls and the next one builds. Entries appear by rename, so readers need no lock.

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

struct CacheOptions {
  std::filesystem::path directory;               ///< empty: no cache, every plan is built
  std::uint64_t bytes_max = kCacheBytesDefault;  ///< of all entries together; 0: nothing is kept

  /// $FORGE_CACHE_DIR, else $XDG_CACHE_HOME/forge, else ~/.cache/forge; $FORGE_CACHE_MAX_BYTES.
  /// Errors: Error(kUsage) when the size is not a number of bytes.
  [[nodiscard]] static CacheOptions from_environment();
};

struct CachedPlan {
  PlanT plan;
  std::filesystem::path path;         ///< where the entry lies; empty when it could not be kept
  bool built = false;                 ///< by this call
  std::vector<std::string> warnings;  ///< one line each, ready to be printed
};

class PlanCache {
 public:
  using Build = std::function<PlanT()>;

  explicit PlanCache(CacheOptions options);

  /// The entry of `key` (1 to 128 letters, digits, '-', '_'), or what `build` makes, which is then kept.
  /// `waiting` is called once when another process is building this key, before waiting for it.
  /// Errors: what `build` throws (nothing is kept); Error(kInternal) for a malformed key. Nothing else.
  [[nodiscard]] CachedPlan get_or_build(std::string_view key, const Build& build,
                                        const std::function<void()>& waiting = {}) const;

  /// Where the entry of `key` lies or would lie; empty without a cache.
  [[nodiscard]] std::filesystem::path entry_path(std::string_view key) const;

 private:
  CacheOptions options_;
};

}  // namespace forge::plan

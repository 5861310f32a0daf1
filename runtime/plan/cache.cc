#include "runtime/plan/cache.h"

#include <fmt/format.h>
#include <pwd.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstdlib>
#include <optional>
#include <system_error>
#include <utility>

#include "support/error.h"
#include "support/os/cache_folder.h"
#include "support/os/key_lock.h"

namespace forge::plan {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kLockSuffix = ".lock";

// Joins a fixed description of the problem with what to do about it; the cache never fails a command.
std::string environment(const char* name) {
  const char* value = std::getenv(name);  // NOLINT(concurrency-mt-unsafe): read at start-up
  return value == nullptr ? "" : value;
}

std::string cache_warning(const fs::path& directory, std::string_view what, std::string why) {
  return Error(ErrorCode::kCache, fmt::format("{} {}", what, printable(directory.native(), 200)), std::move(why),
               "the plan is used from memory; set FORGE_CACHE_DIR to a directory of yours to keep it")
      .line();
}

/// Reads an entry. A missing one returns nothing; a damaged or foreign one returns nothing and adds a warning.
std::optional<PlanT> read_entry(const fs::path& path, std::string_view key, std::vector<std::string>& warnings) {
  struct stat status{};
  if (::lstat(path.c_str(), &status) != 0) return std::nullopt;
  try {
    PlanT plan = read_plan(path, key);  // modification time = time of last use, for eviction
    touch_cache_file(path);
    return plan;
  } catch (const Error& error) {
    if (::lstat(path.c_str(), &status) == 0)  // unless another process has just evicted it
      warnings.push_back(error.line() + " (ignored, building it again)");
    return std::nullopt;
  }
}

}  // namespace

/// A relative XDG_CACHE_HOME is ignored, as the XDG base directory specification demands.
CacheOptions CacheOptions::from_environment() {
  CacheOptions options;
  if (const std::string own = environment("FORGE_CACHE_DIR"); !own.empty()) {
    options.directory = own;
  } else if (const std::string xdg = environment("XDG_CACHE_HOME"); xdg.starts_with('/')) {
    options.directory = fs::path(xdg) / "forge";
  } else {
    std::string home = environment("HOME");
    if (home.empty())
      if (const passwd* user = ::getpwuid(::geteuid()); user != nullptr && user->pw_dir != nullptr) home = user->pw_dir;
    if (!home.empty()) options.directory = fs::path(home) / ".cache" / "forge";
  }
  if (const std::string text = environment("FORGE_CACHE_MAX_BYTES"); !text.empty()) {
    const auto [end, failed] = std::from_chars(text.data(), text.data() + text.size(), options.bytes_max);
    if (failed != std::errc{} || end != text.data() + text.size())
      throw Error(ErrorCode::kUsage, fmt::format("FORGE_CACHE_MAX_BYTES={} cannot be used", printable(text)),
                  "it is not a number of bytes", "give a whole number, e.g. 4294967296");
  }
  return options;
}

PlanCache::PlanCache(CacheOptions options) : options_(std::move(options)) {
  std::string text = options_.directory.native();  // "dir/" and "dir" are the same directory
  while (text.size() > 1 && text.ends_with('/')) text.pop_back();
  options_.directory = text;
}

fs::path PlanCache::entry_path(std::string_view key) const {
  invariant(is_cache_key(key), "PLAN-003", "a cache key is 1 to 128 letters, digits, '-' or '_'");
  if (options_.directory.empty()) return {};
  return options_.directory / fmt::format("{}{}", key, kPlanSuffix);
}

/// Looks without a lock first; then takes the key's lock and looks again, because another process may have built the
/// entry meanwhile; then builds. Every problem with the cache itself becomes a warning.
CachedPlan PlanCache::get_or_build(std::string_view key, const Build& build,
                                   const std::function<void()>& waiting) const {
  CachedPlan result;
  const fs::path path = entry_path(key);
  const auto built_only = [&](std::optional<std::string> warning) {
    if (warning) result.warnings.push_back(std::move(*warning));
    result.plan = build();
    result.built = true;
    return std::move(result);
  };
  const auto found = [&]() {
    auto plan = read_entry(path, key, result.warnings);
    if (plan) result.plan = std::move(*plan), result.path = path;
    return plan.has_value();
  };

  if (path.empty() || options_.bytes_max == 0) return built_only(std::nullopt);
  if (auto why = prepare_cache_folder(options_.directory); !why.empty())
    return built_only(cache_warning(options_.directory, "cannot use the cache directory", std::move(why)));
  if (found()) return result;

  const KeyLock lock(options_.directory / fmt::format("{}{}", key, kLockSuffix), waiting);
  if (lock.error() != 0)
    return built_only(cache_warning(options_.directory, "cannot lock the cache directory",
                                    std::generic_category().message(lock.error())));
  result.warnings.clear();  // the second look adds those that are still true
  if (found()) return result;

  result.plan = build();
  result.built = true;
  try {
    // Only the holder of the key's lock writes its temporary files, so leftovers can be removed safely.
    remove_cache_temporaries(options_.directory, kPlanSuffix, key);
    const auto image = serialize_plan(result.plan, key);
    if (image.size() > options_.bytes_max) {
      result.warnings.push_back(Error(ErrorCode::kCache, "the plan was not cached",
                                      fmt::format("its {} bytes exceed the cache's limit", image.size()),
                                      "raise FORGE_CACHE_MAX_BYTES")
                                    .line());
      return result;
    }
    write_image(path, image, FileAccess::kOwner);
    result.path = path;
    evict_cache_files(cache_files(options_.directory, kPlanSuffix), options_.bytes_max, path);
  } catch (const Error& error) {
    if (error.kind() == ErrorKind::kInternal) throw;
    result.warnings.push_back(error.line() + " (the plan is used from memory)");
  }
  return result;
}

}  // namespace forge::plan

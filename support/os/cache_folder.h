#pragma once
// A directory of cache entries on disk, used by the caches of plans, kernels, packed weights and self-test results. An
// entry is one regular file, KEY + suffix. Entries appear by rename and may be deleted at any time.

#include <sys/types.h>

#include <cstdint>
#include <ctime>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

namespace forge {

/// One file of the cache; `used` is its modification time, which touch_cache_file() sets.
struct CacheFile {
  std::filesystem::path path;
  std::uint64_t bytes = 0;
  timespec used{};
};

/// Creates the directory with mode 0700, and its parents if necessary. Returns why it cannot serve as a cache, or an
/// empty string. Cached files are executed as code or loaded as weights, so a directory is refused if another user owns
/// it or if everybody may write to it.
[[nodiscard]] std::string prepare_cache_folder(const std::filesystem::path& folder);

/// The same for a subdirectory of the cache directory: both must pass the check.
[[nodiscard]] std::string prepare_cache_subfolder(const std::filesystem::path& folder);

/// True for 1 to 128 ASCII letters, digits, '-' or '_'.
[[nodiscard]] bool is_cache_key(std::string_view key);

/// The entries: all regular files whose name is a key followed by `suffix`. Other files are ignored; a missing
/// directory has no entries.
[[nodiscard]] std::vector<CacheFile> cache_files(const std::filesystem::path& folder, std::string_view suffix);

/// The unfinished entries that AtomicFile is writing or left behind: ".KEY" + suffix + "." + anything + ".tmp".
[[nodiscard]] std::vector<CacheFile> cache_temporaries(const std::filesystem::path& folder, std::string_view suffix);
/// Removes the temporary files of `key`, and all that are older than an hour: a killed process left those behind.
void remove_cache_temporaries(const std::filesystem::path& folder, std::string_view suffix, std::string_view key = {});

/// Removes the least recently used files until the others hold at most `bytes_max` bytes together. `kept` is never
/// removed.
void evict_cache_files(std::vector<CacheFile> files, std::uint64_t bytes_max, const std::filesystem::path& kept = {});

/// Marks an entry as used now. Failure is ignored: in a read-only cache the order of use is simply not recorded.
void touch_cache_file(const std::filesystem::path& path) noexcept;

}  // namespace forge

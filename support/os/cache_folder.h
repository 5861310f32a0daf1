#pragma once
// A folder of cache entries: one regular file a key, KEY + suffix, that appears by rename and may go at any time.

#include <sys/types.h>

#include <cstdint>
#include <ctime>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

namespace forge {

struct CacheFile {
  std::filesystem::path path;
  std::uint64_t bytes = 0;
  timespec used{};
};

/// Makes the folder (and those above it) with mode 0700; says what keeps it from being a cache, or nothing.
/// What lies there is code or becomes weights: a folder that other users can put files into is not trusted.
[[nodiscard]] std::string prepare_cache_folder(const std::filesystem::path& folder);

/// The same for a folder inside the cache's, whose own mode counts too.
[[nodiscard]] std::string prepare_cache_subfolder(const std::filesystem::path& folder);

/// 1 to 128 letters, digits, '-' or '_'.
[[nodiscard]] bool is_cache_key(std::string_view key);

/// The entries: regular files whose name is a key and `suffix`. Others are not looked at; an absent folder has none.
[[nodiscard]] std::vector<CacheFile> cache_files(const std::filesystem::path& folder, std::string_view suffix);

/// Temporary files of entries: ".KEY" + suffix, anything, ".tmp".
[[nodiscard]] std::vector<CacheFile> cache_temporaries(const std::filesystem::path& folder, std::string_view suffix);
/// Removes those of `key`, and those so old that a killed process left them.
void remove_cache_temporaries(const std::filesystem::path& folder, std::string_view suffix, std::string_view key = {});

/// Removes those used the longest time ago until the rest has `bytes_max` at most. `kept` stays.
void evict_cache_files(std::vector<CacheFile> files, std::uint64_t bytes_max, const std::filesystem::path& kept = {});

/// Says that an entry was used now; fails harmlessly in a read-only cache.
void touch_cache_file(const std::filesystem::path& path) noexcept;

}  // namespace forge

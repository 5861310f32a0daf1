#pragma once
// The format of files in small caches: a magic line, a hash of key and texts, and the texts. The hash detects damaged
// files and files that were renamed to another key. Used by kernel_cache.h and session/self_test/card_verdict.cc.

#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace forge::codegen {

/// 32 hex digits: XXH3-128 over all texts and their lengths.
[[nodiscard]] std::string kernel_key(const std::vector<std::string>& texts);

/// The bytes of a file. `magic` identifies the kind of cache and ends with a newline.
[[nodiscard]] std::string cache_entry(std::string_view magic, std::string_view key,
                                      const std::vector<std::string>& texts);

/// The texts of an entry; nothing if the file does not exist, is not a regular file, or is not a valid entry for `key`.
[[nodiscard]] std::optional<std::vector<std::string>> read_cache_entry(const std::filesystem::path& path,
                                                                       std::string_view magic, std::string_view key);

}  // namespace forge::codegen

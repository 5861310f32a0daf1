#pragma once
// Files of small caches: a line that says what it is, a hash of key and texts, the texts.

#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace forge::codegen {

/// 32 hex digits of XXH3-128 over all texts and their lengths.
[[nodiscard]] std::string kernel_key(const std::vector<std::string>& texts);

/// The file's bytes. `magic` ends with a newline.
[[nodiscard]] std::string cache_entry(std::string_view magic, std::string_view key,
                                      const std::vector<std::string>& texts);

/// The texts of an entry; nothing when the file is not there, no regular file, or not exactly such an entry of `key`.
[[nodiscard]] std::optional<std::vector<std::string>> read_cache_entry(const std::filesystem::path& path,
                                                                       std::string_view magic, std::string_view key);

}  // namespace forge::codegen

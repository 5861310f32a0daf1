#pragma once
// forge-inspect cache: lists or clears the cache.

#include <optional>
#include <string>

namespace forge::tools {

inline constexpr const char* kCacheParts = "all|plans|kernels|weights|verdicts|tuned";

/// Number and size of the cached plans, kernels, packed weights, verdicts and measured choices, as text or JSON.
/// Errors: kCache when there is no cache.
[[nodiscard]] std::string inspect_cache(bool json);

/// Deletes the entries of `part` (one of kCacheParts) and their leftover temporary files; other files stay. Running
/// programs keep files that they have mapped. Returns a note for the user. Errors: kCache without a cache; kIo for a
/// file that cannot be deleted.
[[nodiscard]] std::string clear_cache(const std::string& part);

}  // namespace forge::tools

#pragma once
// forge-inspect cache: what lies in the cache, and clearing it.

#include <optional>
#include <string>

namespace forge::tools {

inline constexpr const char* kCacheParts = "all|plans|kernels|weights|verdicts";

/// Files and bytes of plans, kernels and packed weights, as text or JSON. Errors: kCache when there is no cache.
[[nodiscard]] std::string inspect_cache(bool json);

/// Removes the entries of `part` (one of kCacheParts), and what was left of their making; files of others stay. Returns
/// a line for people. Running programs keep what they have mapped. Errors: kCache without a cache; kIo for what cannot
/// be removed.
[[nodiscard]] std::string clear_cache(const std::string& part);

}  // namespace forge::tools

#pragma once
// White space of JSON, which also surrounds markers and values in answers.

#include <cstddef>
#include <string_view>

namespace forge::text {

inline constexpr std::string_view kWhiteSpace = " \t\r\n";
/// Around JSON in a code fence.
inline constexpr std::string_view kFence = "```";

[[nodiscard]] constexpr bool is_space(char c) {
  return kWhiteSpace.find(c) != std::string_view::npos;
}
/// Without white space at its beginning and end.
[[nodiscard]] constexpr std::string_view trimmed(std::string_view text) {
  const std::size_t begin = text.find_first_not_of(kWhiteSpace);
  if (begin == std::string_view::npos) return {};
  return text.substr(begin, text.find_last_not_of(kWhiteSpace) - begin + 1);
}

/// Without white space at its end.
[[nodiscard]] constexpr std::string_view trimmed_end(std::string_view text) {
  return text.substr(0, text.find_last_not_of(kWhiteSpace) + 1);
}

}  // namespace forge::text

#pragma once
// Sizes of tests that show that time or memory is bounded. Sanitizers make code up to thirty times slower, and what
// they look for does not take many megabytes; the plain build runs the same tests in full size.

#include <cstddef>

#ifndef __has_feature
#define __has_feature(feature) 0
#endif

namespace forge::tests {

#if defined(__SANITIZE_ADDRESS__) || __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
inline constexpr bool kSanitized = true;
#else
inline constexpr bool kSanitized = false;
#endif

/// `whole`, or a sixteenth of it in a build with sanitizers.
constexpr std::size_t sized(std::size_t whole) {
  return kSanitized ? whole / 16 : whole;
}

}  // namespace forge::tests

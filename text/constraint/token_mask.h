#pragma once
// Masks of tokens: bit t % 32 of word t / 32 for token t.

#include <cstddef>
#include <cstdint>
#include <span>

namespace forge::text::constraint {

constexpr std::size_t mask_words(std::size_t tokens) {
  return (tokens + 31) / 32;
}
[[nodiscard]] inline bool allows(std::span<const std::uint32_t> mask, std::size_t token) {
  return (mask[token / 32] >> token % 32 & 1U) != 0;
}
inline void allow(std::span<std::uint32_t> mask, std::size_t token) {
  mask[token / 32] |= 1U << token % 32;
}

}  // namespace forge::text::constraint

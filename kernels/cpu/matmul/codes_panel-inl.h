#pragma once
// Activation panels for matmuls of packed codes (matmul_codes-inl.h, matmul_tiles-inl.h). A panel is a strip of one
// token's q8a_32 row: quants and scales as they are, and for each sub-block of the weights one 32-bit word that
// corrects for the weights' zero or minimum (PanelSums).

#include "kernels/cpu/lanes-inl.h"
#include "kernels/cpu/matmul/matmul_int-inl.h"

namespace forge::cpu::FORGE_CPU_NAMESPACE {

/// What the word of a sub-block holds. minimum: the f32 scale * sum, which a weight's minimum is multiplied with.
/// Otherwise the i32 -zero * sum, which a dot of raw values starts with, so that it becomes a dot of raw - zero. `sum`
/// is the sum of the sub-block's activation quants.
struct PanelSums {
  bool minimum;
  std::int32_t zero;
};

/// Columns of a strip, in units of 32. The unpacked strips of two groups take 20 or 24 KiB of L1.
inline constexpr std::size_t kStripParts = 16;

/// One token's strip.
template <int kSub>
struct alignas(64) CodesPanel {
  std::int8_t quants[32 * kStripParts];
  float scales[kStripParts];
  std::uint32_t sums[kStripParts * (32 / kSub)];
};

/// Sums of 128 int8 values, one sum per kSub (16 or 32) of them.
template <int kSub>
FORGE_INLINE void sums_of_128(const std::int8_t* q, std::uint32_t* out) {
#if defined(FORGE_CPU_GENERIC) || defined(__aarch64__)  // compilers turn this loop into dots or widening sums
  for (int s = 0; s < 128 / kSub; ++s) {
    std::int32_t total = 0;
    for (int i = 0; i < kSub; ++i) total += q[kSub * s + i];
    out[s] = static_cast<std::uint32_t>(total);
  }
#else
  const auto quads = [&](int i) FORGE_INLINE_BODY {  // sums of 4 neighbours, 8 per call
    const __m256i bytes = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(q + 32 * i));
    return _mm256_madd_epi16(_mm256_maddubs_epi16(_mm256_set1_epi8(1), bytes), _mm256_set1_epi16(1));
  };
  const __m256i sums = _mm256_hadd_epi32(_mm256_hadd_epi32(quads(0), quads(1)), _mm256_hadd_epi32(quads(2), quads(3)));
  const __m128i low = _mm256_castsi256_si128(sums), high = _mm256_extracti128_si256(sums, 1);
  auto* to = reinterpret_cast<__m128i*>(out);
  if constexpr (kSub == 32) {
    _mm_storeu_si128(to, _mm_add_epi32(low, high));
  } else {
    _mm_storeu_si128(to, _mm_unpacklo_epi32(low, high));
    _mm_storeu_si128(to + 1, _mm_unpackhi_epi32(low, high));
  }
#endif
}

/// Computes the words of 32-column parts [first, first + parts) of a q8a_32 row of k columns. Minima per 32 columns
/// need no sums: the row has scale * sum already.
template <int kSub>
void panel_sums(PanelSums kind, const std::byte* row, std::size_t k, std::size_t first, std::size_t parts,
                std::uint32_t* out) {
  constexpr std::size_t kParts = 32 / kSub;
  const std::byte* scales = row + k + 4 * first;
  if (kSub == 32 && kind.minimum) {
    std::memcpy(out, scales + k / 32 * 4, 4 * parts);
    return;
  }
  const auto* quants = reinterpret_cast<const std::int8_t*>(row) + 32 * first;
  std::size_t p = 0;
  for (; p + 4 <= parts; p += 4) sums_of_128<kSub>(quants + 32 * p, out + p * kParts);
  if (p < parts) {
    std::int8_t rest[128] = {};
    std::uint32_t sums[4 * kParts];
    std::memcpy(rest, quants + 32 * p, 32 * (parts - p));
    sums_of_128<kSub>(rest, sums);
    std::memcpy(out + p * kParts, sums, 4 * kParts * (parts - p));
  }
  for (std::size_t i = 0; i < parts * kParts; ++i) {
    const auto total = static_cast<std::int32_t>(out[i]);
    float scale;
    std::memcpy(&scale, scales + 4 * (i / kParts), 4);
    out[i] = kind.minimum ? quant::bits_of_f32(scale * static_cast<float>(total))
                          : static_cast<std::uint32_t>(-kind.zero * total);
  }
}

/// Copies parts [first, first + parts) of the tokens' rows into panels.
template <int kSub>
void fill_codes_panels(const PanelSource& source, PanelSums kind, std::size_t first_token, std::size_t tokens,
                       std::size_t first, std::size_t parts, CodesPanel<kSub>* panels) {
  for (std::size_t t = 0; t < tokens; ++t) {
    const std::byte* row = source.row(first_token + t);
    std::memcpy(panels[t].quants, row + 32 * first, 32 * parts);
    std::memcpy(panels[t].scales, row + source.k + 4 * first, 4 * parts);
    panel_sums<kSub>(kind, row, source.k, first, parts, panels[t].sums);
  }
}

}  // namespace forge::cpu::FORGE_CPU_NAMESPACE

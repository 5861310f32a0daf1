#pragma once
// The prelude's part of matrix_tile.h: multiply_tile(Tile, fragments) for the tiles that the target has, and
// NativeTile, the one it has. kHasTiles says whether there is one. All lanes of the wave call multiply_tile together.

namespace forge::gpu {

#if defined(__HIP__)

namespace detail {
template <int Count>
using HalfVector = _Float16 __attribute__((ext_vector_type(Count)));
template <int Count>
using FloatVector = float __attribute__((ext_vector_type(Count)));

template <class Vector, class Element, int Count>
FORGE_DEVICE Vector vector_of(const Element (&values)[Count]) {
  static_assert(sizeof(Vector) == sizeof values, "a fragment fills its registers");
  Vector out;
  __builtin_memcpy(&out, values, sizeof out);
  return out;
}
}  // namespace detail

#if defined(__gfx908__) || defined(__gfx90a__) || defined(__gfx940__) || defined(__gfx942__) || defined(__gfx950__)
inline constexpr bool kHasTiles = true;
using NativeTile = MfmaF16Tile;
FORGE_DEVICE void multiply_tile(MfmaF16Tile, MfmaF16Tile::Fragments& f) {
  using A = detail::HalfVector<4>;
  using C = detail::FloatVector<4>;
  const C c = __builtin_amdgcn_mfma_f32_16x16x16f16(detail::vector_of<A>(f.a), detail::vector_of<A>(f.b),
                                                    detail::vector_of<C>(f.c), 0, 0, 0);
  __builtin_memcpy(f.c, &c, sizeof f.c);
}
#elif defined(__GFX11__)
inline constexpr bool kHasTiles = kWave == 32;
using NativeTile = WmmaF16Gfx11Tile;
FORGE_DEVICE void multiply_tile(WmmaF16Gfx11Tile, WmmaF16Gfx11Tile::Fragments& f) {
  using A = detail::HalfVector<16>;
  using C = detail::FloatVector<8>;
  const C c = __builtin_amdgcn_wmma_f32_16x16x16_f16_w32(detail::vector_of<A>(f.a), detail::vector_of<A>(f.b),
                                                         detail::vector_of<C>(f.c));
  __builtin_memcpy(f.c, &c, sizeof f.c);
}
#elif defined(__GFX12__)
inline constexpr bool kHasTiles = kWave == 32;
using NativeTile = WmmaF16Gfx12Tile;
FORGE_DEVICE void multiply_tile(WmmaF16Gfx12Tile, WmmaF16Gfx12Tile::Fragments& f) {
  using A = detail::HalfVector<8>;
  using C = detail::FloatVector<8>;
  const C c = __builtin_amdgcn_wmma_f32_16x16x16_f16_w32_gfx12(detail::vector_of<A>(f.a), detail::vector_of<A>(f.b),
                                                               detail::vector_of<C>(f.c));
  __builtin_memcpy(f.c, &c, sizeof f.c);
}
#else
inline constexpr bool kHasTiles = false;
#endif

#elif defined(__CUDACC__) || defined(__CUDACC_RTC__)

inline constexpr bool kHasTiles = true;
using NativeTile = MmaF16Sm80Tile;
FORGE_DEVICE void multiply_tile(MmaF16Sm80Tile, MmaF16Sm80Tile::Fragments& f) {
  const auto pair = [](const u16* at) { return static_cast<u32>(at[0]) | static_cast<u32>(at[1]) << 16; };
  asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
      "{%0, %1, %2, %3};"
      : "+f"(f.c[0]), "+f"(f.c[1]), "+f"(f.c[2]), "+f"(f.c[3])
      : "r"(pair(f.a)), "r"(pair(f.a + 2)), "r"(pair(f.a + 4)), "r"(pair(f.a + 6)), "r"(pair(f.b)), "r"(pair(f.b + 2)));
}

#else  // the host has them all, by their tables

inline constexpr bool kHasTiles = true;
template <int Wave>
struct TileOfWave {
  using Tile = WmmaF16Gfx11Tile;
};
template <>
struct TileOfWave<64> {
  using Tile = MfmaF16Tile;
};
using NativeTile = TileOfWave<kWave>::Tile;

template <class Tile>
void multiply_tile(Tile, typename Tile::Fragments& f, Site site = Site::here()) {
  static_assert(Tile::kLanes == kWave, "the tile is of another wave");
  using Fragments = typename Tile::Fragments;
  const auto all = static_cast<const Fragments*>(host_lanes->meet(&f, sizeof f, site));
  float a[Tile::kM][Tile::kK], b[Tile::kN][Tile::kK];
  for (int lane = 0; lane < kWave; ++lane) {
    for (int i = 0; i < Fragments::kA; ++i) a[Tile::a_row(lane, i)][Tile::a_k(lane, i)] = f32_of_f16(all[lane].a[i]);
    for (int i = 0; i < Fragments::kB; ++i) b[Tile::b_row(lane, i)][Tile::b_k(lane, i)] = f32_of_f16(all[lane].b[i]);
  }
  const int lane = host_lanes->thread % kWave;
  for (int i = 0; i < Fragments::kC; ++i)
    for (int k = 0; k < Tile::kK; ++k) f.c[i] += a[Tile::c_row(lane, i)][k] * b[Tile::c_column(lane, i)][k];
}

#endif

}  // namespace forge::gpu

#pragma once
// The prelude's part of matrix_tile.h: multiply_tile(Tile, fragments) for the tiles that the target has, and
// NativeTile (f16) and NativeInt8Tile, those it uses. kHasTiles says whether there are any. All lanes of the wave call
// multiply_tile together.

namespace forge::gpu {

namespace detail {
/// A fragment as the registers that an instruction takes, and back.
template <class Registers, class Element, int Count>
FORGE_DEVICE Registers registers_of(const Element (&values)[Count]) {
  static_assert(sizeof(Registers) == sizeof values, "a fragment fills its registers");
  Registers out;
  quant::copy_bytes<sizeof out>(&out, values);
  return out;
}
template <class Registers, class Element, int Count>
FORGE_DEVICE void store_registers(Element (&values)[Count], const Registers& registers) {
  static_assert(sizeof(Registers) == sizeof values, "registers fill their fragment");
  quant::copy_bytes<sizeof registers>(values, &registers);
}
}  // namespace detail

#if defined(__HIP__)

namespace detail {
template <int Count>
using HalfVector = _Float16 __attribute__((ext_vector_type(Count)));
template <int Count>
using FloatVector = float __attribute__((ext_vector_type(Count)));
template <int Count>
using IntVector = int __attribute__((ext_vector_type(Count)));
}  // namespace detail

#if defined(__gfx908__) || defined(__gfx90a__) || defined(__gfx940__) || defined(__gfx942__) || defined(__gfx950__)
inline constexpr bool kHasTiles = true;
using NativeTile = MfmaF16Tile;
FORGE_DEVICE void multiply_tile(MfmaF16Tile, MfmaF16Tile::Fragments& f) {
  using Half = detail::HalfVector<4>;
  detail::store_registers(
      f.c, __builtin_amdgcn_mfma_f32_16x16x16f16(detail::registers_of<Half>(f.a), detail::registers_of<Half>(f.b),
                                                 detail::registers_of<detail::FloatVector<4>>(f.c), 0, 0, 0));
}
FORGE_DEVICE void multiply_tile(MfmaF16WideTile, MfmaF16WideTile::Fragments& f) {
  using Half = detail::HalfVector<4>;
  detail::store_registers(
      f.c, __builtin_amdgcn_mfma_f32_32x32x8f16(detail::registers_of<Half>(f.a), detail::registers_of<Half>(f.b),
                                                detail::registers_of<detail::FloatVector<16>>(f.c), 0, 0, 0));
}
#if defined(__gfx908__) || defined(__gfx90a__)
using NativeInt8Tile = MfmaInt8Gfx908Tile;
FORGE_DEVICE void multiply_tile(MfmaInt8Gfx908Tile, MfmaInt8Gfx908Tile::Fragments& f) {
  detail::store_registers(
      f.c, __builtin_amdgcn_mfma_i32_16x16x16i8(detail::registers_of<int>(f.a), detail::registers_of<int>(f.b),
                                                detail::registers_of<detail::IntVector<4>>(f.c), 0, 0, 0));
}
#else
using NativeInt8Tile = MfmaInt8Gfx942Tile;
FORGE_DEVICE void multiply_tile(MfmaInt8Gfx942Tile, MfmaInt8Gfx942Tile::Fragments& f) {
  detail::store_registers(
      f.c, __builtin_amdgcn_mfma_i32_16x16x32_i8(detail::registers_of<long>(f.a), detail::registers_of<long>(f.b),
                                                 detail::registers_of<detail::IntVector<4>>(f.c), 0, 0, 0));
}
#endif
#elif defined(__GFX11__)
inline constexpr bool kHasTiles = kWave == 32;
using NativeTile = WmmaF16Gfx11Tile;
using NativeInt8Tile = WmmaInt8Gfx11Tile;
FORGE_DEVICE void multiply_tile(WmmaF16Gfx11Tile, WmmaF16Gfx11Tile::Fragments& f) {
  using Half = detail::HalfVector<16>;
  detail::store_registers(
      f.c, __builtin_amdgcn_wmma_f32_16x16x16_f16_w32(detail::registers_of<Half>(f.a), detail::registers_of<Half>(f.b),
                                                      detail::registers_of<detail::FloatVector<8>>(f.c)));
}
FORGE_DEVICE void multiply_tile(WmmaInt8Gfx11Tile, WmmaInt8Gfx11Tile::Fragments& f) {
  using Bytes = detail::IntVector<4>;
  detail::store_registers(f.c, __builtin_amdgcn_wmma_i32_16x16x16_iu8_w32(
                                   true, detail::registers_of<Bytes>(f.a), true, detail::registers_of<Bytes>(f.b),
                                   detail::registers_of<detail::IntVector<8>>(f.c), false));
}
#elif defined(__GFX12__)
inline constexpr bool kHasTiles = kWave == 32;
using NativeTile = WmmaF16Gfx12Tile;
using NativeInt8Tile = WmmaInt8Gfx12Tile;
FORGE_DEVICE void multiply_tile(WmmaF16Gfx12Tile, WmmaF16Gfx12Tile::Fragments& f) {
  using Half = detail::HalfVector<8>;
  detail::store_registers(f.c, __builtin_amdgcn_wmma_f32_16x16x16_f16_w32_gfx12(
                                   detail::registers_of<Half>(f.a), detail::registers_of<Half>(f.b),
                                   detail::registers_of<detail::FloatVector<8>>(f.c)));
}
FORGE_DEVICE void multiply_tile(WmmaInt8Gfx12Tile, WmmaInt8Gfx12Tile::Fragments& f) {
  using Bytes = detail::IntVector<2>;
  detail::store_registers(f.c, __builtin_amdgcn_wmma_i32_16x16x16_iu8_w32_gfx12(
                                   true, detail::registers_of<Bytes>(f.a), true, detail::registers_of<Bytes>(f.b),
                                   detail::registers_of<detail::IntVector<8>>(f.c), false));
}
#else
inline constexpr bool kHasTiles = false;
#endif

#elif defined(__CUDACC__) || defined(__CUDACC_RTC__)

inline constexpr bool kHasTiles = true;
using NativeTile = MmaF16Tile;
using NativeInt8Tile = MmaInt8Tile;
FORGE_DEVICE void multiply_tile(MmaF16Tile, MmaF16Tile::Fragments& f) {
  const auto a = detail::registers_of<U32x4>(f.a);
  const auto b = detail::registers_of<U32x2>(f.b);
  asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
      "{%0, %1, %2, %3};"
      : "+f"(f.c[0]), "+f"(f.c[1]), "+f"(f.c[2]), "+f"(f.c[3])
      : "r"(a.at[0]), "r"(a.at[1]), "r"(a.at[2]), "r"(a.at[3]), "r"(b.at[0]), "r"(b.at[1]));
}
FORGE_DEVICE void multiply_tile(MmaInt8Tile, MmaInt8Tile::Fragments& f) {
  const auto a = detail::registers_of<U32x4>(f.a);
  const auto b = detail::registers_of<U32x2>(f.b);
  asm("mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
      "{%0, %1, %2, %3};"
      : "+r"(f.c[0]), "+r"(f.c[1]), "+r"(f.c[2]), "+r"(f.c[3])
      : "r"(a.at[0]), "r"(a.at[1]), "r"(a.at[2]), "r"(a.at[3]), "r"(b.at[0]), "r"(b.at[1]));
}

#else  // the host has them all, by their tables

inline constexpr bool kHasTiles = true;
namespace detail {
template <int Wave>
struct TilesOfWave {
  using Half = WmmaF16Gfx11Tile;
  using Int8 = WmmaInt8Gfx11Tile;
};
template <>
struct TilesOfWave<64> {
  using Half = MfmaF16Tile;
  using Int8 = MfmaInt8Gfx908Tile;
};
inline float number_of(u16 half) {
  return f32_of_f16(half);
}
inline i32 number_of(i8 byte) {
  return byte;
}
}  // namespace detail
using NativeTile = detail::TilesOfWave<kWave>::Half;
using NativeInt8Tile = detail::TilesOfWave<kWave>::Int8;

/// Where two lanes hold the same element they must agree.
template <class Tile>
void multiply_tile(Tile, typename Tile::Fragments& f, Site site = Site::here()) {
  static_assert(Tile::kLanes == kWave, "the tile is of another wave");
  using Fragments = typename Tile::Fragments;
  using Number = decltype(detail::number_of(f.a[0]));
  const auto all = static_cast<const Fragments*>(host_lanes->meet(&f, sizeof f, site));
  Number a[Tile::kM][Tile::kK], b[Tile::kN][Tile::kK];
  bool a_set[Tile::kM][Tile::kK] = {}, b_set[Tile::kN][Tile::kK] = {};
  const auto put = [&](Number& at, bool& set, Number value) {
    if (set && __builtin_memcmp(&at, &value, sizeof at) != 0)
      host_lanes->fail("lanes that hold the same element of a tile disagree", site);
    at = value;
    set = true;
  };
  for (int lane = 0; lane < kWave; ++lane) {
    for (int i = 0; i < Fragments::kA; ++i) {
      const int row = Tile::a_row(lane, i), k = Tile::a_k(lane, i);
      put(a[row][k], a_set[row][k], detail::number_of(all[lane].a[i]));
    }
    for (int i = 0; i < Fragments::kB; ++i) {
      const int row = Tile::b_row(lane, i), k = Tile::b_k(lane, i);
      put(b[row][k], b_set[row][k], detail::number_of(all[lane].b[i]));
    }
  }
  const int lane = host_lanes->thread % kWave;
  for (int i = 0; i < Fragments::kC; ++i)
    for (int k = 0; k < Tile::kK; ++k) f.c[i] += a[Tile::c_row(lane, i)][k] * b[Tile::c_column(lane, i)][k];
}

#endif

}  // namespace forge::gpu

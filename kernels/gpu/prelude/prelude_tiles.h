#pragma once
// The matrix instructions, for matrix_tile.h, which includes this. If FORGE_MATRIX is not FORGE_MATRIX_NONE, it defines
//   NativeTile, NativeBf16Tile, NativeInt8Tile   the target's tiles for f16, bf16 and int8
//   multiply_tile(Tile, fragments)               one instruction: fragments.c += fragments.a * fragments.b
//   load_matrices(units, index)                  NVIDIA and host: ldmatrix.x4, four 8x8 matrices of 16-bit elements
// All lanes of the wave call these functions together.

namespace forge::gpu {

#if FORGE_MATRIX == FORGE_MATRIX_MFMA_GFX90A
using NativeTile = MfmaF16Tile;
using NativeInt8Tile = MfmaInt8Gfx90aTile;
using NativeBf16Tile = MfmaBf16Tile;
#elif FORGE_MATRIX == FORGE_MATRIX_MFMA_GFX942
using NativeTile = MfmaF16Tile;
using NativeInt8Tile = MfmaInt8Gfx942Tile;
using NativeBf16Tile = MfmaBf16Tile;
#elif FORGE_MATRIX == FORGE_MATRIX_WMMA_GFX11
using NativeTile = WmmaF16Gfx11Tile;
using NativeInt8Tile = WmmaInt8Gfx11Tile;
using NativeBf16Tile = WmmaBf16Gfx11Tile;
#elif FORGE_MATRIX == FORGE_MATRIX_WMMA_GFX12
using NativeTile = WmmaF16Gfx12Tile;
using NativeInt8Tile = WmmaInt8Gfx12Tile;
using NativeBf16Tile = WmmaBf16Gfx12Tile;
#elif FORGE_MATRIX == FORGE_MATRIX_MMA
using NativeTile = MmaF16Tile;
using NativeInt8Tile = MmaInt8Tile;
using NativeBf16Tile = MmaBf16Tile;
#endif

namespace detail {
/// Converts a fragment to the register type that the instruction takes; store_registers converts back.
template <class Registers, class Element, int Count>
FORGE_DEVICE Registers registers_of(const Element (&values)[Count]) {
  static_assert(sizeof(Registers) == sizeof values, "the fragment must have the size of its registers");
  Registers out;
  quant::copy_bytes<sizeof out>(&out, values);
  return out;
}
template <class Registers, class Element, int Count>
FORGE_DEVICE void store_registers(Element (&values)[Count], const Registers& registers) {
  static_assert(sizeof(Registers) == sizeof values, "the fragment must have the size of its registers");
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
using ShortVector = short __attribute__((ext_vector_type(Count)));
template <int Count>
using IntVector = int __attribute__((ext_vector_type(Count)));
/// Returns `value` and keeps the instruction that computes it in its place. LLVM before 22 does not mark WMMA
/// convergent (MFMA is marked): it moved a WMMA into the branch that uses its result, where some lanes may be switched
/// off. clang treats an assembler statement, even an empty one, as convergent, so the WMMA must be complete before it.
template <class Registers>
FORGE_DEVICE Registers pinned(Registers value) {
  asm("" : "+v"(value));
  return value;
}
}  // namespace detail

#if FORGE_MATRIX == FORGE_MATRIX_MFMA_GFX90A || FORGE_MATRIX == FORGE_MATRIX_MFMA_GFX942
FORGE_DEVICE void multiply_tile(MfmaF16Tile, MfmaF16Tile::Fragments& f) {
  using Half = detail::HalfVector<4>;
  detail::store_registers(
      f.c, __builtin_amdgcn_mfma_f32_16x16x16f16(detail::registers_of<Half>(f.a), detail::registers_of<Half>(f.b),
                                                 detail::registers_of<detail::FloatVector<4>>(f.c), 0, 0, 0));
}
FORGE_DEVICE void multiply_tile(MfmaBf16Tile, MfmaBf16Tile::Fragments& f) {
  using Bf16 = detail::ShortVector<4>;
  detail::store_registers(
      f.c, __builtin_amdgcn_mfma_f32_16x16x16bf16_1k(detail::registers_of<Bf16>(f.a), detail::registers_of<Bf16>(f.b),
                                                     detail::registers_of<detail::FloatVector<4>>(f.c), 0, 0, 0));
}
#if FORGE_MATRIX == FORGE_MATRIX_MFMA_GFX90A
FORGE_DEVICE void multiply_tile(MfmaInt8Gfx90aTile, MfmaInt8Gfx90aTile::Fragments& f) {
  detail::store_registers(
      f.c, __builtin_amdgcn_mfma_i32_16x16x16i8(detail::registers_of<int>(f.a), detail::registers_of<int>(f.b),
                                                detail::registers_of<detail::IntVector<4>>(f.c), 0, 0, 0));
}
#else
FORGE_DEVICE void multiply_tile(MfmaInt8Gfx942Tile, MfmaInt8Gfx942Tile::Fragments& f) {
  detail::store_registers(
      f.c, __builtin_amdgcn_mfma_i32_16x16x32_i8(detail::registers_of<long>(f.a), detail::registers_of<long>(f.b),
                                                 detail::registers_of<detail::IntVector<4>>(f.c), 0, 0, 0));
}
#endif
#elif FORGE_MATRIX == FORGE_MATRIX_WMMA_GFX11
FORGE_DEVICE void multiply_tile(WmmaF16Gfx11Tile, WmmaF16Gfx11Tile::Fragments& f) {
  using Half = detail::HalfVector<16>;
  detail::store_registers(f.c, detail::pinned(__builtin_amdgcn_wmma_f32_16x16x16_f16_w32(
                                   detail::registers_of<Half>(f.a), detail::registers_of<Half>(f.b),
                                   detail::registers_of<detail::FloatVector<8>>(f.c))));
}
FORGE_DEVICE void multiply_tile(WmmaBf16Gfx11Tile, WmmaBf16Gfx11Tile::Fragments& f) {
  using Bf16 = detail::ShortVector<16>;
  detail::store_registers(f.c, detail::pinned(__builtin_amdgcn_wmma_f32_16x16x16_bf16_w32(
                                   detail::registers_of<Bf16>(f.a), detail::registers_of<Bf16>(f.b),
                                   detail::registers_of<detail::FloatVector<8>>(f.c))));
}
FORGE_DEVICE void multiply_tile(WmmaInt8Gfx11Tile, WmmaInt8Gfx11Tile::Fragments& f) {
  using Bytes = detail::IntVector<4>;
  detail::store_registers(f.c, detail::pinned(__builtin_amdgcn_wmma_i32_16x16x16_iu8_w32(
                                   true, detail::registers_of<Bytes>(f.a), true, detail::registers_of<Bytes>(f.b),
                                   detail::registers_of<detail::IntVector<8>>(f.c), false)));
}
#elif FORGE_MATRIX == FORGE_MATRIX_WMMA_GFX12
FORGE_DEVICE void multiply_tile(WmmaF16Gfx12Tile, WmmaF16Gfx12Tile::Fragments& f) {
  using Half = detail::HalfVector<8>;
  detail::store_registers(f.c, detail::pinned(__builtin_amdgcn_wmma_f32_16x16x16_f16_w32_gfx12(
                                   detail::registers_of<Half>(f.a), detail::registers_of<Half>(f.b),
                                   detail::registers_of<detail::FloatVector<8>>(f.c))));
}
FORGE_DEVICE void multiply_tile(WmmaBf16Gfx12Tile, WmmaBf16Gfx12Tile::Fragments& f) {
  using Bf16 = detail::ShortVector<8>;
  detail::store_registers(f.c, detail::pinned(__builtin_amdgcn_wmma_f32_16x16x16_bf16_w32_gfx12(
                                   detail::registers_of<Bf16>(f.a), detail::registers_of<Bf16>(f.b),
                                   detail::registers_of<detail::FloatVector<8>>(f.c))));
}
FORGE_DEVICE void multiply_tile(WmmaInt8Gfx12Tile, WmmaInt8Gfx12Tile::Fragments& f) {
  using Bytes = detail::IntVector<2>;
  detail::store_registers(f.c, detail::pinned(__builtin_amdgcn_wmma_i32_16x16x16_iu8_w32_gfx12(
                                   true, detail::registers_of<Bytes>(f.a), true, detail::registers_of<Bytes>(f.b),
                                   detail::registers_of<detail::IntVector<8>>(f.c), false)));
}
#endif

#elif defined(__CUDACC__) || defined(__CUDACC_RTC__)

#if FORGE_MATRIX == FORGE_MATRIX_MMA
FORGE_DEVICE void multiply_tile(MmaF16Tile, MmaF16Tile::Fragments& f) {
  asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
      "{%0, %1, %2, %3};"
      : "+f"(f.c[0]), "+f"(f.c[1]), "+f"(f.c[2]), "+f"(f.c[3])
      : "r"(f.a[0]), "r"(f.a[1]), "r"(f.a[2]), "r"(f.a[3]), "r"(f.b[0]), "r"(f.b[1]));
}
FORGE_DEVICE void multiply_tile(MmaBf16Tile, MmaBf16Tile::Fragments& f) {
  asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
      "{%0, %1, %2, %3};"
      : "+f"(f.c[0]), "+f"(f.c[1]), "+f"(f.c[2]), "+f"(f.c[3])
      : "r"(f.a[0]), "r"(f.a[1]), "r"(f.a[2]), "r"(f.a[3]), "r"(f.b[0]), "r"(f.b[1]));
}
template <int Count>
FORGE_DEVICE U32x4 load_matrices(const Shared<U32x4, Count>& from, int index) {
  U32x4 out;
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(out.at[0]), "=r"(out.at[1]), "=r"(out.at[2]), "=r"(out.at[3])
               : "r"(static_cast<u32>(__cvta_generic_to_shared(from.address(index))))
               : "memory");
  return out;
}
FORGE_DEVICE void multiply_tile(MmaInt8Tile, MmaInt8Tile::Fragments& f) {
  const auto a = detail::registers_of<U32x4>(f.a);
  const auto b = detail::registers_of<U32x2>(f.b);
  asm("mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
      "{%0, %1, %2, %3};"
      : "+r"(f.c[0]), "+r"(f.c[1]), "+r"(f.c[2]), "+r"(f.c[3])
      : "r"(a.at[0]), "r"(a.at[1]), "r"(a.at[2]), "r"(a.at[3]), "r"(b.at[0]), "r"(b.at[1]));
}

#endif

#else  // the host has all tiles and computes them by their tables

namespace detail {
/// Element i of a fragment as a number: f16 bits, int8, or 16-bit elements packed two per word.
template <class Tile>
float number_of(const u16* halves, int i) {
  return f32_of_f16(halves[i]);
}
template <class Tile>
i32 number_of(const i8* bytes, int i) {
  return bytes[i];
}
template <class Tile>
float number_of(const u32* pairs, int i) {
  const u32 bits = pairs[i / 2] >> i % 2 * 16;
  return Tile::kF16 ? f32_of_f16(static_cast<u16>(bits)) : __builtin_bit_cast(float, bits << 16);
}
/// The lane that holds an element of A or Bt, the first one if several do, and the element's number in its fragment.
struct Holder {
  signed char lane = -1, number = -1;
};
template <int Rows, int K>
struct Holders {
  Holder at[Rows][K];
};
/// The holders of all elements, by the tile's table.
template <class Tile, bool OfA>
constexpr auto holders_of() {
  Holders<OfA ? Tile::kM : Tile::kN, Tile::kK> out;
  constexpr int kCount = OfA ? Tile::Fragments::kA : Tile::Fragments::kB;
  for (int lane = 0; lane < Tile::kLanes; ++lane)
    for (int i = 0; i < kCount; ++i) {
      Holder& at =
          OfA ? out.at[Tile::a_row(lane, i)][Tile::a_k(lane, i)] : out.at[Tile::b_row(lane, i)][Tile::b_k(lane, i)];
      if (at.lane < 0) at = {static_cast<signed char>(lane), static_cast<signed char>(i)};
    }
  return out;
}
}  // namespace detail

/// ldmatrix.x4: lane 8j + i names row i of matrix j (16 bytes); lane l receives, as word j, word l % 4 of row l / 4 of
/// matrix j.
template <int Count>
U32x4 load_matrices(const Shared<U32x4, Count>& from, int index, Site site = Site::here()) {
  if (kWave != 32) host_lanes->fail("load_matrices needs waves of 32", site);
  const auto all = static_cast<const int*>(host_lanes->meet(&index, sizeof index, site));
  const int lane = host_lanes->thread % kWave;
  int indices[4];
  for (int j = 0; j < 4; ++j) indices[j] = all[8 * j + lane / 4];
  U32x4 out;
  for (int j = 0; j < 4; ++j) out.at[j] = from.get(indices[j], site).at[lane % 4];
  return out;
}

/// Computes the lane's elements of C from the fragments of the lanes that hold the factors by the tile's table. Fails
/// if this lane holds another value of an element than the first lane that has it (on gfx11 two lanes have each
/// element).
template <class Tile>
void multiply_tile(Tile, typename Tile::Fragments& f, Site site = Site::here()) {
  static_assert(Tile::kLanes == kWave, "the tile is for another wave size");
  using Fragments = typename Tile::Fragments;
  static constexpr auto kHoldersA = detail::holders_of<Tile, true>();
  static constexpr auto kHoldersB = detail::holders_of<Tile, false>();
  const auto all = static_cast<const Fragments*>(host_lanes->meet(&f, sizeof f, site));
  const auto a = [&](int row, int k) {
    const auto [holder, number] = kHoldersA.at[row][k];
    return detail::number_of<Tile>(all[holder].a, number);
  };
  const auto b = [&](int row, int k) {
    const auto [holder, number] = kHoldersB.at[row][k];
    return detail::number_of<Tile>(all[holder].b, number);
  };
  const int lane = host_lanes->thread % kWave;
  const auto check = [&](auto own, auto first) {
    static_assert(sizeof own == sizeof(u32));
    if (__builtin_bit_cast(u32, own) != __builtin_bit_cast(u32, first))
      host_lanes->fail("lanes hold different values for the same element of a tile", site);
  };
  for (int i = 0; i < Fragments::kA; ++i)
    check(detail::number_of<Tile>(all[lane].a, i), a(Tile::a_row(lane, i), Tile::a_k(lane, i)));
  for (int i = 0; i < Fragments::kB; ++i)
    check(detail::number_of<Tile>(all[lane].b, i), b(Tile::b_row(lane, i), Tile::b_k(lane, i)));
  for (int k = 0; k < Tile::kK; ++k)
    for (int i = 0; i < Fragments::kC; ++i) f.c[i] += a(Tile::c_row(lane, i), k) * b(Tile::c_column(lane, i), k);
}

#endif

}  // namespace forge::gpu

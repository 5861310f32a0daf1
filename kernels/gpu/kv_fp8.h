#pragma once
// The KV cache in fp8 (E4M3), without scales: [block][kv_heads][block_tokens][Dim] bytes. Elements are rounded to the
// nearest number of the target's encoding, at most 448 (gfx942, whose encoding is FNUZ: 240), and NaN stays NaN.
// Attention converts them by the target's instruction, exactly, to f32 or F16.

#include "kernels/gpu/kv_f16.h"

namespace forge::gpu {

#if FORGE_FP8 != FORGE_FP8_NONE
struct Fp8Unit {
  float at[16];
};
struct KvFp8 : KvFloats<Fp8Unit, 16> {
  static constexpr int kUnitBytes = 16, kColumns = 16;
  static constexpr bool kScaled = false;
  using Packed = U32x4;

  template <int Dim, int BlockTokens>
  struct Rows {
    static_assert(Dim % kColumns == 0, "rows are whole units");
    static constexpr int kRowBytes = Dim;
    FORGE_DEVICE static const u8* at(const u16* pool, u64 row, int unit) {
      return reinterpret_cast<const u8*>(pool) + row * Dim + unit * kUnitBytes;
    }
    FORGE_DEVICE static void store(u16* pool, u64 row, int dim, float value, bool real) {
      if (real) reinterpret_cast<u8*>(pool)[row * Dim + dim] = static_cast<u8>(fp8_pair(value, value));
    }
  };

  template <int Tokens, int Own>
  struct Loaded {
    Packed units[Tokens][Own];
    FORGE_DEVICE Fp8Unit open(int i, int own) const {
      Fp8Unit out;
      FORGE_UNROLL
      for (int w = 0; w < 4; ++w) {
        const F32x4 four = fp8_numbers(units[i][own].at[w]);
        FORGE_UNROLL
        for (int j = 0; j < 4; ++j) out.at[4 * w + j] = four.at[j];
      }
      return out;
    }
  };

  FORGE_DEVICE static void expand_unit(const Packed& unit, u32 /*scale*/, u32 (&pairs)[kUnit / 2]) {
    FORGE_UNROLL
    for (int w = 0; w < 4; ++w) {
      pairs[2 * w] = fp8_halves<0>(unit.at[w]);
      pairs[2 * w + 1] = fp8_halves<1>(unit.at[w]);
    }
  }
  FORGE_DEVICE static void pair_tokens(u32 first, u32 second, u32 /*scales*/, u32 (&pairs)[4]) {
    const u32 a[2] = {fp8_halves<0>(first), fp8_halves<1>(first)};
    const u32 b[2] = {fp8_halves<0>(second), fp8_halves<1>(second)};
    FORGE_UNROLL
    for (int j = 0; j < 4; ++j)
      pairs[j] = j % 2 == 0 ? low_halves(a[j / 2], b[j / 2]) : high_halves(a[j / 2], b[j / 2]);
  }

  struct TileKey {
    U32x2 bytes;
    template <class Rows>
    FORGE_DEVICE void load(const u16* pool, u64 row, int unit) {
      bytes = load8(Rows::at(pool, row, 0) + unit * 8);
    }
    FORGE_DEVICE U32x4 expand() const {
      return {fp8_halves<0>(bytes.at[0]), fp8_halves<1>(bytes.at[0]), fp8_halves<0>(bytes.at[1]),
              fp8_halves<1>(bytes.at[1])};
    }
  };
  struct TileValues {
    u32 pairs[8];  ///< two bytes of each token
    template <class Rows>
    FORGE_DEVICE void load(const u16* pool, u64 row, int dim, int from, int to) {
      const u8* first = Rows::at(pool, row, 0) + dim;
      FORGE_UNROLL
      for (int j = 0; j < 8; ++j)
        if (j >= from && j <= to) pairs[j] = gpu::load(reinterpret_cast<const u16*>(first + j * Rows::kRowBytes));
    }
    FORGE_DEVICE void expand(u32 (&out)[8]) const {
      FORGE_UNROLL
      for (int j = 0; j < 8; ++j) out[j] = fp8_halves<0>(pairs[j]);
    }
  };
};
#endif

}  // namespace forge::gpu

#pragma once
// Matmul of block types by q8a_32 activations for many rows, with AMX tiles (Tiles: tiles_amx-inl.h, or the model of it
// in tests/kernels/tile_registers_model-inl.h). It gives the same bits as the other kernels with FMA: tiles compute the
// exact integer dot of each sub-block with its own scale, and vectors add it to the sums in the same order.
//
// What limits the speed: a part of 32 columns fills half a tile. Its 16x16 dots then cost 48 or 64 vector operations
// (conversion, scale, one or two fma) on two ports, beside 16 cycles of the tile unit; with VNNI the dots would be 128
// more. Vectors can read a stored tile only through the cache, so the work is pipelined in stages of a few products:
// while vectors add stage s, tiles store stage s + 1 and multiply stage s + 2.
//
// Measured on a Xeon with AMX (tests/device/amx_check.cc), all 24 parts of a strip for one group at a time, Q4_1:
// stages of 4 320-390 GFLOP/s, of 3 300-350, of 2 370-450; VNNI 170-340. Fewer dots in flight leave more of L1 to x and
// the weights. Since then the cut (TileCut) is chosen for L1, which is not measured yet: the strip of a few groups, the
// same columns of 16 tokens, and the dots fit together, and x is loaded from L2 once for these groups.
//
// Loops, outermost first: blocks of tokens whose panels fit L2; strips of columns; sets of groups, whose strips are
// unpacked into L1; tiles of 16 tokens; the groups of the set.
//
// These tiles serve batched decode: each token must have the bits of a step with one row, which uses vectors. A long
// prompt has no such constraint and uses prompt_tiles-inl.h.
//
// Rejected: BF16 and F16 weights as BF16 tiles, with x split into two BF16 parts. Its accuracy is far better than the
// bounds of the reference models (nmse 2e-7 on small models), but for equal bits a few rows must sum as a tile does,
// and one row took 2.6 times as long.

#include "kernels/cpu/matmul/matmul_codes-inl.h"
#include "kernels/cpu/tile_shapes.h"

namespace forge::cpu::FORGE_CPU_NAMESPACE {

/// How a matmul is cut: products per stage, 32-column parts per strip, and groups that a panel is multiplied with while
/// it is in L1.
struct TileCut {
  int stage;
  std::size_t parts, groups;
};
inline constexpr TileCut kTileCut{2, 24, 1};
/// Limits of the buffers: parts of a strip, and panels of 16 tokens.
inline constexpr std::size_t kTilePartsMax = 32;
inline constexpr std::size_t kTilePanels = 8;

/// A weight type for the kernel: a packed group has unit_bytes per unit_parts * 32 columns, and unpack writes some
/// units in the form that kUnpackedBytes describes.
struct TileWeights {
  std::size_t unit_parts, unit_bytes;
  void (*unpack)(const std::uint8_t* unit, std::size_t units, std::uint8_t* out);
};

/// TileWeights::unpack for Q8_0, Q4_0 and Q4_1 (matmul_int-inl.h). `first` must be the start of a unit of the layout.
/// Types without a minimum come out signed, less their bias, and have no offsets.
template <class Format>
void unpack_int_parts(const std::uint8_t* first, std::size_t parts, std::uint8_t* out) {
  const Lanes::I nibble = Lanes::words(0x0f0f0f0f);
  const auto value = [](Lanes::I bytes) FORGE_INLINE_BODY {
    if constexpr (Format::kMinimum) return bytes;
    return Lanes::sub_bytes(bytes, Lanes::words(static_cast<std::int32_t>(0x01010101U * Format::kBias)));
  };
  const auto block = [&](const std::uint8_t* quants, const std::uint8_t* scales) FORGE_INLINE_BODY {
    auto* floats = reinterpret_cast<float*>(out + 512);
    for (int row = 0; row < 16; row += Lanes::kRows) {
#pragma GCC unroll 8
      for (int j = 0; j < (Format::kFlat ? 8 : 4); ++j) {
        const Lanes::I word = Lanes::load(quants + 64 * j + 4 * row);
        Lanes::store(out + 64 * j + 4 * row, value(Format::kFlat ? word : Lanes::and_(word, nibble)));
        if constexpr (!Format::kFlat)
          Lanes::store(out + 64 * (4 + j) + 4 * row, value(Lanes::and_(Lanes::right<4>(word), nibble)));
      }
      Lanes::store_floats(floats + row, Lanes::halves(scales + 2 * row));
      if constexpr (Format::kMinimum) Lanes::store_floats(floats + 16 + row, Lanes::halves(scales + 32 + 2 * row));
    }
    out += kUnpackedBytes<32>;
  };
  MicroArgs args{};
  args.weights = first;
  args.blocks = parts;
  for_each_block<Format>(args, [](const std::uint8_t*) FORGE_INLINE_BODY {}, block);
}

/// One number of each of 16 tokens.
using TokenFloats = float __attribute__((vector_size(64)));

/// Transposes 16 lines of 16 floats. Each of four passes interleaves line i with line i + 8; a pass rotates the bits of
/// (line, column) by one, so after four passes line and column have changed places.
FORGE_INLINE void transpose(TokenFloats* lines) {
#pragma GCC unroll 4
  for (int pass = 0; pass < 4; ++pass) {
    TokenFloats out[16];
#pragma GCC unroll 8
    for (int i = 0; i < 8; ++i) {
      out[2 * i] =
          __builtin_shufflevector(lines[i], lines[i + 8], 0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23);
      out[2 * i + 1] =
          __builtin_shufflevector(lines[i], lines[i + 8], 8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31);
    }
#pragma GCC unroll 16
    for (int i = 0; i < 16; ++i) lines[i] = out[i];
  }
}

inline constexpr std::size_t kTileTokens = 16;

/// 32 columns of 16 tokens, as tile operands: a row of quants per token, and per number one vector of 16 tokens. The
/// parts of a strip lie one behind the other.
template <int kSub>
struct alignas(64) TilePart {
  std::int8_t quants[kTileTokens][32];
  float floats[1 + 32 / kSub][kTileTokens];  ///< scale, and the sum of each sub-block
};

/// Transposes per-token numbers to per-number vectors: out[p][token] = from(token)[p] for `parts` numbers, with
/// `stride` floats between vectors. Tokens from `tokens` on are 0.
template <class From>
FORGE_INLINE void gather_tokens(From from, std::size_t tokens, std::size_t parts, float* out, std::size_t stride) {
  TokenFloats lines[16];
  const auto put = [&](std::size_t p, std::size_t count) FORGE_INLINE_BODY {
    transpose(lines);
    for (std::size_t i = 0; i < count; ++i) std::memcpy(out + (p + i) * stride, &lines[i], 64);
  };
  std::size_t p = 0;
  for (; p + 16 <= parts; p += 16) {
#pragma GCC unroll 16
    for (std::size_t t = 0; t < 16; ++t) {
      lines[t] = TokenFloats{};
      if (t < tokens) std::memcpy(&lines[t], from(t) + 4 * p, 64);
    }
    put(p, 16);
  }
  if (p == parts) return;
  const std::size_t again = parts < 16 ? 0 : parts - 16;  // the last 16, some again: copies of constant size
  for (std::size_t t = 0; t < 16; ++t) {
    lines[t] = TokenFloats{};
    if (t < tokens) std::memcpy(&lines[t], from(t) + 4 * again, parts < 16 ? 4 * parts : 64);
  }
  put(again, parts - again);
}

/// Fills parts [first, first + parts) from `tokens` rows of x; rows up to 16 are zeros.
template <int kSub>
void fill_tile_parts(const PanelSource& source, std::size_t first_token, std::size_t tokens, std::size_t first,
                     std::size_t parts, TilePart<kSub>* out) {
  constexpr std::size_t kStride = sizeof(TilePart<kSub>) / 4;
  for (std::size_t t = 0; t < kTileTokens; ++t) {
    if (t >= tokens) {
      for (std::size_t p = 0; p < parts; ++p) std::memset(out[p].quants[t], 0, 32);
      continue;
    }
    const std::byte* quants = source.row(first_token + t) + 32 * first;
    for (std::size_t p = 0; p < parts; ++p) std::memcpy(out[p].quants[t], quants + 32 * p, 32);
  }
  const auto scales = [&](std::size_t t)
                          FORGE_INLINE_BODY { return source.row(first_token + t) + source.k + 4 * first; };
  gather_tokens(scales, tokens, parts, out->floats[0], kStride);
  if constexpr (kSub == 32) {
    const auto sums = [&](std::size_t t) FORGE_INLINE_BODY { return scales(t) + source.k / 32 * 4; };
    gather_tokens(sums, tokens, parts, out->floats[1], kStride);
  } else {
    for (std::size_t t = 0; t < tokens; ++t) {
      std::uint32_t sums[2 * kTilePartsMax];
      panel_sums<kSub>({true, 0}, source.row(first_token + t), source.k, first, parts, sums);
      for (std::size_t p = 0; p < parts; ++p)
        for (std::size_t s = 0; s < 2; ++s) std::memcpy(&out[p].floats[1 + s][t], &sums[2 * p + s], 4);
    }
  }
}

/// The tile registers of a stage: 0-3 dots, 4-5 x (16 rows of kSub bytes), 6-7 weights (kSub/4 rows of 16 words).
template <int kSub>
struct DotTiles {
  static constexpr TileShapes kShapes = [] {
    TileShapes shapes;
    for (std::size_t tile = 0; tile < 4; ++tile) shapes.set(tile, kTileTokens, 64);
    for (std::size_t tile = 4; tile < 6; ++tile) shapes.set(tile, kTileTokens, kSub);
    for (std::size_t tile = 6; tile < 8; ++tile) shapes.set(tile, kSub / 4, 64);
    return shapes;
  }();
};

/// Units per strip: strips of about equal length, at most `most` units. The number is even, because in Q8_0 and Q4_0 a
/// unit of the layout has two blocks.
FORGE_INLINE std::size_t strip_units(std::size_t units, std::size_t most) {
  if (units <= most) return units;
  const std::size_t even = divide_up(divide_up(units, divide_up(units, most)), 2) * 2;
  return even < most ? even : most;
}

/// sum += x * weights; x is always signed, weights are signed or unsigned.
template <bool kSigned, int sum, int a, int b>
FORGE_INLINE void dot_tiles() {
  if constexpr (kSigned)
    Tiles::dot_signed_signed<sum, a, b>();
  else
    Tiles::dot_signed_unsigned<sum, a, b>();
}

/// One group by up to 16 tokens over a strip.
struct TileStrip {
  const std::uint8_t* unpacked;
  std::size_t parts;
  float* out;  ///< sums of the group and the first token
  std::size_t out_stride, tokens;
  bool first;  ///< out holds nothing yet
};

/// The inner kernel, `kStage` products per stage. Rows of `out` from `tokens` on are not touched. Pipeline with two
/// buffers of dots (stages s and s+1 alternate):
///   multiply(s)  dots of stage s into tile registers
///   put(s)       stores them to a buffer
///   add(s)       vectors scale them and add them to the sums
template <int kSub, bool kSigned, int kStage>
void tile_strip(const TileStrip& args, const TilePart<kSub>* panel) {
  constexpr std::size_t kParts = 32 / kSub;
  constexpr int T = kTileTokens, kVectors = 16 / Lanes::kRows;
  alignas(64) std::uint8_t dots[2][kStage][T][64];
  Lanes::F sums[T][kVectors];
#pragma GCC unroll 16
  for (int t = 0; t < T; ++t)
#pragma GCC unroll 4
    for (int v = 0; v < kVectors; ++v)
      sums[t][v] =
          args.first || static_cast<std::size_t>(t) >= args.tokens
              ? Lanes::all(0.0f)
              : Lanes::load_floats(args.out + static_cast<std::size_t>(t) * args.out_stride + v * Lanes::kRows);
  const std::size_t subs = args.parts * kParts;  // sub-blocks of kSub columns
  const auto multiply = [&](std::size_t stage) FORGE_INLINE_BODY {
    unrolled<kStage>([&]<int i>() FORGE_INLINE_BODY {
      const std::size_t sub = kStage * stage + i;
      if (sub >= subs) return;
      Tiles::load<4 + i % 2>(panel[sub / kParts].quants[0] + sub % kParts * kSub, 32);
      Tiles::load<6 + i % 2>(args.unpacked + sub / kParts * kUnpackedBytes<kSub> + sub % kParts * 16 * kSub, 64);
      Tiles::zero<i>();
      dot_tiles<kSigned, i, 4 + i % 2, 6 + i % 2>();
    });
  };
  const auto put = [&](std::size_t stage) FORGE_INLINE_BODY {
    unrolled<kStage>([&]<int i>() FORGE_INLINE_BODY {
      if (kStage * stage + i < subs) Tiles::store<i>(dots[stage % 2][i], 64);
    });
  };
  const auto add = [&](std::size_t sub, const std::uint8_t(*dot)[64]) FORGE_INLINE_BODY {
    const std::size_t part = sub / kParts, s = sub % kParts;
    const auto* floats = reinterpret_cast<const float*>(args.unpacked + part * kUnpackedBytes<kSub> + 512 + 128 * s);
    const float *x_scale = panel[part].floats[0], *x_sum = panel[part].floats[1 + s];
#pragma GCC unroll 4
    for (int v = 0; v < kVectors; ++v) {
      const Lanes::F scale = Lanes::load_floats(floats + v * Lanes::kRows);
      const Lanes::F offset = kSigned ? scale : Lanes::load_floats(floats + 16 + v * Lanes::kRows);
#pragma GCC unroll 16
      for (int t = 0; t < T; ++t) {
        const Lanes::F step = Lanes::times(scale, Lanes::all(x_scale[t]));
        sums[t][v] = Lanes::fused(step, Lanes::to_float(Lanes::load(dot[t] + 4 * v * Lanes::kRows)), sums[t][v]);
        if constexpr (!kSigned) sums[t][v] = Lanes::fused(offset, Lanes::all(x_sum[t]), sums[t][v]);
      }
    }
  };
  multiply(0);
  put(0);
  multiply(1);
  for (std::size_t stage = 0; kStage * stage < subs; ++stage) {
    put(stage + 1);
    multiply(stage + 2);
    const std::size_t left = subs - kStage * stage, count = left < kStage ? left : kStage;
    for (std::size_t i = 0; i < count; ++i) add(kStage * stage + i, dots[stage % 2][i]);
  }
#pragma GCC unroll 16
  for (int t = 0; t < T; ++t)
    if (static_cast<std::size_t>(t) < args.tokens)
#pragma GCC unroll 4
      for (int v = 0; v < kVectors; ++v)
        Lanes::store_floats(args.out + static_cast<std::size_t>(t) * args.out_stride + v * Lanes::kRows, sums[t][v]);
}

/// The driver for any number of tokens (the loops in this file's head).
template <int kSub, bool kSigned, TileCut kCut>
void matmul_tiles(const TileWeights& type, const std::byte* weights, std::size_t groups, const PanelSource& source,
                  std::size_t tokens, float* out, std::size_t out_stride) {
  static_assert(kCut.parts <= kTilePartsMax);
  constexpr std::size_t kTokens = kTilePanels * kTileTokens, kUnpackedStrip = kCut.parts * kUnpackedBytes<kSub>;
  TilePart<kSub> panels[kTilePanels][kCut.parts];
  alignas(64) std::uint8_t unpacked[kCut.groups * kUnpackedStrip];
  const std::size_t units = source.k / 32 / type.unit_parts;
  const std::size_t step = strip_units(units, kCut.parts / type.unit_parts);
  Tiles::configure(DotTiles<kSub>::kShapes);
  for (std::size_t token0 = 0; token0 < tokens; token0 += kTokens) {
    const std::size_t count = tokens - token0 < kTokens ? tokens - token0 : kTokens;
    const auto tile_tokens = [&](std::size_t at)
                                 FORGE_INLINE_BODY { return count - at < kTileTokens ? count - at : kTileTokens; };
    std::size_t u0 = 0;
    do {
      const std::size_t u1 = units - u0 < step ? units : u0 + step;
      const std::size_t first = u0 * type.unit_parts, parts = (u1 - u0) * type.unit_parts;
      for (std::size_t at = 0; at < count; at += kTileTokens)
        fill_tile_parts<kSub>(source, token0 + at, tile_tokens(at), first, parts, panels[at / kTileTokens]);
      for (std::size_t group0 = 0; group0 < groups; group0 += kCut.groups) {
        const std::size_t together = groups - group0 < kCut.groups ? groups - group0 : kCut.groups;
        for (std::size_t g = 0; g < together; ++g)
          type.unpack(reinterpret_cast<const std::uint8_t*>(weights) + ((group0 + g) * units + u0) * type.unit_bytes,
                      u1 - u0, unpacked + g * kUnpackedStrip);
        const NextWeights next = next_weights(weights, type.unit_bytes, units, groups, u0, u1, group0, together);
        for (std::size_t at = 0; at < count; at += kTileTokens) {
          next.fetch(at / kTileTokens, divide_up(count, kTileTokens));
          for (std::size_t g = 0; g < together; ++g)
            tile_strip<kSub, kSigned, kCut.stage>(
                {unpacked + g * kUnpackedStrip, parts, out + (token0 + at) * out_stride + 16 * (group0 + g), out_stride,
                 tile_tokens(at), u0 == 0},
                panels[at / kTileTokens]);
        }
      }
      u0 = u1;
    } while (u0 < units);
  }
  Tiles::release();
}

}  // namespace forge::cpu::FORGE_CPU_NAMESPACE

#pragma once
// Kernels of the GPU self-test: all operations that exchange values between lanes, conversions, dots and arithmetic.
// They are compiled like the kernels of plans, with the same prelude and options. The host computes the expected
// results with scalar code (codegen/gpu/self_test/). The other kernels are in self_test_memory.h, self_test_tiles.h and
// self_test_repack.h; self_test_io.h has the layouts of inputs and results.

#include "kernels/gpu/sampling.h"
#include "kernels/gpu/self_test/self_test_io.h"
#include "kernels/gpu/tile.h"

namespace forge::gpu {

/// Exchanges between the lanes of a wave and the waves of a block. Result layout: LaneResult.
template <class C>
struct SelfTestLanes {
  static constexpr int kWaves = self_test::kLaneWaves, kThreads = kWaves * kWave, kBlocks = self_test::kLaneBlocks,
                       kRounds = self_test::kLaneRounds;
  using Args = SelfTestArgs;
  struct Lds {
    Shared<float, kWaves> factors, both, last, exchanged, alone;
    Shared<float, kWaves * kRounds> rounds;
    Shared<float, kThreads / kQuantBlock> parts;
    BestLds<kWaves> best;
  };

  FORGE_DEVICE static void put(const Args& args, int result, u32 value) {
    args.out[result * (kBlocks * kThreads) + block_id() * kThreads + thread_id()] = value;
  }
  FORGE_DEVICE static void put(const Args& args, int result, i32 value) { put(args, result, static_cast<u32>(value)); }
  FORGE_DEVICE static void put(const Args& args, int result, float value) {
    put(args, result, __builtin_bit_cast(u32, value));
  }

  template <int Log, int Mask>
  FORGE_DEVICE static void exchange(const Args& args, u32 word, float number) {
    if constexpr (Mask < kWave) {
      put(args, self_test::kShuffleXor + Log, shuffle_xor<Mask>(word));
      put(args, self_test::kSumOfLanes + Log, sum_lanes<2 * Mask>(static_cast<i32>(word)));
      put(args, self_test::kSumOfFloats + Log, sum_lanes<2 * Mask>(number));
      put(args, self_test::kMaxOfFloats + Log, max_lanes<2 * Mask>(number));
    }
  }

  FORGE_DEVICE static void run(const Args& args, Lds& lds) {
    using namespace self_test;
    const u32* in = args.in + (block_id() * kThreads + thread_id()) * kLaneInputs;
    const u32 word = load(in);
    float x[kRounds];
    FORGE_UNROLL
    for (int i = 0; i < kRounds; ++i) x[i] = __builtin_bit_cast(float, load(in + 1 + i));

    put(args, kShuffle, shuffle(word, (7 * lane_id() + 3) % kWave));
    put(args, kShuffleByData, shuffle(x[0], static_cast<int>(word % kWave)));
    exchange<0, 1>(args, word, x[0]);
    exchange<1, 2>(args, word, x[0]);
    exchange<2, 4>(args, word, x[0]);
    exchange<3, 8>(args, word, x[0]);
    exchange<4, 16>(args, word, x[0]);
    exchange<5, 32>(args, word, x[0]);
    const u32* first = args.in + (block_id() * kThreads + thread_id() / kWave * kWave) * kLaneInputs;
    put(args, kUniform, uniform(static_cast<int>(load(first))));
    put(args, kWaveId, wave_id());
    put(args, kLaneId, lane_id());
    some_lanes(args, lds, x);
    put(args, kScan, scanned(static_cast<i32>(word)));
  }

  /// Inclusive prefix sum over the lanes of the wave.
  FORGE_DEVICE static i32 scanned(i32 value) {
    FORGE_UNROLL
    for (int step = 1; step < kWave; step *= 2) {
      const i32 other = shuffle(value, lane_id() >= step ? lane_id() - step : lane_id());
      value += lane_id() >= step ? other : 0;
    }
    return value;
  }

  /// Reductions by all lanes whose result only some lanes use, in the forms that kernels have. Compilers have moved the
  /// last shuffle into the branch that uses the result, where the other lanes are switched off (prelude_amd.h).
  FORGE_DEVICE static void some_lanes(const Args& args, Lds& lds, const float (&x)[kRounds]) {
    using namespace self_test;
    const int wave = wave_id(), lane = lane_id();
    float squares = 0;
    FORGE_UNROLL
    for (int i = 0; i < kRounds; ++i) squares += x[i] * x[i];
    squares = sum_lanes<kWave>(squares);
    if (lane == 0) lds.factors.set(wave, 1.0f / sqrt_of(squares * 0.125f + 1e-5f));

    const float most = max_lanes<kWave>(x[1]), sum = sum_lanes<kWave>(x[2]);
    if (lane == 0) lds.both.set(wave, most + sum * 0.5f);

    FORGE_LOOP
    for (int i = 0; i < kRounds; ++i) {
      const float one = sum_lanes<kWave>(
          __builtin_bit_cast(float, load(args.in + (block_id() * kThreads + thread_id()) * kLaneInputs + 1 + i)));
      if (lane == 0) lds.rounds.set(i * kWaves + wave, one * 2.0f);
    }

    const float last = sum_lanes<kWave>(x[3]);
    if (lane == kWave - 1) lds.last.set(wave, last * last);
    const float other = x[4] + shuffle_xor<16>(x[4]);
    if (lane == 0) lds.exchanged.set(wave, other * 3.0f);
    const float part = sum_lanes<kQuantBlock>(x[5] * x[5]);
    if (thread_id() % kQuantBlock == 0) lds.parts.set(thread_id() / kQuantBlock, part);
    if (wave == 1) {
      const float alone = sum_lanes<kWave>(x[0] * x[1]);
      if (lane == 0) lds.alone.set(0, alone + 1.0f);
    }
    const BestLogit best = best_of_block<kWaves>(BestLogit{x[0], thread_id()}, lds.best);  // has a barrier

    put(args, kFactor, lds.factors.get(wave));
    put(args, kFactorsTwice, lds.both.get(wave));
    float rounds = 0;
    FORGE_UNROLL
    for (int i = 0; i < kRounds; ++i) rounds += lds.rounds.get(i * kWaves + wave);
    put(args, kFactorsLoop, rounds);
    put(args, kBestOfBlock, best.index);
    put(args, kLastLane, lds.last.get(wave));
    put(args, kPartsOfTile, lds.parts.get(thread_id() / kQuantBlock));
    put(args, kOneExchange, lds.exchanged.get(wave));
    put(args, kWaveAlone, lds.alone.get(0));
  }
};

/// Conversions, dots and arithmetic, one element per thread. Result layout: NumberResult.
template <class C>
struct SelfTestNumbers {
  static constexpr int kThreads = self_test::kNumberThreads, kBlocks = self_test::kNumbers / kThreads;
  using Args = SelfTestArgs;

  FORGE_DEVICE static void put(const Args& args, int result, u32 value) {
    args.out[result * self_test::kNumbers + block_id() * kThreads + thread_id()] = value;
  }
  FORGE_DEVICE static void put(const Args& args, int result, float value) {
    put(args, result, __builtin_bit_cast(u32, value));
  }
  FORGE_DEVICE static u32 word(const Args& args, int input) {
    return load(args.in + input * self_test::kNumbers + block_id() * kThreads + thread_id());
  }
  FORGE_DEVICE static float number(const Args& args, int input) { return __builtin_bit_cast(float, word(args, input)); }

  FORGE_DEVICE static void run(const Args& args) {
    using namespace self_test;
    const int index = block_id() * kThreads + thread_id();
    FORGE_UNROLL
    for (int i = 0; i < kHalfParts; ++i)
      put(args, kHalfToFloat + i, f32_of_f16(static_cast<u16>(i * kNumbers + index)));
    words(args, word(args, kWordA), word(args, kWordB), word(args, kWordC));
    floats(args, number(args, kAnyX), number(args, kAnyY), number(args, kMildX), number(args, kMildY),
           number(args, kMildZ));
  }

  FORGE_DEVICE static void words(const Args& args, u32 a, u32 b, u32 c) {
    using namespace self_test;
    put(args, kDot4, static_cast<u32>(dot4(a, b, static_cast<i32>(c))));
#if !defined(__CUDACC_RTC__)  // NVIDIA's prelude has no permute; lookup4 covers its __byte_perm
    put(args, kPermute, permute(a, b, c & 0x07070707u));
#endif
    put(args, kLookup4, lookup4(c & 0x0f0f0f0fu, U32x4{{a, b, ~a, ~b}}));
    put(args, kByte + 0, byte_number<0>(a) - kByteBias);
    put(args, kByte + 1, byte_number<1>(a) - kByteBias);
    put(args, kByte + 2, byte_number<2>(a) - kByteBias);
    put(args, kByte + 3, byte_number<3>(a) - kByteBias);
    put(args, kOpaque, static_cast<u32>(opaque(static_cast<int>(a))));
#if FORGE_FP8 != FORGE_FP8_NONE
    FORGE_UNROLL
    for (int i = 0; i < 4; ++i) put(args, kFp8Numbers + i, fp8_numbers(a).at[i]);
    put(args, kFp8Halves, fp8_halves<0>(a));
    put(args, kFp8Halves + 1, fp8_halves<1>(a));
#endif
  }

  FORGE_DEVICE static void floats(const Args& args, float any_x, float any_y, float x, float y, float z) {
    using namespace self_test;
    put(args, kFloatToHalf, static_cast<u32>(f16_of_f32(any_x)));
    put(args, kHalfPair, f16_pair(any_x, y));
    put(args, kBf16Pair, bf16_pair(x, y));
    put(args, kExp2, exp2_of(x));
    put(args, kLog2, log2_of(abs_of(x)));
    put(args, kSqrt, sqrt_of(abs_of(any_x)));
    put(args, kDivide, any_x / y);
    put(args, kQuotient, quotient_of(x, y));
    put(args, kInverseSqrt, inverse_sqrt_of(abs_of(x) + 0x1p-20f));
    put(args, kFma, fma_of(any_x, y, z));
    put(args, kMulAdd, x * y + z);
    put(args, kSubnormal, x * 0x1p-120f);
    put(args, kRound, round_of(x));
    put(args, kAbs, abs_of(any_x));
    put(args, kMin, min_of(any_x, any_y));
    put(args, kMax, max_of(any_x, any_y));
#if FORGE_FP8 != FORGE_FP8_NONE
    const F32x4 back = fp8_numbers(fp8_pair(any_x, y));
    put(args, kFp8Pair, back.at[0]);
    put(args, kFp8Pair + 1, back.at[1]);
#endif
  }
};

}  // namespace forge::gpu

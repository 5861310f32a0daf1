#pragma once
// Functions of whole rows that few models have (Gemma 3n): match_rms and gaussian_topk (ir/op.h). One block per row. C
// has kColumns, kRowFloats and kOutFloats (row strides of x and out, in floats), kWaves, kTokensTotal and kCount.

#include "kernels/gpu/tile.h"

namespace forge::gpu {

/// Sums over all lanes of a block, in the order of the waves; all lanes get them. All lanes of the block call this.
template <int Waves, int Count>
struct BlockSums {
  Shared<float, Count * Waves> parts;
  FORGE_DEVICE void of(float (&values)[Count]) {
    FORGE_UNROLL
    for (int i = 0; i < Count; ++i) {
      const float sum = sum_lanes<kWave>(values[i]);
      if (lane_id() == 0) parts.set(i * Waves + wave_id(), sum);
    }
    barrier();
    FORGE_UNROLL
    for (int i = 0; i < Count; ++i) {
      values[i] = 0;
      for (int w = 0; w < Waves; ++w) values[i] += parts.get(i * Waves + w);
    }
  }
};

/// out = x * |like| / |x|, the lengths being 2-norms of the row; zeros stay zeros. C has kLikeFloats too, the row
/// stride of `like`.
template <class C>
struct MatchRms {
  static constexpr int kThreads = C::kWaves * kWave, kBlocks = C::kTokensTotal;
  struct Lds {
    BlockSums<C::kWaves, 2> sums;
  };
  struct Args {
    const float *x, *like;
    const i32* counts;
    float* out;
  };
  FORGE_DEVICE static void run(const Args& args, Lds& lds) {
    const int t = block_id();
    release_consumers();
    wait_for_producer();
    if (C::kTokensTotal > 1 && idle_tile(args.counts, C::kCount, t)) return;
    const float* x = args.x + static_cast<u64>(t) * C::kRowFloats;
    const float* like = args.like + static_cast<u64>(t) * C::kLikeFloats;
    float squares[2] = {};
    for (int i = thread_id(); i < C::kColumns; i += kThreads) {
      const float own = load(x + i), other = load(like + i);
      squares[0] = fma_of(own, own, squares[0]);
      squares[1] = fma_of(other, other, squares[1]);
    }
    lds.sums.of(squares);
    const float factor = squares[0] == 0 ? 0.0f : sqrt_of(squares[1] / squares[0]);
    float* out = args.out + static_cast<u64>(t) * C::kOutFloats;
    for (int i = thread_id(); i < C::kColumns; i += kThreads) out[i] = load(x + i) * factor;
  }
};

/// out = max(0, x - mean - kCutoff * deviation), mean and deviation (with kColumns - 1) being the row's. NaN stays NaN.
template <class C>
struct GaussianTopk {
  static constexpr int kThreads = C::kWaves * kWave, kBlocks = C::kTokensTotal;
  struct Lds {
    BlockSums<C::kWaves, 1> sums, squares;
  };
  struct Args {
    const float* x;
    const i32* counts;
    float* out;
  };
  FORGE_DEVICE static void run(const Args& args, Lds& lds) {
    const int t = block_id();
    release_consumers();
    wait_for_producer();
    if (C::kTokensTotal > 1 && idle_tile(args.counts, C::kCount, t)) return;
    const float* x = args.x + static_cast<u64>(t) * C::kRowFloats;
    float sum[1] = {}, squares[1] = {};
    for (int i = thread_id(); i < C::kColumns; i += kThreads) sum[0] += load(x + i);
    lds.sums.of(sum);
    const float mean = sum[0] / static_cast<float>(C::kColumns);
    for (int i = thread_id(); i < C::kColumns; i += kThreads) {
      const float value = load(x + i) - mean;
      squares[0] = fma_of(value, value, squares[0]);
    }
    lds.squares.of(squares);
    const float limit = mean + C::kCutoff * sqrt_of(squares[0] / static_cast<float>(C::kColumns - 1));
    float* out = args.out + static_cast<u64>(t) * C::kOutFloats;
    for (int i = thread_id(); i < C::kColumns; i += kThreads) {
      const float above = load(x + i) - limit;
      out[i] = above < 0 ? 0.0f : above;
    }
  }
};

}  // namespace forge::gpu

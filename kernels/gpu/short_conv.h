#pragma once
// Short causal convolutions of each channel over a sequence's last inputs, with the state and the activation in the
// same kernel.

#include "kernels/gpu/state_runs.h"

namespace forge::gpu {

/// y[t] = activation(bias + sum over j of kernel[j] * x[t - kTaps + 1 + j]) for each channel. The state of a channel is
/// its last kTaps - 1 inputs, the oldest first, f32 [slot][kTaps - 1][kColumns] with kSlotFloats floats from slot to
/// slot.
///
/// A block takes kThreads channels (a lane each) and kTokens tokens of the step, and keeps the last inputs of its
/// sequence in registers. The first kTaps - 1 tokens of a run, which read the old state, and the new state, which may
/// lie in the same slot, all belong to the block that has the run's first token: it goes on behind its own tokens, and
/// the next block skips them.
///
///   blocks of 4    0 1 2 3 | 4 5 6 7         a run begins at token 3, kTaps is 4
///   tokens of      0 0 0 0   0 0 1 1         block 0 computes tokens 3 to 5, block 1 the tokens from 6 on
///
/// C has kColumns, kTaps, kTokens, kThreads, kTokensTotal, kSlotFloats, kRowFloats and kOutFloats (row strides of x and
/// out), kBiased, and the type Activation with `static float of(float)`.
template <class C>
struct ShortConv {
  static constexpr int kThreads = C::kThreads, kHeld = C::kTaps - 1;
  static constexpr int kColumnBlocks = ceil_div(C::kColumns, kThreads);
  static constexpr int kBlocks = kColumnBlocks * ceil_div(C::kTokensTotal, C::kTokens);
  static_assert(kHeld >= 1, "a convolution has two taps or more");
  struct Args {
    const float* x;
    const float* kernel;  ///< [kColumns][kTaps]
    const float* bias;    ///< [kColumns]; read only if kBiased
    float* state;
    StateInputs inputs;
    float* out;
  };

  /// x of token t; the address is always in range.
  FORGE_DEVICE static float x_of(const Args& args, int t, int column) {
    return load(args.x + static_cast<u64>(t) * C::kRowFloats + column);
  }

  /// The slot that holds what came before the run; the first one where there is none.
  FORGE_DEVICE static const float* old_state(const Args& args, int slot) {
    return args.state + static_cast<u64>(slot < 0 ? 0 : slot) * C::kSlotFloats;
  }

  /// Sets held[k] to the input kHeld - k tokens before token t of the run: from x, from the old state, or 0.
  FORGE_DEVICE static void load_held(const Args& args, const Run& run, int slot, int t, int column,
                                     float (&held)[kHeld]) {
    FORGE_UNROLL
    for (int k = 0; k < kHeld; ++k) {
      const int at = t - kHeld + k;  // in the step; before run.begin it is in the old state
      const int row = at - run.begin + kHeld;
      held[k] = at >= run.begin ? x_of(args, at, column)
                : slot < 0      ? 0.0f
                                : load(old_state(args, slot) + row * C::kColumns + column);
    }
  }

  FORGE_DEVICE static void run(const Args& args) {
    const int column = block_id() % kColumnBlocks * kThreads + thread_id();
    const int first = block_id() / kColumnBlocks * C::kTokens;
    const bool real = column < C::kColumns;
    const int c = real ? column : C::kColumns - 1;
    release_consumers();
    const int tokens = uniform(load(args.inputs.counts + kTokenCount));
    if (first >= tokens) return;
    const int last = first + C::kTokens < tokens ? first + C::kTokens : tokens;
    float taps[C::kTaps], held[kHeld] = {};
    FORGE_UNROLL
    for (int k = 0; k < C::kTaps; ++k) taps[k] = load(args.kernel + c * C::kTaps + k);
    const float bias = C::kBiased ? load(args.bias + c) : 0.0f;
    wait_for_producer();
    const int end = last + kHeld < tokens ? last + kHeld : tokens;
    int of = -1, slot = 0;
    Run run{};
    bool loaded = false;
    FORGE_LOOP
    for (int t = first; t < end; ++t) {
      const int s = uniform(load(args.inputs.sequence + t));
      if (s != of) {
        if (t >= last) break;
        of = s;
        run = run_of<C::kTokensTotal>(args.inputs, s);
        slot = uniform(load(args.inputs.read + s));
        loaded = false;
      }
      const bool reads_state = t < run.begin + kHeld;
      if (reads_state ? run.begin < first : t >= last) continue;
      if (!loaded) load_held(args, run, slot, t, c, held);
      loaded = true;
      if (run.begin == t) {
        float left[kHeld];
        load_held(args, run, slot, run.end, c, left);
        float* state = args.state + static_cast<u64>(uniform(load(args.inputs.write + s))) * C::kSlotFloats;
        FORGE_UNROLL
        for (int k = 0; k < kHeld; ++k) store(state + k * C::kColumns + c, left[k], real);
      }
      const float x = x_of(args, t, c);
      float y = bias;
      FORGE_UNROLL
      for (int k = 0; k < kHeld; ++k) y = fma_of(held[k], taps[k], y);
      y = fma_of(x, taps[kHeld], y);
      store(args.out + static_cast<u64>(t) * C::kOutFloats + c, C::Activation::of(y), real);
      FORGE_UNROLL
      for (int k = 0; k + 1 < kHeld; ++k) held[k] = held[k + 1];
      held[kHeld - 1] = x;
    }
  }
};

}  // namespace forge::gpu

#pragma once
// What the kernels with recurrent state (recurrent.h, short_conv.h) share: where a sequence's tokens are in the step,
// and where its state is.
//
// The tokens of a sequence are neighbours in the step: a run. Sequence s continues the state in slot state_read[s]
// (zeros if that is -1) and leaves the state behind its last token in slot state_write[s]. Slots come from the step's
// inputs, so a captured graph serves any of them.

#include "kernels/gpu/step_io.h"
#include "kernels/gpu/tile.h"

namespace forge::gpu {

/// The step's inputs that say which tokens and slots a sequence has.
struct StateInputs {
  const i32* counts;    ///< i32[4], indexed by Count
  const i32* sequence;  ///< [tokens], ascending
  const i32* read;      ///< [sequences]: slot, or -1
  const i32* write;     ///< [sequences]: slot
};

/// Tokens begin .. end - 1 of the step.
struct Run {
  int begin, end;
};

/// The run of sequences `first` .. `last`, which are neighbours too; empty if they have no tokens in this step. counts,
/// sequence: as in StateInputs. TokensTotal: tokens that memory has. Every wave counts the tokens of the sequences
/// before the first and up to the last one. All lanes of the wave call this with the same sequences.
template <int TokensTotal>
FORGE_DEVICE Run run_of(const i32* counts, const i32* sequence, int first, int last) {
  const int tokens = uniform(load(counts + kTokenCount));
  int before = 0, up_to = 0;
  FORGE_UNROLL
  for (int i = 0; i < ceil_div(TokensTotal, kWave); ++i) {
    const int t = i * kWave + lane_id();
    const bool real = t < tokens;
    const int of = real ? load(sequence + t) : 0;
    before += real && of < first ? 1 : 0;
    up_to += real && of <= last ? 1 : 0;
  }
  return {uniform(sum_lanes<kWave>(before)), uniform(sum_lanes<kWave>(up_to))};
}
/// The run of sequence s.
template <int TokensTotal>
FORGE_DEVICE Run run_of(const StateInputs& inputs, int s) {
  return run_of<TokensTotal>(inputs.counts, inputs.sequence, s, s);
}

/// True if sequence s is not in this step.
FORGE_DEVICE bool idle_sequence(const StateInputs& inputs, int s) {
  return s >= uniform(load(inputs.counts + kSequenceCount));
}

/// e^x.
FORGE_DEVICE float exp_of(float x) {
  return exp2_of(1.44269504088896f * x);
}

}  // namespace forge::gpu

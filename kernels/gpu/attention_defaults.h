#pragma once
// What a configuration of an attention kernel may leave out.

namespace forge::gpu {

/// Defaults. A configuration derives from this and names Pool (KvPool), kHeads, kTableBlocks and kScale.
struct AttentionDefaults {
  static constexpr int kTokensTotal = 1;
  static constexpr int kWorkers = 8;            ///< most blocks that share the context of a row
  static constexpr int kTokensPerWorker = 256;  ///< least tokens of a worker before another one is used
  static constexpr int kWaves = 8;              ///< waves of a block
  static constexpr int kTeamTokens = 8;         ///< most tokens of a team in a chunk
  static constexpr int kHeadsPerBlock = 0;      ///< query heads of a block; 0: all of a KV head
  static constexpr int kQueryFloats = 0;        ///< floats from row to row of q; 0: kHeads * head_dim
  static constexpr int kValueDim = 0;           ///< columns of a value, at most head_dim; 0: head_dim
  static constexpr int kWindow = 0;             ///< sliding window: tokens that a row sees, itself included; 0: all
  static constexpr int kChunkedTo = 0;          ///< c > 0: a row at p sees tokens from c * floor(p / c) on; 0: all
  static constexpr float kSoftcap = 0;          ///< soft-cap: scores become cap * tanh(score / cap); 0: off
  static constexpr float kAlibi = 0;            ///< ALiBi: the largest exponent of a head's slope; 0: off
  static constexpr bool kSinks = false;         ///< attention sinks: one more score per head, no value (2309.17453)
  static constexpr int kSelected = 0;           ///< sparse attention: entries of a list of blocks of positions; 0: off
  static constexpr int kSelectedBlock = 1;      ///< positions of such a block
  static constexpr int kSelectedLists = 1;      ///< lists of a row: one, or one for each KV head
  static constexpr bool kStored = true;         ///< out is written in f32
  static constexpr int kFormat = 0;             ///< format of the row that matmuls read (activations.h); 0: none
};

}  // namespace forge::gpu

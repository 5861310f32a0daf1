#pragma once
// Attention on latents for prefill, by matrix instructions: attention_tiles.h with rows that are keys and, by their
// first columns, values. Rows of a step that no tile has are computed as in latent_head_tiles.h.

#include "kernels/gpu/attention_tiles.h"
#include "kernels/gpu/latent_head_tiles.h"

namespace forge::gpu {

/// Defaults. A configuration derives from this and names what LatentAttentionDefaults needs, and the members of
/// AttentionTilesDefaults that differ. kWaves is kTileHeads * kTileTokens / 16 * kParts.
struct LatentTilesDefaults : LatentHeadTilesDefaults {
  static constexpr int kTileHeads = 1, kTileTokens = 16, kChunk = 32, kParts = 1, kRowTurns = 1;
  static constexpr int kWindow = 0, kChunkedTo = 0;
  static constexpr float kSoftcap = 0, kAlibi = 0;
  static constexpr bool kSinks = false;
};

template <class C>
using LatentTiles = AttentionTiles<C, LatentHeadTiles<C>>;

}  // namespace forge::gpu

#pragma once
// Decode attention whose blocks choose by the length of their row's context: without matrix instructions
// (attention.h), whose blocks have few heads, little to merge and so an early end, or with them
// (attention_head_tiles.h), whose blocks have more heads, read keys and values once for all of them, and take longer to
// merge. A step has one row, so both kinds have the same scratch and counters.

#include "kernels/gpu/attention.h"
#include "kernels/gpu/attention_head_tiles.h"

namespace forge::gpu {

/// Defaults. A configuration derives from this and names what AttentionDefaults needs; its kHeadsPerBlock and kWorkers
/// are those of long rows.
struct AttentionByLengthDefaults : AttentionHeadTilesDefaults {
  static constexpr int kShortTokens = 0;  ///< a row that sees at most so many tokens is short
  static constexpr int kShortHeadsPerBlock = 1, kShortWorkers = 1;
};

template <class C>
struct AttentionByLength {
  struct ShortRows : C {
    static constexpr int kHeadsPerBlock = C::kShortHeadsPerBlock, kWorkers = C::kShortWorkers;
  };
  using Short = Attention<ShortRows>;
  using Long = AttentionHeadTiles<C>;
  using Args = AttentionArgs;
  union Lds {
    typename Short::Lds short_row;
    typename Long::Lds long_row;
  };
  static constexpr int kThreads = Long::kThreads;
  static_assert(Short::kThreads == kThreads && C::kTokensTotal == 1, "both have the same waves, and there is one row");
  static constexpr int kBlocks = Short::kBlocks > Long::kBlocks ? Short::kBlocks : Long::kBlocks;

  FORGE_DEVICE static void run(const Args& args, Lds& lds) {
    release_consumers();
    const int position = uniform(load(args.positions));
    if (position - Long::oldest_of(position) < C::kShortTokens) {
      if (block_id() < Short::kBlocks) Short::run_block(args, lds.short_row, block_id());
    } else if (block_id() < Long::kBlocks) {
      Long::run_block(args, lds.long_row, block_id(), typename Long::Row::StoredQueries{args});
    }
  }
};

}  // namespace forge::gpu

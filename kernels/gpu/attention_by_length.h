#pragma once
// Decode attention whose blocks choose by the length of their row's context: without matrix instructions
// (attention.h), whose blocks have few heads, little to merge and so an early end, or with them
// (attention_head_tiles.h), whose blocks have more heads, read keys and values once for all of them, and take longer to
// merge. The choice depends on the row's position only, so a row's result is the same in any step.

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
    typename Short::Lds few;
    typename Long::Lds many;
  };
  static constexpr int kThreads = Long::kThreads;
  static_assert(Short::kThreads == kThreads && !Long::kSparse, "both have the same waves");
  /// Blocks of a row, of which each kind may need fewer.
  static constexpr int kShortBlocks = Short::kJobs * ShortRows::kWorkers, kLongBlocks = Long::kJobs * C::kWorkers;
  static constexpr int kRowBlocks = kShortBlocks > kLongBlocks ? kShortBlocks : kLongBlocks;
  static constexpr int kBlocks = C::kTokensTotal * kRowBlocks;

  FORGE_DEVICE static void run(const Args& args, Lds& lds) {
    release_consumers();
    const int t = block_id() / kRowBlocks, at = block_id() % kRowBlocks;
    if (C::kTokensTotal > 1 && idle_tile(args.counts, kTokenCount, t)) return;
    const int position = uniform(load(args.positions + t));
    if (position - Long::oldest_of(position) < C::kShortTokens) {
      if (at < kShortBlocks) Short::run_block(args, lds.few, t * kShortBlocks + at);
      return;
    }
    if (at >= kLongBlocks) return;
    // Rows of both kinds may be in a step: each kind has its own scratch and counters.
    Args own = args;
    own.scratch += ceil_div(C::kTokensTotal * kShortBlocks * Short::kGroup * (Short::kValueDim + 2), 4) * 4;
    own.counters += C::kTokensTotal * Short::kJobs;
    Long::run_block(own, lds.many, t * kLongBlocks + at, typename Long::Row::StoredQueries{own});
  }
};

}  // namespace forge::gpu

#pragma once
// The positions that a row of sparse attention sees: those of the blocks in its list (select_keys.h writes it). The
// attention kernels go through them as through a context without gaps, whose tokens are numbered from 0:
//
//   list 0 2 3, blocks of 4, row at position 13     token       0 1 2 3   4 5  6  7    8  9
//                                                   position    0 1 2 3   8 9 10 11   12 13

#include "kernels/gpu/prelude/prelude.h"

namespace forge::gpu {

/// A list of up to Count blocks of Block positions, ascending.
template <int Count, int Block>
struct SelectedKeys {
  const i32* list;

  /// Tokens that a row at `position` (-1: padding) sees. Only the last block can reach past the row's own position.
  FORGE_DEVICE int tokens(int position) const {
    if (position < 0) return 0;
    const int blocks = position / Block + 1, chosen = blocks < Count ? blocks : Count;
    const bool has_own = load(list + chosen - 1) == position / Block;
    return chosen * Block - (has_own ? Block - 1 - position % Block : 0);
  }
  FORGE_DEVICE int position_of(int token) const { return load(list + token / Block) * Block + token % Block; }
};

}  // namespace forge::gpu

#pragma once
// Load-time steps: rows of a weight as they stand in the model file, into the layout `planes` (kernels/quant/planes.h).
// A block takes a part of a row in words of 16 bits, so that every type's native rows are aligned; reads and writes of
// a wave are whole lines.

#include "kernels/gpu/prelude.h"

namespace forge::gpu {

/// C names kRows, kK of the weight, kRowWords (16 bits) of a native row, kBlockWords and kScaleWords of one block
/// (kScaleWords 0: the type has no scales, rows are moved as they are), kThreads, kBlocksPerRow.
template <class C>
struct RepackPlanes {
  static constexpr int kThreads = C::kThreads;
  /// Rows first .. first+count-1 of a source: its row r becomes row dest_first + r/dest_unit*dest_stride + r%dest_unit.
  struct Args {
    u16* weight;
    const u16* staged;  ///< `count` native rows
    long long first, count, dest_first, dest_unit, dest_stride;
  };
  static constexpr int kQuantWords = C::kBlockWords - C::kScaleWords;
  static constexpr int kBlocksOfRow = C::kRowWords / C::kBlockWords;
  static_assert(C::kRowWords % C::kBlockWords == 0, "a row has whole blocks");

  FORGE_DEVICE static void run(const Args& args) {
    const int index = block_id() / C::kBlocksPerRow, part = block_id() % C::kBlocksPerRow;
    if (index >= args.count) return;
    const long long source = args.first + index;
    const long long row = args.dest_first + source / args.dest_unit * args.dest_stride + source % args.dest_unit;
    const u16* from = args.staged + static_cast<u64>(index) * C::kRowWords;
    u16* quants = args.weight + static_cast<u64>(row) * (kBlocksOfRow * kQuantWords);
    u16* scales = args.weight + static_cast<u64>(C::kRows) * (kBlocksOfRow * kQuantWords) +
                  static_cast<u64>(row) * (kBlocksOfRow * C::kScaleWords);
    for (int w = part * kThreads + thread_id(); w < C::kRowWords; w += C::kBlocksPerRow * kThreads) {
      const int block = w / C::kBlockWords, word = w % C::kBlockWords;
      const u16 value = load(from + w);
      if (word < C::kScaleWords)
        scales[block * C::kScaleWords + word] = value;
      else
        quants[block * kQuantWords + word - C::kScaleWords] = value;
    }
  }
};

}  // namespace forge::gpu

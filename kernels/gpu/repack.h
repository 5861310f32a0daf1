#pragma once
// Load-time steps: rows of a weight as they stand in the model file, into the layout `planes` (kernels/quant/planes.h).
// RepackPlanes: a block takes a part of a row in words of 16 bits, so that every type's native rows are aligned; reads
// and writes of a wave are whole lines. RepackCodes: a lane takes a block of the file.

#include "kernels/gpu/codes.h"

namespace forge::gpu {

/// Rows first .. first+count-1 of a source: its row r becomes row dest_first + r/dest_unit*dest_stride + r%dest_unit.
struct RepackArgs {
  u16* weight;
  const u16* staged;  ///< `count` native rows
  long long first, count, dest_first, dest_unit, dest_stride;

  /// Of the weight, for the index-th of these rows.
  FORGE_DEVICE u64 row(int index) const {
    const long long source = first + index;
    return static_cast<u64>(dest_first + source / dest_unit * dest_stride + source % dest_unit);
  }
};

/// C names kRows, kK of the weight, kRowWords (16 bits) of a native row, kBlockWords and kScaleWords of one block
/// (kScaleWords 0: the type has no scales, rows are moved as they are), kThreads, kBlocksPerRow.
template <class C>
struct RepackPlanes {
  static constexpr int kThreads = C::kThreads;
  using Args = RepackArgs;
  static constexpr int kQuantWords = C::kBlockWords - C::kScaleWords;
  static constexpr int kBlocksOfRow = C::kRowWords / C::kBlockWords;
  static_assert(C::kRowWords % C::kBlockWords == 0, "a row has whole blocks");

  FORGE_DEVICE static void run(const Args& args) { run(args, block_id()); }
  FORGE_DEVICE static void run(const Args& args, int at) {
    const int index = at / C::kBlocksPerRow, part = at % C::kBlocksPerRow;
    if (index >= args.count) return;
    const u64 row = args.row(index);
    const u16* from = args.staged + static_cast<u64>(index) * C::kRowWords;
    u16* quants = args.weight + row * (kBlocksOfRow * kQuantWords);
    u16* scales =
        args.weight + static_cast<u64>(C::kRows) * (kBlocksOfRow * kQuantWords) + row * (kBlocksOfRow * C::kScaleWords);
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

template <bool kEven>
struct WordOf {
  using Type = u16;
};
template <>
struct WordOf<false> {
  using Type = u8;
};

/// Planes of codes (kernels/quant/planes_codes.h): a lane takes a block. C names Block, kRows, kK, kThreads,
/// kBlocksPerRow.
template <class C>
struct RepackCodes {
  static constexpr int kThreads = C::kThreads;
  using Args = RepackArgs;
  using Block = typename C::Block;
  using Word = typename WordOf<sizeof(Block) % 2 == 0>::Type;  // rows are aligned to 16 bits
  static constexpr int kWords = sizeof(Block) / sizeof(Word), kBlocksOfRow = C::kK / Block::kElems;

  FORGE_DEVICE static void run(const Args& args) { run(args, block_id()); }
  FORGE_DEVICE static void run(const Args& args, int at) {
    const int index = at / C::kBlocksPerRow, part = at % C::kBlocksPerRow;
    if (index >= args.count) return;
    const Word* from = reinterpret_cast<const Word*>(args.staged) + static_cast<u64>(index) * (kBlocksOfRow * kWords);
    FORGE_LOOP
    for (int b = part * kThreads + thread_id(); b < kBlocksOfRow; b += C::kBlocksPerRow * kThreads) {
      Word words[kWords];
      for (int w = 0; w < kWords; ++w) words[w] = load(from + b * kWords + w);
      Block block;
      quant::copy_bytes<sizeof(Block)>(&block, words);
      quant::planes_pack_codes(block, C::kRows, C::kK, args.row(index), static_cast<u64>(b),
                               reinterpret_cast<u8*>(args.weight));
    }
  }
};

}  // namespace forge::gpu

#pragma once
// Kernels that repack weights when a model is loaded: native rows, as the GGUF file has them, into the layout `planes`
// (kernels/quant/planes.h).
// RepackPlanes (F32, F16, BF16, Q8_0, Q4_0, Q4_1) moves 16-bit words, because all native rows are aligned to 2 bytes;
// the lanes of a wave read and write consecutive words. RepackCodes (types in planes of codes or grids) takes one block
// of the file per lane.

#include "kernels/gpu/codes.h"
#include "kernels/gpu/grids.h"

namespace forge::gpu {

/// Kernel arguments: rows first .. first+count-1 of a source tensor. Row r of the source becomes row
/// dest_first + r / dest_unit * dest_stride + r % dest_unit of the weight, so that several sources can be merged into
/// one weight, side by side or interleaved (gate and up).
struct RepackArgs {
  u16* weight;        ///< start of the whole weight in planes
  const u16* staged;  ///< `count` native rows
  long long first, count, dest_first, dest_unit, dest_stride;

  /// The weight's row for staged row `index`.
  FORGE_DEVICE u64 row(int index) const {
    const long long source = first + index;
    return static_cast<u64>(dest_first + source / dest_unit * dest_stride + source % dest_unit);
  }
};

/// C has kRows and kK of the weight, kRowWords (16-bit words of a native row), kBlockWords and kScaleWords (of a block;
/// if kScaleWords is 0, the type has no scales and rows are copied), kThreads and kBlocksPerRow (blocks of the grid
/// that share a row).
///
///   native row   | scale quants | scale quants | ...
///   planes       | quants of row 0, row 1, ... | scales of row 0, row 1, ... |
template <class C>
struct RepackPlanes {
  static constexpr int kThreads = C::kThreads;
  using Args = RepackArgs;
  static constexpr int kQuantWords = C::kBlockWords - C::kScaleWords;
  static constexpr int kBlocksOfRow = C::kRowWords / C::kBlockWords;
  static_assert(C::kRowWords % C::kBlockWords == 0, "a row must be whole blocks");

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

/// The word in which a block of the file is read: 16 bits, or 8 if its size is odd.
template <bool kEven>
struct WordOf {
  using Type = u16;
};
template <>
struct WordOf<false> {
  using Type = u8;
};

/// For types in planes of codes (kernels/quant/planes_codes.h): a lane packs one block of the file with the function
/// that the CPU uses too. C has Block, kRows, kK, kThreads and kBlocksPerRow.
template <class C>
struct RepackCodes {
  static constexpr int kThreads = C::kThreads;
  using Args = RepackArgs;
  using Block = typename C::Block;
  using Word = typename WordOf<sizeof(Block) % 2 == 0>::Type;
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
      quant::planes_pack_block(block, C::kRows, C::kK, args.row(index), static_cast<u64>(b),
                               reinterpret_cast<u8*>(args.weight));
    }
  }
};

}  // namespace forge::gpu

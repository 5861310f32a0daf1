#pragma once
// The paged pool of a layer's keys or values, and the formats in which it keeps rows. A slot is a token's place in the
// pool: block * block_tokens + its place in the block. A row is what a head has in a slot: Dim elements.
//
// A format (KvF16, KvQ8_0, ...) has:
//
//   kUnit               elements of a unit, which a lane loads at once
//   kUnitBytes, Packed  its bytes, and how a lane holds them
//   kColumns            Dim is a multiple of this; so are the columns of a block that stores rows
//   kScaled             rows have scales. A team's tokens follow each other then, so that one load has all of theirs
//   Rows                where the rows of a pool are, and how they are stored
// for attention.h:
//   Loaded              a lane's units of some rows. open() makes one ready to be multiplied
//   Query, Sums         a unit of a query; sums of weighted values. query_of, add_product, add_weighted, scale and
//                       finished work on them
// for attention_tiles.h and attention_head_tiles.h, as F16 numbers:
//   TileKey, TileValues eight elements of a key; two elements of eight tokens
//   expand_unit         a unit in pairs of neighbouring elements
//   pair_tokens         a word of two tokens in pairs of the same element
//
// KvF16            kv_f16.h
// KvQ8_0, KvQ4_0   kv_blocks.h
// KvFp8            kv_fp8.h

#include "kernels/gpu/kv_blocks.h"
#include "kernels/gpu/kv_fp8.h"

namespace forge::gpu {

template <int KvHeads, int HeadDim, int BlockTokens, class FormatOf = KvF16>
struct KvPool {
  using Format = FormatOf;
  static constexpr int kKvHeads = KvHeads, kHeadDim = HeadDim, kBlockTokens = BlockTokens;
  /// Rows of Dim elements: HeadDim, or as many as a value has.
  template <int Dim>
  using Rows = typename Format::template Rows<Dim, BlockTokens>;

  /// The number of a row, which is that of a head in a slot.
  FORGE_DEVICE static u64 row(int slot, int head) {
    const u64 block = static_cast<u64>(slot / BlockTokens);
    return (block * KvHeads + head) * BlockTokens + slot % BlockTokens;
  }
  /// Index of an element in f16 elements; KvF16 only.
  FORGE_DEVICE static u64 index(int slot, int head, int dim) { return row(slot, head) * HeadDim + dim; }
  /// Loads what the slot of token t is made of: its position and its block, by the block table of its sequence,
  /// [sequences][table_blocks]. Both are the bits of floats, because epilogue operands are floats; nothing here waits
  /// for the block. Padding has position -1 and any sequence.
  FORGE_DEVICE static void load_slot(const i32* positions, const i32* sequences, const i32* tables, int table_blocks,
                                     int t, float& position, float& block) {
    const int at = load(element(positions, static_cast<u32>(t)));
    const u32 row = static_cast<u32>(load(element(sequences, static_cast<u32>(t)))) * static_cast<u32>(table_blocks);
    position = __builtin_bit_cast(float, at);
    block = __builtin_bit_cast(float, load(element(tables, row + static_cast<u32>(at < 0 ? 0 : at) / BlockTokens)));
  }
  /// The slot; -1 for padding.
  FORGE_DEVICE static int slot_of(float position, float block) {
    const int at = __builtin_bit_cast(int, position);
    return at < 0 ? -1 : __builtin_bit_cast(int, block) * BlockTokens + at % BlockTokens;
  }
  /// Stores one value of a token's keys or values; `column` counts over [kv_heads][head_dim]. Format::kColumns
  /// neighbouring lanes hold as many neighbouring columns, from a multiple of it on; all lanes of the wave call this.
  FORGE_DEVICE static void store(u16* pool, int slot, int column, float value, bool real) {
    const bool stored = real && slot >= 0;
    Rows<HeadDim>::store(pool, row(stored ? slot : 0, column / HeadDim), column % HeadDim, value, stored);
  }
};

}  // namespace forge::gpu

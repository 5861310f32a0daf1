#pragma once
// The block types of GGUF files, one row per type. Everything that exists once per type (packing, matmuls,
// dequantising) iterates over this list, so a new type needs one header, one row here and one row in dtype.h.
//
// A block B is a struct with exactly the file's bytes and these constants:
//   kElems     elements of a block, along a row of the weight
//   kSub       columns that share one scale (ggml: a sub-block)
//   kZero      the raw value that stands for 0.0
//   kMinimum   true if the block stores an offset per sub-block; kZero is then 0
//   kPacking   how CPU kernels store the type (packing.h)
//   kLevels    16 raw values that 4-bit codes index; only for types whose codes are not numbers
// and these free functions:
//   raw_values(block, u8*)      unpacks the kElems elements to unsigned bytes
//   code_values(block, u8*)     the same, but codes; for types with kLevels
//   f16_number(block, i)       f16 number i of the block: d, or d and dmin
//   scale_number(block, i)      small integer i that scales and minima are made of
// An element is
//   value = scale * (raw - kZero) + offset
// Q8_0, Q4_0 and Q4_1 have no kPacking: their kernels work on the native bytes, with functions shared with the GPU.

#include <cstddef>
#include <cstring>
#include <type_traits>

#include "kernels/quant/dtype.h"
#include "kernels/quant/iq1_m.h"
#include "kernels/quant/iq1_s.h"
#include "kernels/quant/iq2_s.h"
#include "kernels/quant/iq2_xs.h"
#include "kernels/quant/iq2_xxs.h"
#include "kernels/quant/iq3_s.h"
#include "kernels/quant/iq3_xxs.h"
#include "kernels/quant/iq4_nl.h"
#include "kernels/quant/iq4_xs.h"
#include "kernels/quant/mxfp4.h"
#include "kernels/quant/nvfp4.h"
#include "kernels/quant/q1_0.h"
#include "kernels/quant/q2_0.h"
#include "kernels/quant/q2_k.h"
#include "kernels/quant/q3_k.h"
#include "kernels/quant/q4_0.h"
#include "kernels/quant/q4_1.h"
#include "kernels/quant/q4_k.h"
#include "kernels/quant/q5_0.h"
#include "kernels/quant/q5_1.h"
#include "kernels/quant/q5_k.h"
#include "kernels/quant/q6_k.h"
#include "kernels/quant/q8_0.h"
#include "kernels/quant/tq1_0.h"
#include "kernels/quant/tq2_0.h"

namespace forge::quant {

/// True for blocks that layout x16 stores as codes (x16_codes.h). Q8_0, Q4_0 and Q4_1 keep their native bytes (x16.h).
template <class Block>
concept HasPacking = requires { Block::kPacking.low; };
/// True for blocks whose codes index a table of 16 levels.
template <class Block>
concept HasLevels = requires { Block::kLevels[0]; };

/// One row of the list: a type's number and its struct.
template <DType kNumber, class B>
struct BlockRow {
  static constexpr DType kType = kNumber;
  using Block = B;
};
template <class... Rows>
struct BlockRows {};

using AllBlocks = BlockRows<
    BlockRow<DType::kQ8_0, BlockQ8_0>, BlockRow<DType::kQ4_0, BlockQ4_0>, BlockRow<DType::kQ4_1, BlockQ4_1>,
    BlockRow<DType::kQ5_0, BlockQ5_0>, BlockRow<DType::kQ5_1, BlockQ5_1>, BlockRow<DType::kQ2_K, BlockQ2_K>,
    BlockRow<DType::kQ3_K, BlockQ3_K>, BlockRow<DType::kQ4_K, BlockQ4_K>, BlockRow<DType::kQ5_K, BlockQ5_K>,
    BlockRow<DType::kQ6_K, BlockQ6_K>, BlockRow<DType::kIQ4_NL, BlockIQ4_NL>, BlockRow<DType::kIQ4_XS, BlockIQ4_XS>,
    BlockRow<DType::kMXFP4, BlockMXFP4>, BlockRow<DType::kIQ2_XXS, BlockIQ2_XXS>, BlockRow<DType::kIQ2_XS, BlockIQ2_XS>,
    BlockRow<DType::kIQ2_S, BlockIQ2_S>, BlockRow<DType::kIQ3_XXS, BlockIQ3_XXS>, BlockRow<DType::kIQ3_S, BlockIQ3_S>,
    BlockRow<DType::kIQ1_S, BlockIQ1_S>, BlockRow<DType::kIQ1_M, BlockIQ1_M>, BlockRow<DType::kTQ1_0, BlockTQ1_0>,
    BlockRow<DType::kTQ2_0, BlockTQ2_0>, BlockRow<DType::kQ1_0, BlockQ1_0>, BlockRow<DType::kQ2_0, BlockQ2_0>,
    BlockRow<DType::kNVFP4, BlockNVFP4>>;

/// Implementation of with_block: calls f for the first row with this type. The fold stops there.
template <class F, class... Rows>
constexpr bool with_row_of(DType type, F&& f, BlockRows<Rows...>) {
  return ((type == Rows::kType ? (static_cast<void>(f(std::type_identity<typename Rows::Block>{})), true) : false) ||
          ...);
}
/// Calls f(std::type_identity<Block>) with the block struct of `type`. Returns false, without a call, if `type` is not
/// a block type.
template <class F>
constexpr bool with_block(DType type, F&& f) {
  return with_row_of(type, f, AllBlocks{});
}

/// True if the table in dtype.h and the structs agree on bytes and elements per block.
template <class... Rows>
constexpr bool sizes_agree(BlockRows<Rows...>) {
  return ((dtype_info(Rows::kType).block_bytes == sizeof(typename Rows::Block) &&
           dtype_info(Rows::kType).block_elems == Rows::Block::kElems) &&
          ...);
}
static_assert(sizes_agree(AllBlocks{}));

/// raw_values for types with levels: unpacks the codes and replaces each with its level.
template <class Block>
  requires requires { Block::kLevels[0]; }
FORGE_QUANT_FN void raw_values(const Block& block, u8* raw) {
  code_values(block, raw);
  for (u32 i = 0; i < Block::kElems; ++i) raw[i] = Block::kLevels[raw[i]];
}

/// The scale of sub-block `sub`, which is columns [sub * kSub, (sub + 1) * kSub) of the block.
template <class Block>
float sub_scale(const Block& block, u32 sub) {
  constexpr Packing kPacking = Block::kPacking;
  if constexpr (kPacking.scale == ScaleKind::kExponent) {
    return half_of_e8m0(scale_number(block, sub));
  } else if constexpr (kPacking.scale == ScaleKind::kE5M3) {
    return scale_of_e5m3(scale_number(block, sub));
  } else {
    const float d = f32_of_f16(f16_number(block, 0));
    if constexpr (kPacking.numbers == 0) {
      return d;
    } else {
      const u32 number = scale_number(block, sub * kPacking.numbers_per_sub(Block::kSub));
      return d * static_cast<float>(scale_factor(kPacking.scale, number)) * kPacking.unit;
    }
  }
}
/// The offset of sub-block `sub` when raw values are used as they are: value = sub_scale * raw + sub_offset. It is the
/// stored minimum, or -kZero * scale for types without one.
template <class Block>
float sub_offset(const Block& block, u32 sub) {
  constexpr Packing kPacking = Block::kPacking;
  if constexpr (!Block::kMinimum) {
    return -static_cast<float>(Block::kZero) * sub_scale(block, sub);
  } else {
    const float m = f32_of_f16(f16_number(block, 1));
    if constexpr (kPacking.numbers == 0)
      return m;
    else
      return -(m * static_cast<float>(scale_number(block, sub * kPacking.numbers_per_sub(Block::kSub) + 1)));
  }
}

/// Dequantises one block to kElems floats. Rounds as the gguf package does: the zero is subtracted as an integer, and
/// the minimum is added after the product.
template <class Block>
void dequantize_block(const Block& block, float* out) {
  u8 raw[Block::kElems];
  raw_values(block, raw);
  for (u32 sub = 0; sub < Block::kElems / Block::kSub; ++sub) {
    const float scale = sub_scale(block, sub);
    float offset = 0;
    if constexpr (Block::kMinimum) offset = sub_offset(block, sub);
    for (u32 i = sub * Block::kSub; i < (sub + 1) * Block::kSub; ++i) {
      const float value = scale * static_cast<float>(static_cast<int>(raw[i]) - static_cast<int>(Block::kZero));
      out[i] = Block::kMinimum ? value + offset : value;
    }
  }
}

}  // namespace forge::quant

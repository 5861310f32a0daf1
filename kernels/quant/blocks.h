#pragma once
// The block types of GGUF files, one row a type: everything that is done for each of them goes by this list. A block B
// is a struct of a file's bytes with
//   kElems     elements of a block                kSub  columns that share a scale
//   kZero      the raw value that stands for 0    kMinimum  an offset is stored instead (kZero is 0 then)
//   kPacking   how kernels want it (packing.h)    kLevels   raw values of 4-bit codes, where they are no plain numbers
// and functions beside it: raw_values(block, u8*) unpacks its elements to unsigned bytes (code_values to codes, where
// there are levels); half_number(block, i) and
// whole_number(block, i) are the numbers that kPacking counts.
// value = scale * (raw - kZero) + offset. Q8_0, Q4_0 and Q4_1 have their own functions for this, shared with GPUs.

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
#include "kernels/quant/q1_0.h"
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

template <class Block>
concept HasPacking = requires { Block::kPacking.low; };
template <class Block>
concept HasLevels = requires { Block::kLevels[0]; };

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
    BlockRow<DType::kTQ2_0, BlockTQ2_0>, BlockRow<DType::kQ1_0, BlockQ1_0>>;

template <class F, class... Rows>
constexpr bool with_row_of(DType type, F&& f, BlockRows<Rows...>) {
  return ((type == Rows::kType ? (static_cast<void>(f(std::type_identity<typename Rows::Block>{})), true) : false) ||
          ...);
}
/// Calls f(std::type_identity<Block>) with a file type's block; false for a type that is none of the list.
template <class F>
constexpr bool with_block(DType type, F&& f) {
  return with_row_of(type, f, AllBlocks{});
}

/// The table of element types and the structs agree.
template <class... Rows>
constexpr bool sizes_agree(BlockRows<Rows...>) {
  return ((dtype_info(Rows::kType).block_bytes == sizeof(typename Rows::Block) &&
           dtype_info(Rows::kType).block_elems == Rows::Block::kElems) &&
          ...);
}
static_assert(sizes_agree(AllBlocks{}));

/// Elements of a block whose codes stand for levels.
template <class Block>
  requires requires { Block::kLevels[0]; }
FORGE_QUANT_FN void raw_values(const Block& block, u8* raw) {
  code_values(block, raw);
  for (u32 i = 0; i < Block::kElems; ++i) raw[i] = Block::kLevels[raw[i]];
}

/// Of columns sub*kSub and on.
template <class Block>
float sub_scale(const Block& block, u32 sub) {
  constexpr Packing kPacking = Block::kPacking;
  if constexpr (kPacking.scale == ScaleKind::kExponent) {
    return half_of_e8m0(whole_number(block, sub));
  } else {
    const float d = f32_of_f16(half_number(block, 0));
    if constexpr (kPacking.numbers == 0) {
      return d;
    } else {
      const u32 number = whole_number(block, sub * kPacking.numbers_a_part(Block::kSub));
      return d * static_cast<float>(scale_factor(kPacking.scale, number)) * kPacking.unit;
    }
  }
}
/// What is added to scale * raw: the minimum, or the zero.
template <class Block>
float sub_offset(const Block& block, u32 sub) {
  constexpr Packing kPacking = Block::kPacking;
  if constexpr (!Block::kMinimum) {
    return -static_cast<float>(Block::kZero) * sub_scale(block, sub);
  } else {
    const float m = f32_of_f16(half_number(block, 1));
    if constexpr (kPacking.numbers == 0)
      return m;
    else
      return -(m * static_cast<float>(whole_number(block, sub * kPacking.numbers_a_part(Block::kSub) + 1)));
  }
}

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

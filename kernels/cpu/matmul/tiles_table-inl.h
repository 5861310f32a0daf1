#pragma once
// The tile matmuls in the form of the kernel table (MatmulFn), for each block type. A few rows, and the remainder of
// many rows, use the matmul of FORGE_CPU_PLAIN, the namespace of the class without tiles, which gives the same bits.

#include "kernels/cpu/matmul/prompt_tiles-inl.h"

namespace forge::cpu::FORGE_CPU_PLAIN {
extern const Kernels kTable;
}

namespace forge::cpu::FORGE_CPU_NAMESPACE {

/// Fewer rows than this (in all, or in the last tile) use the kernel without tiles, which unpacks nothing: a tile that
/// is mostly padding is slower.
inline constexpr std::size_t kTileRowsMin = 16, kTileRestMin = 6;

/// TileWeights of Q8_0, Q4_0 and Q4_1.
template <class Format>
struct IntTileWeights {
  static constexpr int kSub = 32;
  static constexpr bool kSigned = !Format::kMinimum;
  static constexpr TileWeights kWeights{1, Format::kBlockBytes, unpack_int_parts<Format>};
};
/// TileWeights of the types that are packed as codes.
template <class Block>
struct CodesTileWeights {
  static constexpr int kSub = Block::kSub;
  static constexpr bool kSigned = !Block::kMinimum;
  static constexpr TileWeights kWeights{quant::X16Codes<Block>::kParts, quant::X16Codes<Block>::kBytes,
                                        unpack_units<Block, kSigned>};
};

/// The matmul of the class without tiles.
template <DType type>
FORGE_INLINE MatmulFn plain_matmul() {
  const Kernels& plain = FORGE_CPU_PLAIN::kTable;
  if constexpr (type == DType::kQ8_0) return plain.matmul_q8_0;
  if constexpr (type == DType::kQ4_0) return plain.matmul_q4_0;
  if constexpr (type == DType::kQ4_1) return plain.matmul_q4_1;
  return plain.matmul_of_codes(type);
}

/// MatmulFn of a type: whole tiles of 16 rows by tiles, the remainder by the kernel without tiles.
template <DType type, class Weights, TileCut kCut>
void matmul_by_tiles(const std::byte* weights, std::size_t k, std::size_t groups, const std::byte* x,
                     std::size_t x_row_bytes, const std::int32_t* row_map, std::size_t tokens, float* out,
                     std::size_t out_stride) {
  if (tokens == 0 || groups == 0) return;
  const std::size_t rest = tokens % kTileTokens;
  const std::size_t tiled = tokens < kTileRowsMin ? 0 : rest < kTileRestMin ? tokens - rest : tokens;
  if (tiled > 0)
    matmul_tiles<Weights::kSub, Weights::kSigned, kCut>(
        Weights::kWeights, weights, groups, PanelSource{x, x_row_bytes, k, row_map}, tiled, out, out_stride);
  if (tiled < tokens)
    plain_matmul<type>()(weights, k, groups, row_map ? x : x + tiled * x_row_bytes, x_row_bytes,
                         row_map ? row_map + tiled : nullptr, tokens - tiled, out + tiled * out_stride, out_stride);
}

/// MatmulFn of a type for tokens of long prompts: always by BF16 tiles.
template <class Weights>
void prompt_matmul(const std::byte* weights, std::size_t k, std::size_t groups, const std::byte* x,
                   std::size_t x_row_bytes, const std::int32_t* row_map, std::size_t tokens, float* out,
                   std::size_t out_stride) {
  if (tokens == 0 || groups == 0) return;
  prompt_tiles<Weights::kSub, Weights::kSigned>(Weights::kWeights, weights, groups,
                                                PanelSource{x, x_row_bytes, k, row_map}, tokens, out, out_stride);
}

/// Calls f.template operator()<type, Weights>() for the row of `type` and returns its result; nullptr if `type` is not
/// a block type of the list.
template <class F, class... Rows>
FORGE_INLINE MatmulFn with_tile_weights(DType type, quant::BlockRows<Rows...>, F f) {
  MatmulFn found = nullptr;
  const auto look = [&]<class Row>(std::type_identity<Row>) FORGE_INLINE_BODY {
    if (type != Row::kType) return;
    using Block = typename Row::Block;
    if constexpr (quant::HasPacking<Block>)
      found = f.template operator()<Row::kType, CodesTileWeights<Block>>();
    else if constexpr (Row::kType == DType::kQ8_0)
      found = f.template operator()<Row::kType, IntTileWeights<FormatQ8_0>>();
    else if constexpr (Row::kType == DType::kQ4_0)
      found = f.template operator()<Row::kType, IntTileWeights<FormatQ4_0>>();
    else if constexpr (Row::kType == DType::kQ4_1)
      found = f.template operator()<Row::kType, IntTileWeights<FormatQ4_1>>();
  };
  (look(std::type_identity<Rows>{}), ...);
  return found;
}

/// The tile matmul of a type; nullptr if it is not in `rows` or has a scale for fewer than kSubMin columns.
template <TileCut kCut, int kSubMin, class Rows>
MatmulFn matmul_by_tiles_of(DType type, Rows rows) {
  return with_tile_weights(type, rows, []<DType kType, class Weights>() FORGE_INLINE_BODY -> MatmulFn {
    if constexpr (Weights::kSub < kSubMin)
      return nullptr;
    else
      return matmul_by_tiles<kType, Weights, kCut>;
  });
}

/// The prefill matmul of a type; nullptr if it is not in `rows`.
template <class Rows>
MatmulFn prompt_matmul_of(DType type, Rows rows) {
  return with_tile_weights(type, rows,
                           []<DType, class Weights>() FORGE_INLINE_BODY -> MatmulFn { return prompt_matmul<Weights>; });
}

}  // namespace forge::cpu::FORGE_CPU_NAMESPACE

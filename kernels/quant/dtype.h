#pragma once
// Element types of tensors: one enumerator and one table row per type. Sizes, names and bytes per row are all derived
// from the table. The numbers below 128 are those of ggml_type in GGUF files (ggml/docs/gguf.md). Used by every room.

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

namespace forge {

enum class DType : std::uint8_t {
  kF32 = 0,
  kF16 = 1,
  kQ4_0 = 2,
  kQ4_1 = 3,
  kQ5_0 = 6,
  kQ5_1 = 7,
  kQ8_0 = 8,
  kQ8_1 = 9,
  kQ2_K = 10,
  kQ3_K = 11,
  kQ4_K = 12,
  kQ5_K = 13,
  kQ6_K = 14,
  kQ8_K = 15,
  kIQ2_XXS = 16,
  kIQ2_XS = 17,
  kIQ3_XXS = 18,
  kIQ1_S = 19,
  kIQ4_NL = 20,
  kIQ3_S = 21,
  kIQ2_S = 22,
  kIQ4_XS = 23,
  kI8 = 24,
  kI16 = 25,
  kI32 = 26,
  kI64 = 27,
  kF64 = 28,
  kIQ1_M = 29,
  kBF16 = 30,
  kTQ1_0 = 34,
  kTQ2_0 = 35,
  kMXFP4 = 39,
  kNVFP4 = 40,
  kQ1_0 = 41,
  kQ2_0 = 42,
  // forge's own types. They never occur in a GGUF file.
  kQ8A_32 = 128,   ///< CPU activations: blocks of 32 int8, an f32 scale and an f32 sum each (kernels/quant/q8a.h)
  kState = 129,    ///< an opaque state value such as the KV cache; it has no elements
  kQ8A_16 = 130,   ///< GPU activations: blocks of 16 int8, a BF16 scale, a 16-bit sum (kernels/gpu/activations.h)
  kQ16A_16 = 131,  ///< GPU activations of 16 bits: two rows of q8a_16, whose sum is the row
  kF16A = 132,     ///< GPU activations for matrix tiles: F16, divided by 16 (kernels/gpu/activations.h)
  kFp8 = 133,      ///< a GPU's KV cache: 8-bit floats in the target's encoding (kernels/quant/fp8.h)
};

/// Size and name of a type. Quantised types store whole blocks of consecutive elements of a row; plain types have
/// blocks of one element.
struct DTypeInfo {
  DType type;
  std::string_view name;      ///< lower case, as in model file names: "q4_1"
  std::uint16_t block_elems;  ///< consecutive elements of a row in one block
  std::uint16_t block_bytes;  ///< bytes of one block
};

inline constexpr std::array kDTypes{
    DTypeInfo{DType::kF32, "f32", 1, 4},
    DTypeInfo{DType::kF16, "f16", 1, 2},
    DTypeInfo{DType::kQ4_0, "q4_0", 32, 18},
    DTypeInfo{DType::kQ4_1, "q4_1", 32, 20},
    DTypeInfo{DType::kQ5_0, "q5_0", 32, 22},
    DTypeInfo{DType::kQ5_1, "q5_1", 32, 24},
    DTypeInfo{DType::kQ8_0, "q8_0", 32, 34},
    DTypeInfo{DType::kQ8_1, "q8_1", 32, 36},
    DTypeInfo{DType::kQ2_K, "q2_k", 256, 84},
    DTypeInfo{DType::kQ3_K, "q3_k", 256, 110},
    DTypeInfo{DType::kQ4_K, "q4_k", 256, 144},
    DTypeInfo{DType::kQ5_K, "q5_k", 256, 176},
    DTypeInfo{DType::kQ6_K, "q6_k", 256, 210},
    DTypeInfo{DType::kQ8_K, "q8_k", 256, 292},
    DTypeInfo{DType::kIQ2_XXS, "iq2_xxs", 256, 66},
    DTypeInfo{DType::kIQ2_XS, "iq2_xs", 256, 74},
    DTypeInfo{DType::kIQ3_XXS, "iq3_xxs", 256, 98},
    DTypeInfo{DType::kIQ1_S, "iq1_s", 256, 50},
    DTypeInfo{DType::kIQ4_NL, "iq4_nl", 32, 18},
    DTypeInfo{DType::kIQ3_S, "iq3_s", 256, 110},
    DTypeInfo{DType::kIQ2_S, "iq2_s", 256, 82},
    DTypeInfo{DType::kIQ4_XS, "iq4_xs", 256, 136},
    DTypeInfo{DType::kI8, "i8", 1, 1},
    DTypeInfo{DType::kI16, "i16", 1, 2},
    DTypeInfo{DType::kI32, "i32", 1, 4},
    DTypeInfo{DType::kI64, "i64", 1, 8},
    DTypeInfo{DType::kF64, "f64", 1, 8},
    DTypeInfo{DType::kIQ1_M, "iq1_m", 256, 56},
    DTypeInfo{DType::kBF16, "bf16", 1, 2},
    DTypeInfo{DType::kTQ1_0, "tq1_0", 256, 54},
    DTypeInfo{DType::kTQ2_0, "tq2_0", 256, 66},
    DTypeInfo{DType::kMXFP4, "mxfp4", 32, 17},
    DTypeInfo{DType::kNVFP4, "nvfp4", 64, 36},
    DTypeInfo{DType::kQ1_0, "q1_0", 128, 18},
    DTypeInfo{DType::kQ2_0, "q2_0", 64, 18},
    DTypeInfo{DType::kQ8A_32, "q8a_32", 32, 40},
    DTypeInfo{DType::kState, "state", 1, 0},
    DTypeInfo{DType::kQ8A_16, "q8a_16", 16, 20},
    DTypeInfo{DType::kQ16A_16, "q16a_16", 16, 40},
    DTypeInfo{DType::kF16A, "f16a", 1, 2},
    DTypeInfo{DType::kFp8, "fp8", 1, 1},
};

/// The table row of a type number, or nullptr if no type has it. Numbers read from a file must come through here: a
/// hostile file can hold any value.
constexpr const DTypeInfo* find_dtype(std::uint32_t number) {
  for (const auto& row : kDTypes)
    if (static_cast<std::uint32_t>(row.type) == number) return &row;
  return nullptr;
}

/// The table row of a valid type. An enumerator that is not in the table is undefined behaviour.
constexpr const DTypeInfo& dtype_info(DType type) {
  return *find_dtype(static_cast<std::uint32_t>(type));
}
constexpr std::string_view dtype_name(DType type) {
  return dtype_info(type).name;
}

/// The type with this name (exact match, lower case), or nothing.
constexpr std::optional<DType> dtype_of_name(std::string_view name) {
  for (const auto& row : kDTypes)
    if (row.name == name) return row.type;
  return std::nullopt;
}

/// Bytes of one row of `elems` elements in GGUF's native layout. `elems` must be a multiple of the type's block.
constexpr std::size_t row_bytes(DType type, std::size_t elems) {
  const auto& info = dtype_info(type);
  return elems / info.block_elems * info.block_bytes;
}

/// True for the floating-point types that matmuls accept as weights. F64 is only read, never computed with.
constexpr bool is_float(DType type) {
  return type == DType::kF32 || type == DType::kF16 || type == DType::kBF16;
}

/// True for the types that activations are quantised to before a matmul. No weight and no file has them.
constexpr bool is_quantized_activation(DType type) {
  return type == DType::kQ8A_32 || type == DType::kQ8A_16 || type == DType::kQ16A_16;
}

/// How many rows of int8 a row of quantised activations is the sum of.
constexpr int activation_terms(DType type) {
  return type == DType::kQ16A_16 ? 2 : 1;
}

}  // namespace forge

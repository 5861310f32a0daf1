#pragma once
// CPU kernels: a table of functions for each class of CPU. Every function is pure (no allocation, no threads, no
// globals), writes only what it names, and gives for one token the same bits whatever else is in the call: how many
// tokens, which group of weight rows, which tile, which chunk's neighbour.
// The classes with FMA (all but kGeneric) agree bit for bit with each other, but for matmuls of BF16 weights where
// there are dots of BF16 (multiplies_bf16); kGeneric rounds twice where they fuse, and differs in the last bits.
// Pointers need no alignment beyond their element's; 64 bytes is fastest. Floats are f32 unless said otherwise.

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "kernels/cpu/attention/attention.h"
#include "kernels/cpu/rope.h"
#include "kernels/cpu/tile.h"
#include "kernels/elementwise/function.h"
#include "kernels/quant/rows.h"

namespace forge::cpu {

enum class CpuClass : std::uint8_t {
  kGeneric,
  kNeon,
  kNeonDot,
  kAvx2,
  kAvx512,
  kAvx512Vnni,
  kAvx512VnniBf16,
  kAvx512VnniAmx
};

/// out[t][n] = sum over k of w[n][k] * x[t][k].
/// weights: `groups` groups of 16 rows of `k` elements, layout x16 (kernels/quant/x16.h).
/// x: rows `x_row_bytes` apart; f32 for F32, F16 and BF16 weights, q8a_32 (kernels/quant/q8a.h) for all others.
/// row_map: nullable; token t reads row row_map[t], else row t.
/// out: [tokens][16*groups], rows `out_stride` floats apart; padding rows of the last group come out as 0.
/// k: a multiple of the type's block, which the float types do not have.
/// Order of the sum: quantised: block after block of 32, acc = fma(d_w*d_x, float(int dot), acc); for Q4_1 then
/// acc = fma(m_w, sum_x, acc). The dot is of whole numbers, Q4_0's and Q8_0's signed ones. The others as Q4_1, with
/// their sub_scale and sub_offset (kernels/quant/blocks.h), part after part of kSub columns, sum_x being scale_x times
/// the part's sum; those with a kZero as Q4_0, their dot being of what is left when it is taken off. Float types: in
/// each 256 of k two chains of fma, even and odd columns, whose sum is added to the blocks' before. BF16 where the
/// class multiplies_bf16: x is rounded to BF16, the chains are of even and odd pairs of columns, in a pair the odd
/// column comes first, and denormals count as 0. Speed: 1 to 3 tokens run at the read rate of memory; many tokens want
/// calls of at least kMatmulTokens tokens (multiples of it) and several groups, whose weights and x then come from L2.
using MatmulFn = void (*)(const std::byte* weights, std::size_t k, std::size_t groups, const std::byte* x,
                          std::size_t x_row_bytes, const std::int32_t* row_map, std::size_t tokens, float* out,
                          std::size_t out_stride);
inline constexpr std::size_t kMatmulTokens = 12;

/// One group in layout x16 from 16 native rows of k elements; a row of nullptr is zeros. The same bytes in every class.
/// Rows are aligned as the type's block is: to 2 bytes, MXFP4's to 1.
using PackFn = void (*)(const std::byte* const* rows, std::size_t k, std::byte* group);

/// x[t][i] = f(x[t][i], parameters), a row of kernels/elementwise.
using UnaryFn = void (*)(Tile x, const float* parameters);
/// out[t][i] = f(x[t][i], y[t][i], parameters), of gates f(x[t][i]) y[t][i]; all have out's shape. out may be x or y
/// itself; y of stride 0 is one row for all.
using BinaryFn = void (*)(ConstTile x, ConstTile y, Tile out, const float* parameters);

struct Kernels {
  CpuClass cpu_class;

  MatmulFn matmul_f32, matmul_f16, matmul_bf16, matmul_q8_0, matmul_q4_0, matmul_q4_1;
  /// Of the types of kernels/quant/x16_codes.h; nullptr for another.
  MatmulFn (*matmul_of_codes)(DType type);
  PackFn (*pack)(DType type);  ///< nullptr for a type without kernels
  /// Of block types, for tokens of prompts; nullptr where they are multiplied as all others.
  MatmulFn (*prompt_matmul_of)(DType type);

  // For all rows t and columns i.
  void (*scale_rows)(Tile x, const float* factors);  ///< x[t][i] *= factors[t]
  /// Of kernels/elementwise, by the function's number; nullptr for a form that it does not have.
  UnaryFn unary_functions[elementwise::kFunctionCount];
  BinaryFn binary_functions[elementwise::kFunctionCount];
  void (*copy)(ConstTile x, Tile out);  ///< out = x; must not overlap

  /// Rotates the first `rotary_dims` (even, <= head_dim) of every head. x.width = heads * head_dim. cos_sin: row t at
  /// t*cos_sin_stride floats: [rotary_dims/2][2] of (cos, sin). Source: RoFormer, arXiv 2104.09864.
  void (*rope)(Tile x, std::size_t head_dim, std::size_t rotary_dims, RopeMode mode, const float* cos_sin,
               std::size_t cos_sin_stride);

  /// x.width (a multiple of 32) columns into q8a_32 rows of `k` elements (`row_bytes` apart), from block `block` on.
  void (*quantize_q8a)(ConstTile x, std::byte* rows, std::size_t row_bytes, std::size_t k, std::size_t block);

  /// partial[t][b] = sum of squares of columns 16b .. 16b+15 (the last block may be short); rows `stride` floats apart.
  void (*sum_squares)(ConstTile x, float* partial, std::size_t stride);
  /// inv[t] = 1/sqrt(sum of partial[t][0..count) / dim + eps); summed in order, in f64.
  void (*inv_rms)(const float* partial, std::size_t stride, std::size_t count, std::size_t tokens, std::size_t dim,
                  float eps, float* inv);
  /// out = x * inv_rms(x) * weight (weight nullable: none), a row at a time; the same bits as sum_squares, inv_rms,
  /// scale_rows and a product with weight. out may be x.
  void (*rms_norm)(ConstTile x, const float* weight, float eps, Tile out);
  /// rms_norm of every head of every row, in place. x.width = heads * head_dim; weight [head_dim], nullable.
  void (*rms_norm_heads)(Tile x, std::size_t head_dim, const float* weight, float eps);
  /// LayerNorm (arXiv 1607.06450) of every head of every row, in place: (x - mean) / sqrt(variance + eps) * weight +
  /// bias (nullable: none). x.width = heads * head_dim; weight and bias: [head_dim], shared by all heads, or [x.width].
  /// Sums are of 16 lanes by halves, then in f64, in order.
  void (*layer_norm_heads)(Tile x, std::size_t head_dim, const float* weight, const float* bias, bool shared,
                           float eps);

  // The KV cache (tile.h): token t goes to slot slots[t] (0..31) of a block whose first head to be stored begins at
  // heads[t] (nullptr: a padding token, nothing is written); further heads follow. x: [tokens][heads*width]. Columns of
  // [width][32] hold keys; rows of [32][width] values, and rows that keys and values share. f32 -> f16 rounds to
  // nearest even. Q8_0: scale = f16(amax / 127) of 32 columns, q = x * (1 / scale) rounded to nearest even; a scale of
  // NaN where x is not finite.
  void (*store_kv_columns)(ConstTile x, DType type, std::size_t width, std::byte* const* heads,
                           const std::int32_t* slots);
  void (*store_kv_rows)(ConstTile x, DType type, std::size_t width, std::byte* const* heads, const std::int32_t* slots);

  // Attention (attention.h).
  void (*attention_chunk)(const AttentionParams& params, const AttentionQuery& query, std::size_t chunk, float* scratch,
                          float* partials);
  void (*attention_merge)(const AttentionParams& params, const AttentionQuery& query, const float* partials,
                          std::size_t chunks, std::size_t chunk_stride, float* out, std::size_t out_token_stride,
                          std::size_t out_head_stride);
  void (*attention_tile)(const AttentionParams& params, const AttentionQuery& query, float* scratch, float* out,
                         std::size_t out_token_stride, std::size_t out_head_stride);

  /// Index of the largest value, the first of equals; NaNs are passed over (0 if there is nothing else). count >= 1.
  std::size_t (*argmax)(const float* values, std::size_t count);
  /// Reads every byte once and returns their XOR in words: the read-bandwidth loop of benchmarks.
  std::uint64_t (*read_bytes)(const std::byte* data, std::size_t bytes);

  [[nodiscard]] UnaryFn unary(elementwise::Function function) const {
    return unary_functions[static_cast<std::size_t>(function)];
  }
  [[nodiscard]] BinaryFn binary(elementwise::Function function) const {
    return binary_functions[static_cast<std::size_t>(function)];
  }
  /// nullptr for a type without a kernel.
  [[nodiscard]] MatmulFn matmul(DType type) const;
  /// For tokens of prompts. Where it is not matmul(type) it is faster for many rows and rounds otherwise, so who calls
  /// it does so for each row of a prompt, however few there are, and for no others; what a row gives depends, as
  /// matmul's, on itself alone.
  [[nodiscard]] MatmulFn prompt_matmul(DType type) const;
};

/// The best class that this CPU and operating system run.
CpuClass detect();
/// Whether kernels(cpu_class) may be called on this machine. Asking for AMX asks Linux, once, to let this process use
/// its tiles; it must be asked before a thread uses them.
bool runs_here(CpuClass cpu_class);
/// Of every architecture, from the plainest to the best.
std::span<const CpuClass> all_classes();
/// Whether BF16 weights meet activations rounded to BF16.
constexpr bool multiplies_bf16(CpuClass cpu_class) {
  return cpu_class >= CpuClass::kAvx512VnniBf16;
}
/// Whether prompt_matmul is another than matmul.
constexpr bool multiplies_prompts_by_tiles(CpuClass cpu_class) {
  return cpu_class == CpuClass::kAvx512VnniAmx;
}
/// "generic", "armv8-neon", "armv8-neon-dotprod", "x86-64-v3", "x86-64-v4", "x86-64-v4-vnni", "x86-64-v4-vnni-bf16",
/// "x86-64-v4-vnni-amx".
std::string_view name(CpuClass cpu_class);
std::optional<CpuClass> parse(std::string_view name);
/// What plans call a class that they are for: "cpu-" and its name; and back.
std::string target_name(CpuClass cpu_class);
std::optional<CpuClass> class_of_target(std::string_view target);
/// Never fails: a class that was not built into this binary (another architecture) gives the generic table, whose
/// cpu_class says so. Calling the functions of a class that does not run here is a crash: ask runs_here first.
const Kernels& kernels(CpuClass cpu_class);
/// What this CPU has of what matters here, for people: "avx2 fma f16c avx512f avx512bw avx512vl avx512vnni".
std::string features();

/// Rows of the table of token embeddings as f32: out[t][0..k) = row ids[t]. layout of `table`: native GGUF rows or x16
/// (kernels/quant/x16.h). out.width = k. An id outside [0, rows) gives a row of zeros.
/// Returns false for a type that no weight has.
bool embed_rows(DType type, quant::Layout layout, const std::byte* table, std::size_t rows, const std::int32_t* ids,
                Tile out);

}  // namespace forge::cpu

#pragma once
// CPU kernels: one table of function pointers (Kernels) per CPU class. Each class is compiled from the same sources
// with its own flags (kernels/meson.build); runtime/cpu picks the table of the class that a plan was compiled for.
//
// All kernels are pure: they allocate nothing, start no threads, use no globals and write only the buffers that their
// comment names. They are batch-invariant: a token's result has the same bits whatever else is in the call (how many
// tokens, which group of weight rows, which tile, which other rows of a chunk).
//
// All classes with FMA, which is all but kGeneric, agree bit for bit. The one exception is a matmul with BF16 weights
// on classes with BF16 dot instructions (uses_bf16_dots). kGeneric rounds twice where the others fuse and differs in
// the last bits.
//
// Pointers need only the alignment of their element type; 64 bytes is fastest. Floats are f32 unless stated otherwise.

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "kernels/cpu/attention/attention.h"
#include "kernels/cpu/attention/select_keys.h"
#include "kernels/cpu/recurrent.h"
#include "kernels/cpu/rope.h"
#include "kernels/cpu/tile.h"
#include "kernels/elementwise/function.h"
#include "kernels/quant/rows.h"

namespace forge::cpu {

/// The CPU classes, from the plainest to the best. Each x86 class includes the instructions of those before it.
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

/// Matmul: out[t][n] = sum over k of w[n][k] * x[t][k].
///   weights  `groups` groups of 16 rows of `k` elements in layout x16 (kernels/quant/x16.h)
///   x        rows `x_row_bytes` apart; f32 for F32, F16 and BF16 weights, q8a_32 (kernels/quant/q8a.h) for all others
///   row_map  nullable; token t reads row row_map[t] of x, without it row t
///   out      [tokens][16 * groups], rows `out_stride` floats apart; padding rows of the last group come out as 0
///   k        a multiple of the type's block; any number for the float types
///
/// Summation order, which fixes the bits. The integer dots are exact.
///   Q8_0, Q4_0  block after block of 32: acc = fma(d_w * d_x, float(dot), acc), dot of the signed quants
///   Q4_1        the same with the unsigned quants, then acc = fma(m_w, sum_x, acc)
///   others      sub-block after sub-block of kSub columns, with sub_scale and sub_offset of kernels/quant/blocks.h.
///               Types with a minimum sum like Q4_1, with sum_x = scale_x * (sum of the sub-block's x quants). Types
///               with a kZero sum like Q4_0, with the dot of raw - kZero.
///   F32, F16    per 256 columns two chains of fma, over even and over odd columns; their sum is added to the sum of
///               the columns before
///   BF16        the same. If the class uses_bf16_dots, x is rounded to BF16 and the chains run over even and odd
///               pairs of columns; within a pair the odd column is added first, and subnormals count as 0.
///
/// Speed: 1 to 3 tokens run at the read rate of memory. For many tokens a call should have at least kMatmulTokens
/// tokens (best a multiple of it) and several groups, so that weights and x are read from L2.
using MatmulFn = void (*)(const std::byte* weights, std::size_t k, std::size_t groups, const std::byte* x,
                          std::size_t x_row_bytes, const std::int32_t* row_map, std::size_t tokens, float* out,
                          std::size_t out_stride);
/// Tokens of one register tile in the widest class: a call with this many reads its weights once.
inline constexpr std::size_t kMatmulTokens = 12;

/// Packs one group of layout x16 from 16 native rows of k elements; a nullptr row is packed as zeros. All classes write
/// the same bytes. Rows must be aligned like the type's block: to 2 bytes, MXFP4's to 1.
using PackFn = void (*)(const std::byte* const* rows, std::size_t k, std::byte* group);

/// x[t][i] = f(x[t][i], parameters), in place; f is a function of kernels/elementwise.
using UnaryFn = void (*)(Tile x, const float* parameters);
/// out[t][i] = f(x[t][i], y[t][i], parameters); for gates f(x[t][i]) * y[t][i]. All tiles have out's shape. out may be
/// x or y. A y with stride 0 is one row for all tokens.
using BinaryFn = void (*)(ConstTile x, ConstTile y, Tile out, const float* parameters);

/// The kernels of one CPU class.
struct Kernels {
  CpuClass cpu_class;

  MatmulFn matmul_f32, matmul_f16, matmul_bf16, matmul_q8_0, matmul_q4_0, matmul_q4_1;
  /// The matmul of a type of kernels/quant/x16_codes.h; nullptr for other types.
  MatmulFn (*matmul_of_codes)(DType type);
  PackFn (*pack)(DType type);  ///< packing of a type; nullptr for a type without kernels
  /// The prefill matmul of a block type. nullptr if this class has none and prefill uses the other matmuls.
  MatmulFn (*prompt_matmul_of)(DType type);

  // The following work on all rows t and columns i of a tile.
  void (*scale_rows)(Tile x, const float* factors);  ///< x[t][i] *= factors[t]
  /// Kernels of kernels/elementwise, indexed by function; nullptr if a function has no such form.
  UnaryFn unary_functions[elementwise::kFunctionCount];
  BinaryFn binary_functions[elementwise::kFunctionCount];
  void (*copy)(ConstTile x, Tile out);  ///< out = x; must not overlap

  /// Rotates the first `rotary_dims` dimensions (even, <= head_dim) of every head. x.width = heads * head_dim. cos_sin:
  /// row t starts at t * cos_sin_stride floats and is [rotary_dims/2][2], (cos, sin) pairs. Source: RoFormer, arXiv
  /// 2104.09864.
  void (*rope)(Tile x, std::size_t head_dim, std::size_t rotary_dims, RopeMode mode, const float* cos_sin,
               std::size_t cos_sin_stride);

  /// Quantises x.width columns (a multiple of 32) into q8a_32 rows of `k` elements, `row_bytes` apart, starting at
  /// block `block` of each row. Several calls can fill one row.
  void (*quantize_q8a)(ConstTile x, std::byte* rows, std::size_t row_bytes, std::size_t k, std::size_t block);

  /// partial[t][b] = sum of squares of columns 16b .. 16b+15 (the last block may be shorter); rows `stride` floats
  /// apart.
  void (*sum_squares)(ConstTile x, float* partial, std::size_t stride);
  /// inv[t] = 1 / sqrt(sum of partial[t][0..count) / dim + eps), added in order in f64. With sum_squares it splits an
  /// RMS norm: the step before writes partial sums, the step after scales by inv.
  void (*inv_rms)(const float* partial, std::size_t stride, std::size_t count, std::size_t tokens, std::size_t dim,
                  float eps, float* inv);
  /// RMS norm: out = x * inv_rms(x) * weight, row by row; weight may be nullptr. Same bits as sum_squares, inv_rms,
  /// scale_rows and a product with weight. out may be x.
  void (*rms_norm)(ConstTile x, const float* weight, float eps, Tile out);
  /// RMS norm of every head of every row, in place. x.width = heads * head_dim; weight: [head_dim], may be nullptr.
  void (*rms_norm_heads)(Tile x, std::size_t head_dim, const float* weight, float eps);
  /// LayerNorm (arXiv 1607.06450) of every head of every row, in place: (x - mean) / sqrt(variance + eps) * weight +
  /// bias. x.width = heads * head_dim; bias may be nullptr. weight and bias are [head_dim] if `shared`, else [x.width].
  /// Sums add 16 lanes pairwise and then the 16-column blocks in order, in f64.
  void (*layer_norm_heads)(Tile x, std::size_t head_dim, const float* weight, const float* bias, bool shared,
                           float eps);

  // Stores into the KV cache (layout: tile.h). Token t goes to slot slots[t] (0..31) of the block whose first stored
  // head begins at heads[t]; further heads follow. heads[t] == nullptr is a padding token, and nothing is written. x:
  // [tokens][heads * width]. store_kv_columns writes [width][32] (keys), store_kv_rows [32][width] (values, and rows
  // that keys and values share). F16 rounds to nearest even. Q8_0: per 32 columns scale = f16(amax / 127), q = x * (1 /
  // scale) rounded to nearest even; the scale is NaN if x is not finite.
  void (*store_kv_columns)(ConstTile x, DType type, std::size_t width, std::byte* const* heads,
                           const std::int32_t* slots);
  void (*store_kv_rows)(ConstTile x, DType type, std::size_t width, std::byte* const* heads, const std::int32_t* slots);

  // Attention; see attention/attention.h.
  void (*attention_chunk)(const AttentionParams& params, const AttentionQuery& query, std::size_t chunk, float* scratch,
                          float* partials);
  void (*attention_merge)(const AttentionParams& params, const AttentionQuery& query, const float* partials,
                          std::size_t chunks, std::size_t chunk_stride, float* out, std::size_t out_token_stride,
                          std::size_t out_head_stride);
  void (*attention_tile)(const AttentionParams& params, const AttentionQuery& query, float* scratch, float* out,
                         std::size_t out_token_stride, std::size_t out_head_stride);

  void (*score_keys)(const ScoreKeysCall& call);  ///< see attention/select_keys.h

  // Recurrent state; see recurrent.h.
  void (*short_conv)(const ShortConvCall& call);
  void (*delta_rule)(const DeltaRuleCall& call);
  void (*scan_head)(const SelectiveScanCall& call);
  void (*scan_channels)(const SelectiveScanCall& call);
  void (*rwkv7)(const Rwkv7Call& call);

  /// Index of the largest value, the first of equal ones. NaNs are skipped; 0 if all are NaN. count >= 1.
  std::size_t (*argmax)(const float* values, std::size_t count);
  /// XOR of all 64-bit words, so that every byte is read once: the read-bandwidth loop of benchmarks.
  std::uint64_t (*read_bytes)(const std::byte* data, std::size_t bytes);

  [[nodiscard]] UnaryFn unary(elementwise::Function function) const {
    return unary_functions[static_cast<std::size_t>(function)];
  }
  [[nodiscard]] BinaryFn binary(elementwise::Function function) const {
    return binary_functions[static_cast<std::size_t>(function)];
  }
  /// The matmul of a weight type; nullptr for a type without a kernel.
  [[nodiscard]] MatmulFn matmul(DType type) const;
  /// The matmul of a weight type for tokens of long prompts. Where it differs from matmul(type), it is faster for many
  /// rows but rounds differently. So callers must use it for every token of such a prompt, however few a step has, and
  /// for no other token. Like matmul it is batch-invariant.
  [[nodiscard]] MatmulFn prompt_matmul(DType type) const;
};

/// The best class that this CPU and operating system can run.
CpuClass detect();
/// True if kernels(cpu_class) may be called on this machine. For the AMX class, the first call asks Linux for
/// permission to use tile registers in this process; that must happen before a thread uses them.
bool runs_here(CpuClass cpu_class);
/// All classes of every architecture, from the plainest to the best.
std::span<const CpuClass> all_classes();
/// True if matmuls with BF16 weights round activations to BF16 and use BF16 dot instructions.
constexpr bool uses_bf16_dots(CpuClass cpu_class) {
  return cpu_class >= CpuClass::kAvx512VnniBf16;
}
/// True if prompt_matmul differs from matmul: prefill then uses AMX tiles of BF16.
constexpr bool has_prefill_tiles(CpuClass cpu_class) {
  return cpu_class == CpuClass::kAvx512VnniAmx;
}
/// The name of a class: "generic", "armv8-neon", "armv8-neon-dotprod", "x86-64-v3", "x86-64-v4", "x86-64-v4-vnni",
/// "x86-64-v4-vnni-bf16" or "x86-64-v4-vnni-amx".
std::string_view name(CpuClass cpu_class);
/// The class with this name, or nothing.
std::optional<CpuClass> parse(std::string_view name);
/// The target name of a class in plans: "cpu-" and its name.
std::string target_name(CpuClass cpu_class);
/// The class of a target name, or nothing.
std::optional<CpuClass> class_of_target(std::string_view target);
/// The table of a class. Never fails: a class of another architecture, which is not in this binary, gives the generic
/// table, and its cpu_class says so. Calling kernels of a class for which runs_here is false crashes.
const Kernels& kernels(CpuClass cpu_class);
/// The features of this CPU that matter here, for people: "avx2 fma f16c avx512f avx512bw avx512vl avx512vnni".
std::string features();

/// Embedding lookup: out[t][0..k) = row ids[t] of the table as f32, with k = out.width. `layout` is native GGUF rows or
/// x16 (kernels/quant/x16.h). An id outside [0, rows) gives a row of zeros. Returns false for a type that no weight
/// has.
bool embed_rows(DType type, quant::Layout layout, const std::byte* table, std::size_t rows, const std::int32_t* ids,
                Tile out);

}  // namespace forge::cpu

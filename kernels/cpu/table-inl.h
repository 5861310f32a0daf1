#pragma once
// Defines the Kernels table of one class. A class's translation unit includes it last, after its dot_*-inl.h.

#include "kernels/cpu/attention/attention-inl.h"
#include "kernels/cpu/attention/select_keys-inl.h"
#include "kernels/cpu/matmul/matmul_float-inl.h"
#include "kernels/cpu/recurrent-inl.h"
#include "kernels/cpu/tile_ops-inl.h"

namespace forge::cpu::FORGE_CPU_NAMESPACE {

// Defined in codes_table-inl.h, which is compiled as a translation unit of its own.
MatmulFn matmul_of_codes(DType type);
PackFn pack(DType type);
extern const Kernels kTable;
const Kernels kTable{
    .cpu_class = FORGE_CPU_CLASS,
    .matmul_f32 = matmul_float<LoadF32>,
    .matmul_f16 = matmul_float<LoadF16>,
    .matmul_bf16 = matmul_float<LoadBf16>,
    .matmul_q8_0 = matmul_int<FormatQ8_0>,
    .matmul_q4_0 = matmul_int<FormatQ4_0>,
    .matmul_q4_1 = matmul_int<FormatQ4_1>,
    .matmul_of_codes = matmul_of_codes,
    .pack = pack,
    .prompt_matmul_of = nullptr,
    .scale_rows = scale_rows,
    .unary_functions = {FORGE_UNARY_KERNELS},
    .binary_functions = {FORGE_BINARY_KERNELS},
    .copy = copy,
    .rope = rope,
    .quantize_q8a = quantize_q8a,
    .sum_squares = sum_squares,
    .inv_rms = inv_rms,
    .rms_norm = rms_norm,
    .rms_norm_heads = rms_norm_heads,
    .layer_norm_heads = layer_norm_heads,
    .store_kv_columns = store_kv_columns,
    .store_kv_rows = store_kv_rows,
    .attention_chunk = attention_chunk,
    .attention_merge = attention_merge,
    .attention_tile = attention_tile,
    .score_keys = score_keys,
    .short_conv = short_conv,
    .delta_rule = delta_rule,
    .scan_head = scan_head,
    .scan_channels = scan_channels,
    .rwkv7 = rwkv7,
    .argmax = argmax,
    .read_bytes = read_bytes,
};

}  // namespace forge::cpu::FORGE_CPU_NAMESPACE

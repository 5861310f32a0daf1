// matmul and batched_matmul; concat_rows and slice_rows, which form their weights at load time; and quantize, which
// gives activations the int8 type that some targets multiply. Expert matmuls are in experts.cc.

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>

#include "ir/ops.h"
#include "kernels/quant/q8a.h"

namespace forge::ir::ops {
namespace {

std::vector<TensorType> infer_matmul(const Attrs&, Types operands) {
  const TensorType& x = operands[0];
  const TensorType& weight = operands[1];
  if (!is_activation_dtype(x.dtype) || x.shape.size() != 2 || !x.shape[1].is_constant())
    refuse_operand("matmul", 0, x, "f32, q8a_32, q8a_16 or q16a_16 [M,K] with a constant K");
  if (!is_weight_dtype(weight.dtype) || weight.shape.size() != 2 || !weight.shape[0].is_constant() ||
      weight.shape[1] != x.shape[1])
    refuse_operand("matmul", 1, weight,
                   fmt::format("a weight [N,{}] of constant dimensions, as operand 0 is {}", x.cols(), x.text()));
  return {{DType::kF32, {x.shape[0], weight.shape[0]}}};
}

std::vector<TensorType> infer_batched_matmul(const Attrs&, Types operands) {
  const TensorType& x = operands[0];
  const TensorType& weight = operands[1];
  if (!is_activation_dtype(x.dtype) || x.shape.size() != 3 || !x.shape[1].is_constant() || !x.shape[2].is_constant())
    refuse_operand("batched_matmul", 0, x, "f32, q8a_32, q8a_16 or q16a_16 [M,H,K] with constant H and K");
  if (!is_weight_dtype(weight.dtype) || weight.shape.size() != 3 ||
      !std::ranges::all_of(weight.shape, &Dim::is_constant) || weight.shape[0] != x.shape[1] ||
      weight.shape[2] != x.shape[2])
    refuse_operand("batched_matmul", 1, weight,
                   fmt::format("a weight [{},N,{}] of constant dimensions, as operand 0 is {}", x.shape[1].value,
                               x.cols(), x.text()));
  return {{DType::kF32, {x.shape[0], weight.shape[0].value * weight.shape[1].value}}};
}

/// All operands must be like the first one, except for the number of rows, which the attribute `sizes` gives.
std::vector<TensorType> infer_concat(const Attrs& attrs, Types operands) {
  const auto& parts = std::get<PartsAttrs>(attrs);
  const std::int64_t total = parts_total("concat_rows", parts, operands.size());
  const TensorType& first = operands[0];
  const std::size_t rows = first.shape.size() == 3 ? 1 : 0;  // the dimension that grows: each expert's rows
  for (std::size_t i = 0; i < operands.size(); ++i) {
    TensorType wanted = first;
    if (wanted.shape.empty() || wanted.shape.size() > 3 || !std::ranges::all_of(wanted.shape, &Dim::is_constant))
      refuse_operand("concat_rows", i, operands[i], "a weight [N], [N,K] or [E,N,K] of constant dimensions");
    wanted.shape[rows] = parts.sizes[i];
    if (operands[i] != wanted)
      refuse_operand(
          "concat_rows", i, operands[i],
          fmt::format("{}, of operand 0's element type and columns and the attribute's size", wanted.text()));
  }
  TensorType result = first;
  result.shape[rows] = total;
  return {result};
}

/// The dimension that slice_rows cuts: each expert's rows of [E,N,K].
std::size_t row_dim(const TensorType& weight) {
  return weight.shape.size() == 3 ? 1 : 0;
}

/// The slice must lie inside the weight.
std::vector<TensorType> infer_slice(const Attrs& attrs, Types operands) {
  const auto& slice = std::get<SliceAttrs>(attrs);
  const TensorType& whole = operands[0];
  if (!is_weight_dtype(whole.dtype) || whole.shape.empty() || whole.shape.size() > 3 ||
      !std::ranges::all_of(whole.shape, &Dim::is_constant))
    refuse_operand("slice_rows", 0, whole, "a weight [N], [N,K] or [E,N,K] of constant dimensions");
  const std::int64_t rows = whole.shape[row_dim(whole)].value;
  attr_between("slice_rows", "begin", slice.begin, 0, rows - 1);
  attr_between("slice_rows", "rows", slice.rows, 1, rows - slice.begin);
  TensorType result = whole;
  result.shape[row_dim(whole)] = slice.rows;
  return {result};
}

std::vector<TensorType> infer_quantize(const Attrs& attrs, Types operands) {
  const auto dtype = std::get<QuantizeAttrs>(attrs).dtype;
  if (!is_quantized_activation(dtype))
    refuse_attr("quantize", "dtype", std::string(dtype_name(dtype)), "q8a_32, q8a_16 or q16a_16");
  require_rows("quantize", operands, 0);
  if (const auto block = dtype_info(dtype).block_elems; operands[0].cols() % block != 0)
    refuse_operand("quantize", 0, operands[0], fmt::format("a multiple of {} columns wide", block));
  return {{dtype, operands[0].shape}};
}

/// Costs count each operand once; that a kernel may read activations or weights several times is not considered.
Cost matmul_cost(const Attrs&, Types operands, Types results, const Bounds& bounds) {
  return {.weight_bytes = operands[1].bytes(bounds),
          .activation_bytes = operands[0].bytes(bounds) + results[0].bytes(bounds),
          .flops = 2 * operands[0].rows(bounds) * operands[1].elements(bounds)};
}

Cost batched_matmul_cost(const Attrs&, Types operands, Types results, const Bounds& bounds) {
  return {.weight_bytes = operands[1].bytes(bounds),
          .activation_bytes = operands[0].bytes(bounds) + results[0].bytes(bounds),
          .flops = 2 * results[0].elements(bounds) * operands[0].cols()};
}

/// 4 operations an element: maximum, scale, round, sum.
Cost quantize_cost(const Attrs&, Types operands, Types results, const Bounds& bounds) {
  return streaming_cost(operands, results, bounds, 4);
}

/// Dot product with an f64 sum, rounded to f32 once.
float dot(const float* a, const float* b, std::int64_t count) {
  double sum = 0;
  for (std::int64_t k = 0; k < count; ++k) sum += static_cast<double>(a[k]) * b[k];
  return static_cast<float>(sum);
}

void run_matmul(const Attrs&, Operands operands, Results results, EvalContext&) {
  const Tensor& x = *operands[0];
  const Tensor& weight = *operands[1];
  Tensor& out = results[0];
  const std::int64_t k_count = x.cols();
  for (std::int64_t m = 0; m < out.rows(); ++m)
    for (std::int64_t n = 0; n < out.cols(); ++n)
      out.f32[m * out.cols() + n] = dot(x.f32.data() + m * k_count, weight.f32.data() + n * k_count, k_count);
}

void run_batched_matmul(const Attrs&, Operands operands, Results results, EvalContext&) {
  const Tensor& x = *operands[0];
  const Tensor& weight = *operands[1];
  Tensor& out = results[0];
  const std::int64_t batches = weight.dims[0], rows = weight.dims[1], k_count = x.cols();
  for (std::int64_t m = 0; m < x.dims[0]; ++m)
    for (std::int64_t n = 0; n < out.cols(); ++n) {  // n = batch * rows + row: weight rows of all batches in sequence
      const float* a = x.f32.data() + (m * batches + n / rows) * k_count;
      out.f32[m * out.cols() + n] = dot(a, weight.f32.data() + n * k_count, k_count);
    }
}

/// Copies row by row. A weight [E,Ni,K] is E slices, concatenated expert by expert; [Ni] and [Ni,K] are one slice.
void run_concat(const Attrs& attrs, Operands operands, Results results, EvalContext&) {
  const auto& parts = std::get<PartsAttrs>(attrs);
  const auto offsets = part_offsets(parts);
  const auto& dims = results[0].dims;
  const std::int64_t width = dims.size() == 1 ? 1 : dims.back(), slices = dims.size() == 3 ? dims[0] : 1;
  const std::int64_t total = dims.size() == 3 ? dims[1] : dims[0];
  for (std::size_t part = 0; part < operands.size(); ++part)
    for (std::int64_t i = 0; i < slices * parts.sizes[part]; ++i) {
      const std::int64_t slice = i / parts.sizes[part], row = i % parts.sizes[part];
      std::copy_n(operands[part]->f32.begin() + i * width, width,
                  results[0].f32.begin() + (slice * total + part_position(parts, offsets, part, row)) * width);
    }
}

void run_slice(const Attrs& attrs, Operands operands, Results results, EvalContext&) {
  const auto& slice = std::get<SliceAttrs>(attrs);
  const auto& dims = operands[0]->dims;
  const std::int64_t width = dims.size() == 1 ? 1 : dims.back(), experts = dims.size() == 3 ? dims[0] : 1;
  const std::int64_t rows = dims[dims.size() == 3 ? 1 : 0];
  for (std::int64_t expert = 0; expert < experts; ++expert)
    std::copy_n(operands[0]->f32.begin() + (expert * rows + slice.begin) * width, slice.rows * width,
                results[0].f32.begin() + expert * slice.rows * width);
}

/// The largest quant of 16 bits: its upper byte, 127, and its lower byte, 127, are both int8. And the largest magnitude
/// of an element of q16a_16 (kernels/gpu/activations.h).
constexpr float kWideQuantMost = 127 * 256 + 127, kWideMost = 0x1p4f * 65504;

/// Scale of a block with this largest magnitude. GPUs store scales as BF16: adding 0xffff before the low 16 bits are
/// cleared rounds up, so that magnitude / scale stays at most the largest quant.
float quantization_scale(DType dtype, float magnitude) {
  const float scale = magnitude / (dtype == DType::kQ16A_16 ? kWideQuantMost : 127.0f);
  if (dtype == DType::kQ8A_32) return scale;
  return std::bit_cast<float>((std::bit_cast<std::uint32_t>(scale) + 0xffffU) & 0xffff0000U);
}

/// The result is held as f32. With quantize_activations each block is rounded to integers and scaled back, which gives
/// the values that an int8 kernel multiplies.
void run_quantize(const Attrs& attrs, Operands operands, Results results, EvalContext& context) {
  const auto dtype = std::get<QuantizeAttrs>(attrs).dtype;
  const std::size_t columns = dtype_info(dtype).block_elems;
  auto& out = results[0].f32;
  out = operands[0]->f32;
  if (!context.quantize_activations) return;
  for (std::size_t start = 0; start < out.size(); start += columns) {
    const std::span block(out.data() + start, columns);
    if (dtype == DType::kQ16A_16)
      for (float& x : block) x = std::clamp(x, -kWideMost, kWideMost);
    float magnitude = 0;
    for (const float x : block) magnitude = std::max(magnitude, std::fabs(x));
    const float scale = quantization_scale(dtype, magnitude);
    const float inverse = scale > quant::kQ8aScaleLeast ? 1.0f / scale : 0.0f;
    for (float& x : block) x = std::nearbyint(x * inverse) * scale;
  }
}

}  // namespace

std::span<const OpDef> matmul_defs() {
  static constexpr std::array kDefs{
      OpDef{.op = Op::kMatmul,
            .name = "matmul",
            .operands_min = 2,
            .operands_max = 2,
            .infer = infer_matmul,
            .cost = matmul_cost,
            .reference = run_matmul},
      OpDef{.op = Op::kBatchedMatmul,
            .name = "batched_matmul",
            .operands_min = 2,
            .operands_max = 2,
            .infer = infer_batched_matmul,
            .cost = batched_matmul_cost,
            .reference = run_batched_matmul},
      OpDef{.op = Op::kConcatRows,
            .name = "concat_rows",
            .operands_min = 1,
            .operands_max = 255,
            .attrs_index = attrs_index<PartsAttrs>(),
            .infer = infer_concat,
            .cost = no_cost,  // done once, at load time
            .reference = run_concat},
      OpDef{.op = Op::kSliceRows,
            .name = "slice_rows",
            .operands_min = 1,
            .operands_max = 1,
            .attrs_index = attrs_index<SliceAttrs>(),
            .infer = infer_slice,
            .cost = no_cost,  // the rest of the tensor is not loaded for it
            .reference = run_slice},
      OpDef{.op = Op::kQuantize,
            .name = "quantize",
            .operands_min = 1,
            .operands_max = 1,
            .attrs_index = attrs_index<QuantizeAttrs>(),
            .infer = infer_quantize,
            .cost = quantize_cost,
            .reference = run_quantize},
  };
  return kDefs;
}

}  // namespace forge::ir::ops

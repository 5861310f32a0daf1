// LayerNorm (arXiv 1607.06450) and RMSNorm (arXiv 1910.07467). The pass split_rms_norm divides an RMSNorm into two ops,
// which are defined here too: sum_squares for the producer of x and inv_rms_scale for its consumers. match_rms and
// gaussian_topk are other functions of whole rows, which Gemma 3n has.

#include <array>
#include <cmath>

#include "ir/ops.h"

namespace forge::ir::ops {
namespace {

/// Number of partial sums in a row of sum_squares.
std::int64_t square_cols(std::int64_t cols) {
  return (cols + kSumSquaresBlock - 1) / kSumSquaresBlock;
}

void check_attrs(std::string_view op, const NormAttrs& norm) {
  attr_between(op, "dim", norm.dim, 1, kCountMax);
  if (!(norm.eps >= 0) || !std::isfinite(norm.eps)) refuse_attr(op, "eps", fmt::to_string(norm.eps), "0 or more");
}

std::vector<TensorType> infer_rms_norm(const Attrs& attrs, Types operands) {
  const auto& norm = std::get<NormAttrs>(attrs);
  check_attrs("rms_norm", norm);
  require_f32("rms_norm", operands, 0, 2);
  if (operands[0].cols() % norm.dim != 0)
    refuse_operand("rms_norm", 0, operands[0], fmt::format("a multiple of the attribute dim = {} wide", norm.dim));
  const TensorType weight{DType::kF32, {norm.dim}};
  if (operands[1] != weight)
    refuse_operand("rms_norm", 1, operands[1],
                   fmt::format("{}, the attribute dim; operand 0 is {}", weight.text(), operands[0].text()));
  return {operands[0]};
}

/// Weight and bias are [dim], shared by all runs of dim columns, or [G,dim], one row for each of the G runs.
std::vector<TensorType> infer_layer_norm(const Attrs& attrs, Types operands) {
  const auto& norm = std::get<NormAttrs>(attrs);
  check_attrs("layer_norm", norm);
  require_f32("layer_norm", operands, 0, 2);
  if (operands[0].cols() % norm.dim != 0)
    refuse_operand("layer_norm", 0, operands[0], fmt::format("a multiple of the attribute dim = {} wide", norm.dim));
  const TensorType shared{DType::kF32, {norm.dim}}, own{DType::kF32, {operands[0].cols() / norm.dim, norm.dim}};
  if (operands[1] != shared && operands[1] != own)
    refuse_operand("layer_norm", 1, operands[1],
                   fmt::format("{} or {}; operand 0 is {}", shared.text(), own.text(), operands[0].text()));
  if (operands.size() > 2 && operands[2] != operands[1])
    refuse_operand("layer_norm", 2, operands[2], operands[1].text() + ", like operand 1");
  return {operands[0]};
}

std::vector<TensorType> infer_match_rms(const Attrs&, Types operands) {
  require_f32("match_rms", operands, 0, 2);
  if (operands[1] != operands[0]) refuse_operand("match_rms", 1, operands[1], operands[0].text() + ", like operand 0");
  return {operands[0]};
}

/// A row needs two columns for its deviation.
std::vector<TensorType> infer_gaussian_topk(const Attrs& attrs, Types operands) {
  const float cutoff = std::get<GaussianTopkAttrs>(attrs).cutoff;
  require_f32("gaussian_topk", operands, 0, 2);
  if (operands[0].cols() < 2) refuse_operand("gaussian_topk", 0, operands[0], "at least 2 columns wide");
  if (!std::isfinite(cutoff)) refuse_attr("gaussian_topk", "cutoff", fmt::to_string(cutoff), "finite");
  return {operands[0]};
}

std::vector<TensorType> infer_sum_squares(const Attrs&, Types operands) {
  require_f32("sum_squares", operands, 0, 2);
  return {{DType::kF32, {operands[0].shape[0], square_cols(operands[0].cols())}}};
}

std::vector<TensorType> infer_inv_rms(const Attrs& attrs, Types operands) {
  const auto& norm = std::get<NormAttrs>(attrs);
  check_attrs("inv_rms_scale", norm);
  require_rows("inv_rms_scale", operands, 0);
  const TensorType squares{DType::kF32, {operands[0].shape[0], square_cols(norm.dim)}};
  if (operands[1] != squares)
    refuse_operand(
        "inv_rms_scale", 1, operands[1],
        fmt::format("{}: the rows of operand 0, {}, and ceil(dim/16) sums", squares.text(), operands[0].text()));
  return {operands[0]};
}

// FLOPs an element: square, add, two multiplications for RMSNorm; mean and offset come on top for LayerNorm.
Cost rms_norm_cost(const Attrs&, Types operands, Types results, const Bounds& bounds) {
  Cost cost = streaming_cost(operands.first(1), results, bounds, 4);
  cost.weight_bytes = operands[1].bytes(bounds);
  return cost;
}

Cost layer_norm_cost(const Attrs&, Types operands, Types results, const Bounds& bounds) {
  Cost cost = streaming_cost(operands.first(1), results, bounds, 7);
  for (const TensorType& type : operands.subspan(1)) cost.weight_bytes += type.bytes(bounds);
  return cost;
}

Cost match_rms_cost(const Attrs&, Types operands, Types results, const Bounds& bounds) {
  return streaming_cost(operands, results, bounds, 5);
}

Cost gaussian_topk_cost(const Attrs&, Types operands, Types results, const Bounds& bounds) {
  return streaming_cost(operands, results, bounds, 6);
}

Cost sum_squares_cost(const Attrs&, Types operands, Types results, const Bounds& bounds) {
  Cost cost = streaming_cost(operands, results, bounds, 0);
  cost.flops = 2 * operands[0].elements(bounds);
  return cost;
}

Cost inv_rms_cost(const Attrs&, Types operands, Types results, const Bounds& bounds) {
  Cost cost = streaming_cost(operands, results, bounds, 1);
  cost.flops += operands[1].elements(bounds);
  return cost;
}

void run_rms_norm(const Attrs& attrs, Operands operands, Results results, EvalContext&) {
  const auto& norm = std::get<NormAttrs>(attrs);
  const auto dim = static_cast<std::size_t>(norm.dim);
  const auto& x = operands[0]->f32;
  const auto& weight = operands[1]->f32;
  for (std::size_t start = 0; start < x.size(); start += dim) {
    double squares = 0;
    for (std::size_t i = 0; i < dim; ++i) squares += static_cast<double>(x[start + i]) * x[start + i];
    const double inverse = 1.0 / std::sqrt(squares / static_cast<double>(dim) + norm.eps);
    for (std::size_t i = 0; i < dim; ++i)
      results[0].f32[start + i] = static_cast<float>(x[start + i] * inverse) * weight[i];
  }
}

void run_layer_norm(const Attrs& attrs, Operands operands, Results results, EvalContext&) {
  const auto& norm = std::get<NormAttrs>(attrs);
  const auto dim = static_cast<std::size_t>(norm.dim);
  const auto& x = operands[0]->f32;
  const auto& weight = operands[1]->f32;
  for (std::size_t start = 0; start < x.size(); start += dim) {
    double sum = 0, squares = 0;
    for (std::size_t i = 0; i < dim; ++i) sum += x[start + i];
    const double mean = sum / static_cast<double>(dim);
    for (std::size_t i = 0; i < dim; ++i) squares += (x[start + i] - mean) * (x[start + i] - mean);
    const double inverse = 1.0 / std::sqrt(squares / static_cast<double>(dim) + norm.eps);
    for (std::size_t i = 0; i < dim; ++i) {
      const std::size_t w = (start + i) % weight.size();  // weight [dim] repeats every run, [G,dim] every row of x
      const float offset = operands.size() > 2 ? operands[2]->f32[w] : 0.0F;
      results[0].f32[start + i] = static_cast<float>((x[start + i] - mean) * inverse) * weight[w] + offset;
    }
  }
}

void run_match_rms(const Attrs&, Operands operands, Results results, EvalContext&) {
  const Tensor& x = *operands[0];
  const auto squares = [](const Tensor& of, std::int64_t row) {
    double sum = 0;
    for (std::int64_t i = row * of.cols(); i < (row + 1) * of.cols(); ++i)
      sum += static_cast<double>(of.f32[i]) * of.f32[i];
    return sum;
  };
  for (std::int64_t row = 0; row < x.rows(); ++row) {
    const double own = squares(x, row);
    const double factor = own > 0 ? std::sqrt(squares(*operands[1], row) / own) : 0;
    for (std::int64_t i = row * x.cols(); i < (row + 1) * x.cols(); ++i)
      results[0].f32[i] = static_cast<float>(x.f32[i] * factor);
  }
}

void run_gaussian_topk(const Attrs& attrs, Operands operands, Results results, EvalContext&) {
  const double cutoff = std::get<GaussianTopkAttrs>(attrs).cutoff;
  const Tensor& x = *operands[0];
  const std::int64_t width = x.cols();
  for (std::int64_t begin = 0; begin < x.rows() * width; begin += width) {
    double sum = 0, squares = 0;
    for (std::int64_t i = begin; i < begin + width; ++i) sum += x.f32[i];
    const double mean = sum / static_cast<double>(width);
    for (std::int64_t i = begin; i < begin + width; ++i) squares += (x.f32[i] - mean) * (x.f32[i] - mean);
    const double limit = mean + cutoff * std::sqrt(squares / static_cast<double>(width - 1));
    for (std::int64_t i = begin; i < begin + width; ++i) {
      const double above = x.f32[i] - limit;
      results[0].f32[i] = static_cast<float>(above < 0 ? 0 : above);
    }
  }
}

/// The last block of a row may be shorter than kSumSquaresBlock.
void run_sum_squares(const Attrs&, Operands operands, Results results, EvalContext&) {
  const Tensor& x = *operands[0];
  Tensor& out = results[0];
  for (std::int64_t row = 0; row < x.rows(); ++row)
    for (std::int64_t block = 0; block < out.cols(); ++block) {
      double sum = 0;
      for (std::int64_t j = block * kSumSquaresBlock; j < std::min((block + 1) * kSumSquaresBlock, x.cols()); ++j) {
        const double value = x.f32[row * x.cols() + j];
        sum += value * value;
      }
      out.f32[row * out.cols() + block] = static_cast<float>(sum);
    }
}

/// Multiplies each row of x by 1/rms. The rms is that of the norm's operand, given by its sums of squares; x itself
/// is usually a matmul's result and may have another width.
void run_inv_rms(const Attrs& attrs, Operands operands, Results results, EvalContext&) {
  const auto& norm = std::get<NormAttrs>(attrs);
  const Tensor& x = *operands[0];
  const Tensor& squares = *operands[1];
  const std::int64_t slots = x.dims.size() == 3 ? x.dims[1] : 1;  // [M,U,N]: U rows share one row of squares
  for (std::int64_t row = 0; row < x.rows(); ++row) {
    double sum = 0;
    for (std::int64_t j = 0; j < squares.cols(); ++j) sum += squares.f32[row / slots * squares.cols() + j];
    const double inverse = 1.0 / std::sqrt(sum / static_cast<double>(norm.dim) + norm.eps);
    for (std::int64_t j = 0; j < x.cols(); ++j)
      results[0].f32[row * x.cols() + j] = static_cast<float>(x.f32[row * x.cols() + j] * inverse);
  }
}

}  // namespace

std::span<const OpDef> norm_defs() {
  static constexpr std::array kDefs{
      OpDef{.op = Op::kRmsNorm,
            .name = "rms_norm",
            .operands_min = 2,
            .operands_max = 2,
            .attrs_index = attrs_index<NormAttrs>(),
            .in_place_operand = 0,
            .infer = infer_rms_norm,
            .cost = rms_norm_cost,
            .reference = run_rms_norm},
      OpDef{.op = Op::kLayerNorm,
            .name = "layer_norm",
            .operands_min = 2,
            .operands_max = 3,
            .attrs_index = attrs_index<NormAttrs>(),
            .in_place_operand = 0,
            .infer = infer_layer_norm,
            .cost = layer_norm_cost,
            .reference = run_layer_norm},
      OpDef{.op = Op::kMatchRms,
            .name = "match_rms",
            .operands_min = 2,
            .operands_max = 2,
            .in_place_operand = 0,
            .infer = infer_match_rms,
            .cost = match_rms_cost,
            .reference = run_match_rms},
      OpDef{.op = Op::kGaussianTopk,
            .name = "gaussian_topk",
            .operands_min = 1,
            .operands_max = 1,
            .attrs_index = attrs_index<GaussianTopkAttrs>(),
            .in_place_operand = 0,
            .infer = infer_gaussian_topk,
            .cost = gaussian_topk_cost,
            .reference = run_gaussian_topk},
      OpDef{.op = Op::kSumSquares,
            .name = "sum_squares",
            .operands_min = 1,
            .operands_max = 1,
            .infer = infer_sum_squares,
            .cost = sum_squares_cost,
            .reference = run_sum_squares},
      OpDef{.op = Op::kInvRmsScale,
            .name = "inv_rms_scale",
            .operands_min = 2,
            .operands_max = 2,
            .attrs_index = attrs_index<NormAttrs>(),
            .in_place_operand = 0,
            .infer = infer_inv_rms,
            .cost = inv_rms_cost,
            .reference = run_inv_rms},
  };
  return kDefs;
}

}  // namespace forge::ir::ops

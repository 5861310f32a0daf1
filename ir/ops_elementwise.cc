// Elementwise ops: add, mul, scale, glu, activate, softcap; and split, which deals columns out.

#include <algorithm>
#include <array>
#include <cmath>

#include "ir/ops.h"

namespace forge::ir::ops {
namespace {

/// b is like a, or a vector along a's last dimension.
std::vector<TensorType> infer_binary(std::string_view op, Types operands) {
  const TensorType& a = operands[0];
  want_f32(op, operands, 0, std::max<std::size_t>(a.shape.size(), 1));
  const TensorType vector{DType::kF32, {a.cols()}};
  if (operands[1] != a && operands[1] != vector)
    refuse_operand(op, 1, operands[1], fmt::format("{} or {}, like operand 0", a.text(), vector.text()));
  return {a};
}

std::vector<TensorType> infer_add(const Attrs&, Types operands) {
  return infer_binary("add", operands);
}
std::vector<TensorType> infer_mul(const Attrs&, Types operands) {
  return infer_binary("mul", operands);
}

std::vector<TensorType> infer_scale(const Attrs& attrs, Types operands) {
  if (!std::isfinite(std::get<ScaleAttrs>(attrs).factor)) refuse_attr("scale", "factor", "not finite", "finite");
  want_f32("scale", operands, 0, std::max<std::size_t>(operands[0].shape.size(), 1));
  return {operands[0]};
}

std::vector<TensorType> infer_glu(const Attrs& attrs, Types operands) {
  if (std::get<GluAttrs>(attrs).activation == Activation::kReluSquared)
    refuse_attr("glu", "activation", "relu_squared", "a gate");
  want_rows("glu", operands, 0);
  if (operands[1] != operands[0]) refuse_operand("glu", 1, operands[1], operands[0].text() + ", like operand 0");
  return {operands[0]};
}

std::vector<TensorType> infer_activate(const Attrs& attrs, Types operands) {
  if (std::get<GluAttrs>(attrs).activation == Activation::kClampedSwish)
    refuse_attr("activate", "activation", "clamped_swish", "a function of one value");
  want_f32("activate", operands, 0, 2);
  return {operands[0]};
}

std::vector<TensorType> infer_softcap(const Attrs& attrs, Types operands) {
  const float cap = std::get<SoftcapAttrs>(attrs).cap;
  if (!std::isfinite(cap) || !(cap > 0)) refuse_attr("softcap", "cap", fmt::to_string(cap), "a positive number");
  want_f32("softcap", operands, 0, 2);
  return {operands[0]};
}

std::vector<TensorType> infer_split(const Attrs& attrs, Types operands) {
  const auto& parts = std::get<PartsAttrs>(attrs);
  want_rows("split", operands, 0);
  const std::int64_t total = parts_total("split", parts, parts.sizes.size());
  if (total != operands[0].cols())
    refuse_operand("split", 0, operands[0], fmt::format("as wide as the parts together, {}", total));
  std::vector<TensorType> results;
  for (const std::int64_t size : parts.sizes) results.emplace_back(operands[0]).shape.back() = size;
  return results;
}

/// A vector operand beside a matrix is a weight (a bias, a norm's gain).
Cost binary_cost(const Attrs&, Types operands, Types results, const Bounds& bounds) {
  Cost cost = streaming_cost(operands, results, bounds, 1);
  if (operands[1].shape.size() < operands[0].shape.size()) {
    cost.weight_bytes = operands[1].bytes(bounds);
    cost.activation_bytes -= cost.weight_bytes;
  }
  return cost;
}

Cost scale_cost(const Attrs&, Types operands, Types results, const Bounds& bounds) {
  return streaming_cost(operands, results, bounds, 1);
}
/// exp, divide and two multiplications are counted as 8; so are tanh and the rest of a soft-cap.
Cost activation_cost(const Attrs&, Types operands, Types results, const Bounds& bounds) {
  return streaming_cost(operands, results, bounds, 8);
}
Cost split_cost(const Attrs&, Types operands, Types results, const Bounds& bounds) {
  return streaming_cost(operands, results, bounds, 0);
}

template <class F>
void binary(Operands operands, Tensor& out, F f) {
  const auto& a = operands[0]->f32;
  const auto& b = operands[1]->f32;  // a vector repeats along the rows
  for (std::size_t i = 0; i < out.f32.size(); ++i) out.f32[i] = f(a[i], b[i % b.size()]);
}

void run_add(const Attrs&, Operands operands, Results results, EvalContext&) {
  binary(operands, results[0], [](float a, float b) { return a + b; });
}
void run_mul(const Attrs&, Operands operands, Results results, EvalContext&) {
  binary(operands, results[0], [](float a, float b) { return a * b; });
}
void run_scale(const Attrs& attrs, Operands operands, Results results, EvalContext&) {
  const float factor = std::get<ScaleAttrs>(attrs).factor;
  for (std::size_t i = 0; i < results[0].f32.size(); ++i) results[0].f32[i] = operands[0]->f32[i] * factor;
}

float activate(Activation activation, float x) {
  switch (activation) {
    case Activation::kSilu:
      return x / (1.0f + std::exp(-x));
    case Activation::kClampedSwish:
      break;  // no function of the gate alone
    case Activation::kReluSquared: {
      const float positive = std::max(x, 0.0F);
      return positive * positive;
    }
    case Activation::kGelu: {  // the tanh form (arXiv 1606.08415), which GEGLU models are trained with
      constexpr float kSqrt2OverPi = 0.79788456080286535588f;
      return 0.5f * x * (1.0f + std::tanh(kSqrt2OverPi * (x + 0.044715f * x * x * x)));
    }
  }
  return x;
}

void run_glu(const Attrs& attrs, Operands operands, Results results, EvalContext&) {
  const Activation activation = std::get<GluAttrs>(attrs).activation;
  if (activation == Activation::kClampedSwish) {
    binary(operands, results[0], [](float gate, float up) {
      const float swish = std::min(gate, 7.0F);
      return swish / (1.0F + std::exp(-1.702F * swish)) * (std::clamp(up, -7.0F, 7.0F) + 1.0F);
    });
    return;
  }
  binary(operands, results[0], [=](float gate, float up) { return activate(activation, gate) * up; });
}

void run_activate(const Attrs& attrs, Operands operands, Results results, EvalContext&) {
  const Activation activation = std::get<GluAttrs>(attrs).activation;
  for (std::size_t i = 0; i < results[0].f32.size(); ++i) results[0].f32[i] = activate(activation, operands[0]->f32[i]);
}

void run_softcap(const Attrs& attrs, Operands operands, Results results, EvalContext&) {
  const float cap = std::get<SoftcapAttrs>(attrs).cap;
  for (std::size_t i = 0; i < results[0].f32.size(); ++i)
    results[0].f32[i] = cap * std::tanh(operands[0]->f32[i] / cap);
}

void run_split(const Attrs& attrs, Operands operands, Results results, EvalContext&) {
  const auto& parts = std::get<PartsAttrs>(attrs);
  const auto offsets = part_offsets(parts);
  const Tensor& x = *operands[0];
  for (std::size_t part = 0; part < results.size(); ++part) {
    Tensor& out = results[part];
    for (std::int64_t row = 0; row < out.rows(); ++row)
      for (std::int64_t j = 0; j < out.cols(); ++j)
        out.f32[row * out.cols() + j] = x.f32[row * x.cols() + part_position(parts, offsets, part, j)];
  }
}

}  // namespace

std::span<const OpDef> elementwise_defs() {
  static constexpr std::array kDefs{
      OpDef{.op = Op::kAdd,
            .name = "add",
            .operands_min = 2,
            .operands_max = 2,
            .elementwise = true,
            .in_place_operand = 0,
            .infer = infer_add,
            .cost = binary_cost,
            .reference = run_add},
      OpDef{.op = Op::kMul,
            .name = "mul",
            .operands_min = 2,
            .operands_max = 2,
            .elementwise = true,
            .in_place_operand = 0,
            .infer = infer_mul,
            .cost = binary_cost,
            .reference = run_mul},
      OpDef{.op = Op::kScale,
            .name = "scale",
            .operands_min = 1,
            .operands_max = 1,
            .attrs_index = attrs_index<ScaleAttrs>(),
            .elementwise = true,
            .in_place_operand = 0,
            .infer = infer_scale,
            .cost = scale_cost,
            .reference = run_scale},
      OpDef{.op = Op::kGlu,
            .name = "glu",
            .operands_min = 2,
            .operands_max = 2,
            .attrs_index = attrs_index<GluAttrs>(),
            .elementwise = true,
            .in_place_operand = 0,
            .infer = infer_glu,
            .cost = activation_cost,
            .reference = run_glu},
      OpDef{.op = Op::kActivate,
            .name = "activate",
            .operands_min = 1,
            .operands_max = 1,
            .attrs_index = attrs_index<GluAttrs>(),
            .elementwise = true,
            .in_place_operand = 0,
            .infer = infer_activate,
            .cost = activation_cost,
            .reference = run_activate},
      OpDef{.op = Op::kSoftcap,
            .name = "softcap",
            .operands_min = 1,
            .operands_max = 1,
            .attrs_index = attrs_index<SoftcapAttrs>(),
            .elementwise = true,
            .in_place_operand = 0,
            .infer = infer_softcap,
            .cost = activation_cost,
            .reference = run_softcap},
      OpDef{.op = Op::kSplit,
            .name = "split",
            .operands_min = 1,
            .operands_max = 1,
            .attrs_index = attrs_index<PartsAttrs>(),
            .infer = infer_split,
            .cost = split_cost,
            .reference = run_split},
  };
  return kDefs;
}

}  // namespace forge::ir::ops

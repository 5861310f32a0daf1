// Rotary position embedding (RoPE; RoFormer, arXiv 2104.09864) in three ops:
//   rope_freqs  the rotation frequencies, which depend on the model only and are folded into a constant when they can
//   rope_table  cos and sin of position * frequency for the step's tokens, computed once for all layers
//   rope        the rotation of q or k by that table

#include <algorithm>
#include <array>
#include <cmath>
#include <numbers>

#include "ir/ops.h"

namespace forge::ir::ops {
namespace {

constexpr std::int64_t kDimsMax = 1 << 16;

/// Throws unless the attribute is positive and finite.
void positive(std::string_view op, std::string_view attr, float value) {
  if (!std::isfinite(value) || !(value > 0)) refuse_attr(op, attr, fmt::to_string(value), "a positive number");
}

std::vector<TensorType> infer_freqs(const Attrs& attrs, Types operands) {
  const auto& rope = std::get<RopeFreqsAttrs>(attrs);
  attr_between("rope_freqs", "dims", rope.dims, 2, kDimsMax);
  if (rope.dims % 2 != 0) refuse_attr("rope_freqs", "dims", fmt::to_string(rope.dims), "even");
  positive("rope_freqs", "base", rope.base);
  positive("rope_freqs", "factor", rope.factor);
  if (rope.scaling == RopeScaling::kYarn || operands.size() > 1)
    attr_between("rope_freqs", "original_context", rope.original_context, 1, kCountMax);
  if (rope.scaling == RopeScaling::kYarn) {
    if (!std::isfinite(rope.ext_factor)) refuse_attr("rope_freqs", "ext_factor", "not finite", "finite");
    positive("rope_freqs", "beta_fast", rope.beta_fast);
    positive("rope_freqs", "beta_slow", rope.beta_slow);
  }
  const TensorType freqs{DType::kF32, {rope.dims / 2}};
  for (std::size_t i = 0; i < operands.size(); ++i)
    if (operands[i] != freqs) refuse_operand("rope_freqs", i, operands[i], freqs.text());
  return {freqs};
}

std::vector<TensorType> infer_table(const Attrs& attrs, Types operands) {
  const auto& table = std::get<RopeTableAttrs>(attrs);
  positive("rope_table", "magnitude", table.magnitude);
  if (table.temperature != 0) {
    positive("rope_table", "temperature", table.temperature);
    attr_between("rope_table", "temperature_length", table.temperature_length, 1, kCountMax);
    attr_between("rope_table", "temperature_offset", table.temperature_offset, 0, table.temperature_length);
  } else {
    attr_between("rope_table", "temperature_length", table.temperature_length, 0, 0);
    attr_between("rope_table", "temperature_offset", table.temperature_offset, 0, 0);
  }
  if (operands[0].dtype != DType::kI32 || operands[0].shape.size() != 1)
    refuse_operand("rope_table", 0, operands[0], "i32 with 1 dimension");
  require_f32("rope_table", operands, 1, 1);
  return {{DType::kF32, {operands[0].shape[0], operands[1].shape[0], 2}}};
}

std::vector<TensorType> infer_rope(const Attrs& attrs, Types operands) {
  const auto& rope = std::get<RopeAttrs>(attrs);
  attr_between("rope", "head_dim", rope.head_dim, 2, kDimsMax);
  attr_between("rope", "rotary_dims", rope.rotary_dims, 2, rope.head_dim);
  if (rope.rotary_dims % 2 != 0) refuse_attr("rope", "rotary_dims", fmt::to_string(rope.rotary_dims), "even");
  require_f32("rope", operands, 0, 2);
  if (operands[0].cols() % rope.head_dim != 0)
    refuse_operand("rope", 0, operands[0], fmt::format("whole heads of {} columns", rope.head_dim));
  const TensorType table{DType::kF32, {operands[0].shape[0], rope.rotary_dims / 2, 2}};
  if (operands[1] != table)
    refuse_operand("rope", 1, operands[1], fmt::format("{}: operand 0's rows and rotary_dims/2 angles", table.text()));
  return {operands[0]};
}

/// Factors count as weight bytes, since they come from the model file. Of two lists only one is read.
Cost freqs_cost(const Attrs&, Types operands, Types results, const Bounds& bounds) {
  Cost cost = streaming_cost({}, results, bounds, 8);
  if (!operands.empty()) cost.weight_bytes = operands[0].bytes(bounds);
  return cost;
}
Cost table_cost(const Attrs&, Types operands, Types results, const Bounds& bounds) {
  return streaming_cost(operands, results, bounds, 16);
}
Cost rope_cost(const Attrs&, Types operands, Types results, const Bounds& bounds) {
  return streaming_cost(operands, results, bounds, 3);
}

/// The pair whose rotation completes `turns` full turns over the original context, as a real number (YaRN, arXiv
/// 2309.00071, section 3.2): solves original_context * base^(-2 d / dims) = 2 pi turns for d.
double correction_dim(const RopeFreqsAttrs& rope, double turns) {
  return static_cast<double>(rope.dims) *
         std::log(static_cast<double>(rope.original_context) / (turns * 2 * std::numbers::pi)) /
         (2 * std::log(static_cast<double>(rope.base)));
}

/// YaRN's ramp over the pairs: pairs up to `low` (fast rotation) keep their frequency, pairs from `high` on (slow
/// rotation) are divided by the factor, and pairs in between are interpolated.
struct Ramp {
  double low = 0, high = 0;
};
Ramp ramp_of(const RopeFreqsAttrs& rope) {
  if (rope.scaling != RopeScaling::kYarn) return {};
  return {.low = std::max(0.0, std::floor(correction_dim(rope, rope.beta_fast))),
          .high = std::min(static_cast<double>(rope.dims - 1), std::ceil(correction_dim(rope, rope.beta_slow)))};
}

/// Frequency of pair i: base^(-2i/dims) / factor, then the model's scaling. `factor` is the pair's entry in the factors
/// operand, 1 without one.
double frequency(const RopeFreqsAttrs& rope, const Ramp& ramp, std::int64_t i, double factor) {
  const double freq =
      std::pow(static_cast<double>(rope.base), -2.0 * static_cast<double>(i) / static_cast<double>(rope.dims)) / factor;
  const double stretched = freq / rope.factor;
  if (rope.scaling == RopeScaling::kLinear) return stretched;
  if (rope.scaling != RopeScaling::kYarn) return freq;
  const double place = (static_cast<double>(i) - ramp.low) / std::max(0.001, ramp.high - ramp.low);
  const double mix = (1 - std::clamp(place, 0.0, 1.0)) * rope.ext_factor;
  return stretched * (1 - mix) + freq * mix;
}

/// Of two lists of factors the second is for programs whose sequences can be longer than original_context.
void run_freqs(const Attrs& attrs, Operands operands, Results results, EvalContext& context) {
  const auto& rope = std::get<RopeFreqsAttrs>(attrs);
  const Ramp ramp = ramp_of(rope);
  const std::size_t list = operands.size() > 1 && context.positions_max > rope.original_context ? 1 : 0;
  for (std::int64_t i = 0; i < rope.dims / 2; ++i)
    results[0].f32[i] = static_cast<float>(frequency(rope, ramp, i, operands.empty() ? 1.0 : operands[list]->f32[i]));
}

/// Angles are computed in f64, because the rounding error of position * freq in f32 grows with the position.
void run_table(const Attrs& attrs, Operands operands, Results results, EvalContext&) {
  const auto& table = std::get<RopeTableAttrs>(attrs);
  const auto& freqs = operands[1]->f32;
  auto out = results[0].f32.begin();
  for (const std::int32_t position : operands[0]->i32) {
    double magnitude = table.magnitude;
    if (table.temperature != 0) {
      const std::int64_t lengths = (position + table.temperature_offset) / table.temperature_length;
      magnitude *= 1 + table.temperature * std::log(1.0 + static_cast<double>(lengths));
    }
    for (const float freq : freqs) {
      const double angle = static_cast<double>(position) * freq;
      *out++ = static_cast<float>(std::cos(angle) * magnitude);
      *out++ = static_cast<float>(std::sin(angle) * magnitude);
    }
  }
}

/// (a, b) -> (a cos - b sin, a sin + b cos) for each pair of columns (RopeMode); columns from rotary_dims on are
/// copied.
void run_rope(const Attrs& attrs, Operands operands, Results results, EvalContext&) {
  const auto& rope = std::get<RopeAttrs>(attrs);
  const Tensor& x = *operands[0];
  auto& out = results[0].f32;
  out = x.f32;
  const std::int64_t half = rope.rotary_dims / 2;
  const bool pairs = rope.mode == RopeMode::kPairs;
  for (std::int64_t row = 0; row < x.rows(); ++row)
    for (std::int64_t head = 0; head < x.cols(); head += rope.head_dim)
      for (std::int64_t i = 0; i < half; ++i) {
        const std::int64_t base = row * x.cols() + head;
        const std::int64_t first = base + (pairs ? 2 * i : i);
        const std::int64_t second = pairs ? first + 1 : first + half;
        const float cosine = operands[1]->f32[(row * half + i) * 2];
        const float sine = operands[1]->f32[(row * half + i) * 2 + 1];
        out[first] = x.f32[first] * cosine - x.f32[second] * sine;
        out[second] = x.f32[first] * sine + x.f32[second] * cosine;
      }
}

}  // namespace

std::span<const OpDef> rope_defs() {
  static constexpr std::array kDefs{
      OpDef{.op = Op::kRopeFreqs,
            .name = "rope_freqs",
            .operands_min = 0,
            .operands_max = 2,
            .attrs_index = attrs_index<RopeFreqsAttrs>(),
            .infer = infer_freqs,
            .cost = freqs_cost,
            .reference = run_freqs},
      OpDef{.op = Op::kRopeTable,
            .name = "rope_table",
            .operands_min = 2,
            .operands_max = 2,
            .attrs_index = attrs_index<RopeTableAttrs>(),
            .infer = infer_table,
            .cost = table_cost,
            .reference = run_table},
      OpDef{.op = Op::kRope,
            .name = "rope",
            .operands_min = 2,
            .operands_max = 2,
            .attrs_index = attrs_index<RopeAttrs>(),
            .in_place_operand = 0,
            .infer = infer_rope,
            .cost = rope_cost,
            .reference = run_rope},
  };
  return kDefs;
}

}  // namespace forge::ir::ops

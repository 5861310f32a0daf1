// self_attention: attention of encoders (BERT, arXiv 1810.04805), which is not causal and has no cache.

#include <algorithm>
#include <array>
#include <cmath>

#include "ir/ops.h"

namespace forge::ir::ops {
namespace {

constexpr std::string_view kName = "self_attention";

std::vector<TensorType> infer_self_attention(const Attrs& attrs, Types operands) {
  constexpr std::int64_t kMax = 1 << 16;
  const auto& a = std::get<SelfAttentionAttrs>(attrs);
  attr_between(kName, "heads", a.heads, 1, kMax);
  attr_between(kName, "kv_heads", a.kv_heads, 1, a.heads);
  attr_between(kName, "head_dim", a.head_dim, 1, kMax);
  attr_between(kName, "window", a.window, 0, kCountMax);
  if (a.heads % a.kv_heads != 0)
    refuse_attr(kName, "heads", fmt::to_string(a.heads), fmt::format("a multiple of kv_heads = {}", a.kv_heads));
  if (!std::isfinite(a.alibi) || a.alibi < 0) refuse_attr(kName, "alibi", fmt::to_string(a.alibi), "0 or more");
  if (!std::isfinite(a.scale)) refuse_attr(kName, "scale", "not finite", "finite");
  for (std::size_t i = 0; i < 3; ++i) {
    require_f32(kName, operands, i, 2);
    const TensorType wanted{DType::kF32, {operands[0].shape[0], (i == 0 ? a.heads : a.kv_heads) * a.head_dim}};
    if (operands[i] != wanted) refuse_operand(kName, i, operands[i], wanted.text());
  }
  require_i32(kName, operands, 3, {operands[0].shape[0]});
  return {operands[0]};
}

/// The FLOPs are those of one sequence that fills the step.
Cost self_attention_cost(const Attrs& attrs, Types operands, Types results, const Bounds& bounds) {
  const auto& a = std::get<SelfAttentionAttrs>(attrs);
  Cost cost = streaming_cost(operands.first(3), results, bounds, 0);
  cost.flops = 4 * bounds.tokens * bounds.tokens * a.heads * a.head_dim;
  return cost;
}

void run_self_attention(const Attrs& attrs, Operands operands, Results results, EvalContext&) {
  const auto& a = std::get<SelfAttentionAttrs>(attrs);
  const auto& sequence = operands[3]->i32;
  const auto head_of = [&](std::size_t operand, std::size_t t, std::int64_t head) {
    const Tensor& x = *operands[operand];
    return x.f32.data() + static_cast<std::int64_t>(t) * x.cols() + head * a.head_dim;
  };
  const auto attend = [&](std::size_t t, std::int64_t head) {
    const std::int64_t kv_head = head / (a.heads / a.kv_heads);
    const double slope = a.alibi > 0 ? alibi_slope(a.alibi, a.heads, head) : 0;
    std::vector<double> scores;
    std::vector<std::size_t> seen;
    for (std::size_t j = 0; j < sequence.size(); ++j) {
      const auto distance = static_cast<std::int64_t>(j > t ? j - t : t - j);
      if (sequence[j] != sequence[t] || (a.window > 0 && distance > a.window / 2)) continue;
      const float *q = head_of(0, t, head), *k = head_of(1, j, kv_head);
      double dot = 0;
      for (std::int64_t i = 0; i < a.head_dim; ++i) dot += static_cast<double>(q[i]) * k[i];
      scores.push_back(dot * a.scale - slope * static_cast<double>(distance));
      seen.push_back(j);
    }
    const double top = *std::ranges::max_element(scores);
    double total = 0;
    for (double& score : scores) total += score = std::exp(score - top);
    float* out = results[0].f32.data() + static_cast<std::int64_t>(t) * results[0].cols() + head * a.head_dim;
    for (std::int64_t i = 0; i < a.head_dim; ++i) {
      double sum = 0;
      for (std::size_t j = 0; j < seen.size(); ++j) sum += scores[j] * head_of(2, seen[j], kv_head)[i];
      out[i] = static_cast<float>(sum / total);
    }
  };
  for (std::size_t t = 0; t < sequence.size(); ++t)
    for (std::int64_t head = 0; head < a.heads; ++head) attend(t, head);
}

}  // namespace

std::span<const OpDef> self_attention_defs() {
  static constexpr std::array kDefs{OpDef{.op = Op::kSelfAttention,
                                          .name = kName,
                                          .operands_min = 4,
                                          .operands_max = 4,
                                          .attrs_index = attrs_index<SelfAttentionAttrs>(),
                                          .infer = infer_self_attention,
                                          .cost = self_attention_cost,
                                          .reference = run_self_attention}};
  return kDefs;
}

}  // namespace forge::ir::ops

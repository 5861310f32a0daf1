#include "loader/arch/experts.h"

#include <fmt/format.h>

#include "support/error.h"

namespace forge::loader {
namespace {

constexpr std::int64_t kExpertsMax = 1024;  // what back-ends keep room for

/// Products with the chosen experts' matrices "<stem>.weight" (+ their rows of "<stem>.bias").
ir::Value expert_linear(DecoderBuilder& model, ir::Value x, const std::string& stem, ir::Value chosen,
                        std::int64_t count, std::int64_t n, std::int64_t k) {
  const ir::Value y = model.ir().expert_matmul(x, model.weight(stem + ".weight", n, k, count), chosen);
  const std::string bias = stem + ".bias";
  if (!model.has(bias)) return y;
  const auto& tensor = model.tensor(bias);
  if (tensor.rank != 2 || tensor.cols() != n || tensor.rows() != count)
    contradiction("a tensor has the wrong shape",
                  fmt::format("{} where the metadata wants [{}, {}]", tensor.describe(), count, n));
  if (tensor.dtype != DType::kF32)
    throw Error(ErrorCode::kModelUnsupported, "a bias is not f32", tensor.describe(), "convert the model again");
  return model.ir().expert_add(y, model.ir().weight(bias, DType::kF32, {count, n, 1}), chosen);
}

}  // namespace

ExpertParams expert_params(const DecoderBuilder& model) {
  const auto& file = model.file();
  ExpertParams p{.count = file.get<std::int64_t>(model.key("expert_count"), 0)};
  if (p.count == 0) return p;
  if (p.count < 0) contradiction("the number of experts is out of range", fmt::format("{}", p.count));
  model.refuse_if(p.count > kExpertsMax, fmt::format("{} experts (at most {})", p.count, kExpertsMax));
  p.used = file.require<std::int64_t>(model.key("expert_used_count"));
  if (p.used < 1 || p.used > p.count)
    contradiction("a token's experts are not among the model's", fmt::format("{} of {}", p.used, p.count));
  p.width = file.get<std::int64_t>(model.key("expert_feed_forward_length"), model.params().ffn_width);
  if (p.width < 1) contradiction("the experts' width is out of range", fmt::format("{}", p.width));
  model.refuse_if(!model.has("blk.0.ffn_gate_exps.weight") && model.has("blk.0.ffn_gate.0.weight"),
                  "one tensor for each expert (files from before April 2024; convert the model again)");
  return p;
}

ir::Value experts_ffn(DecoderBuilder& model, ir::Value x, std::int64_t layer, const ExpertParams& experts,
                      ir::RouteAttrs route, ir::Activation activation) {
  const std::int64_t width = model.params().width;
  const auto stem = fmt::format("blk.{}.", layer);
  const auto bias = stem + "exp_probs_b.bias";
  route.used = experts.used;
  const auto [chosen, shares] = model.ir().route(model.linear(x, stem + "ffn_gate_inp", experts.count, width), route,
                                                 model.has(bias) ? model.weight(bias, experts.count) : ir::Value{});
  const auto linear = [&](ir::Value rows, const char* name, std::int64_t n, std::int64_t k) {
    return expert_linear(model, rows, stem + name, chosen, experts.count, n, k);
  };
  const ir::Value gate = linear(x, "ffn_gate_exps", experts.width, width);
  const ir::Value up = linear(x, "ffn_up_exps", experts.width, width);
  const ir::Value hidden = model.ir().glu(gate, up, activation);
  return model.ir().expert_sum(linear(hidden, "ffn_down_exps", width, experts.width), shares);
}

}  // namespace forge::loader

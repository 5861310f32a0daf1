// kimi-linear: Kimi Linear. Kimi Delta Attention (KDA), a delta rule with a decay for each key channel, in the layers
// without KV heads; multi-head latent attention without rotation in the others. Dense first layers, then mixture of
// experts with a shared expert. Source: arXiv 2510.26692.

#include <fmt/format.h>

#include <cmath>

#include "loader/arch/experts.h"
#include "loader/arch/latent.h"
#include "loader/arch/recurrent.h"
#include "loader/arch/registry.h"

namespace forge::loader {
namespace {

/// Kimi Delta Attention of H heads of d columns. Tensors of layer N, all "blk.N.<name>":
///   attn_q, attn_k, attn_v [H d, width]; ssm_conv1d_{q,k,v} [H d, taps]
///   ssm_f_a [d, width], ssm_f_b [H d, d], ssm_dt.bias [H d], ssm_a [H]
///                          log decay = ssm_a * softplus(ssm_f_b ssm_f_a x + bias)
///   ssm_beta [H, width];   ssm_g_a [d, width], ssm_g_b [H d, d]: the output's gate;   ssm_norm [d];   attn_output
class KimiDeltaAttention {
 public:
  explicit KimiDeltaAttention(DecoderBuilder& model)
      : model_(model),
        heads_(model.params().heads),
        dim_(positive(model.file(), model.key("kda.head_dim"))),
        taps_(ssm_param(model, "conv_kernel")) {
    // So many operands can be concatenated (each_head).
    model.refuse_if(dim_ > kDimMax, fmt::format("KDA heads of {} columns (at most {})", dim_, kDimMax));
  }

  ir::Value operator()(ir::Value x, std::int64_t layer) {
    auto& ir = model_.ir();
    const auto at = [&](std::string_view stem) { return DecoderBuilder::at(layer, stem); };
    const std::int64_t width = model_.params().width, columns = heads_ * dim_;
    const float eps = model_.params().norm_eps;
    const auto project = [&](char which) {
      const ir::Value rows = model_.linear(x, at(fmt::format("attn_{}", which)), columns, width);
      const auto stem = at(fmt::format("ssm_conv1d_{}", which));
      return ir.activate(short_conv(model_, rows, stem, columns, taps_), ir::Activation::kSilu);
    };
    const auto low_rank = [&](const char* down, const char* up) {
      return model_.linear(model_.linear(x, at(down), dim_, width), at(up), columns, dim_);
    };
    const ir::Value q = project('q'), k = project('k'), v = project('v');
    const ir::Value rate =
        ir.softplus(ir.add(low_rank("ssm_f_a", "ssm_f_b"), model_.vector(at("ssm_dt.bias"), columns)));
    const ir::Value decay = ir.mul(rate, each_head(at("ssm_a")));
    const ir::Value beta = ir.sigmoid(model_.linear(x, at("ssm_beta"), heads_, width));
    const ir::Value y = model_.update_state(columns * dim_, [&](ir::Value state, std::int64_t index) {
      return ir.delta_rule(q, k, v, decay, beta, state,
                           {.layer = index,
                            .heads = heads_,
                            .key_heads = heads_,
                            .key_dim = dim_,
                            .value_dim = dim_,
                            .scale = 1.0F / std::sqrt(static_cast<float>(dim_)),
                            .norm_eps = eps});
    });
    const ir::Value normed = ir.rms_norm(y, model_.vector(at("ssm_norm.weight"), dim_), eps);
    return model_.linear(ir.mul(normed, ir.sigmoid(low_rank("ssm_g_a", "ssm_g_b"))), at("attn_output"), width, columns);
  }

 private:
  static constexpr std::int64_t kDimMax = 255;

  /// The numbers of the heads, each for all columns of its head: [heads * dim]. They are repeated when the weights are
  /// loaded, as `dim` equal vectors that are interleaved element by element.
  ir::Value each_head(const std::string& name) {
    auto& ir = model_.ir();
    const auto times = static_cast<std::size_t>(dim_);
    const std::vector<ir::Value> equal(times, model_.vector(name, heads_));
    return {ir.graph().add(ir::Op::kConcatRows, equal,
                           ir::PartsAttrs{std::vector<std::int64_t>(times, heads_), /*unit=*/1}, ir.layer()),
            0};
  }

  DecoderBuilder& model_;
  std::int64_t heads_ = 0, dim_ = 0, taps_ = 0;
};

}  // namespace

PortableModel build_kimi_linear(const Gguf& file) {
  DecoderBuilder model(file);
  LatentAttention attention(model, {}, /*use_rope=*/false);
  KimiDeltaAttention delta(model);
  auto route = read_routing(model, ir::RoutingNormalization::kChosen);
  route.share = ir::RoutingNormalization::kChosen;  // whatever the file says
  const auto ffn = dense_then_moe_ffn(model, route);
  const auto mixer = [&](ir::Value rows, std::int64_t layer) {
    return is_recurrent(model, layer) ? delta(rows, layer) : attention(rows, layer);
  };
  return model.finish(model.each_layer(
      model.embed(), [&](ir::Value x, std::int64_t layer) { return model.mixer_layer(x, layer, mixer, {}, ffn); }));
}

}  // namespace forge::loader

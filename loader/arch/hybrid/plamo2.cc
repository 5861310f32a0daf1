// plamo2: PLaMo 2. Mamba with heads, as in Mamba-2 with one group, in the layers without KV heads: dt, B and C come
// from a projection of the convolved rows and are normed. Attention with QK-norm (a weight row for each head) and RoPE
// in kHalves mode in the others. Norms before and after each block; some of their tensors have names without ".weight".
// Source: arXiv 2509.04897.

#include <fmt/format.h>

#include <algorithm>

#include "loader/arch/recurrent.h"
#include "loader/arch/registry.h"

namespace forge::loader {
namespace {

/// Tensors of layer N, all "blk.N.<name>", with I inner columns in M heads of P and N states:
///   ssm_in [2 I, width]         for each head its P columns of the gate z, then its P of x
///   ssm_conv1d [I, taps]        over x
///   ssm_x [2 N + D, I]          B, C and dt; ssm_b_norm, ssm_c_norm [N] and ssm_dt_norm [D]
///   ssm_dt [M, D] and its bias; ssm_a, ssm_d [M]; ssm_out [width, I]
class PlamoMamba {
 public:
  explicit PlamoMamba(DecoderBuilder& model)
      : model_(model),
        inner_(ssm_param(model, "inner_size")),
        states_(ssm_param(model, "state_size")),
        taps_(ssm_param(model, "conv_kernel")),
        heads_(ssm_param(model, "time_step_rank")),
        rank_(std::max<std::int64_t>(64, model.params().width / 16)) {
    if (inner_ % heads_ != 0)
      contradiction("the inner size is not a multiple of the state space's heads",
                    fmt::format("{} and {}", inner_, heads_));
  }

  ir::Value operator()(ir::Value x, std::int64_t layer) {
    auto& ir = model_.ir();
    const auto at = [&](const char* stem) { return DecoderBuilder::at(layer, stem); };
    const std::int64_t width = model_.params().width, dim = inner_ / heads_;
    const ir::Value both = model_.linear(x, at("ssm_in"), 2 * inner_, width);
    const auto half = [&](std::int64_t begin) {
      const ir::Builder::Piece piece[] = {{.x = both, .begin = begin, .stride = 2 * dim, .width = dim}};
      return ir.arrange(heads_, piece);
    };
    const ir::Value z = half(0);
    const ir::Value u =
        ir.activate(short_conv(model_, half(dim), at("ssm_conv1d"), inner_, taps_), ir::Activation::kSilu);
    const auto parts = ir.split(model_.linear(u, at("ssm_x"), 2 * states_ + rank_, inner_), {states_, states_, rank_});
    const auto norm = [&](ir::Value rows, const char* stem, std::int64_t n) {
      return ir.rms_norm(rows, model_.vector(at(stem), n), model_.params().norm_eps);
    };
    const ir::Value b = norm(parts[0], "ssm_b_norm", states_), c = norm(parts[1], "ssm_c_norm", states_);
    const ir::Value dt = ir.softplus(model_.linear(norm(parts[2], "ssm_dt_norm", rank_), at("ssm_dt"), heads_, rank_));
    const ir::Value a = model_.vector(at("ssm_a"), heads_), d = model_.vector(at("ssm_d"), heads_);
    ir::Value y;
    model_.update_state(inner_ * states_, [&](ir::Value state, std::int64_t index) {
      const auto scan =
          ir.selective_scan({u, dt, a, b, c, d}, state,
                            {.layer = index, .heads = heads_, .head_dim = dim, .state_dim = states_, .groups = 1});
      y = scan.y;
      return scan.state;
    });
    return model_.linear(ir.glu(z, y, ir::Activation::kSilu), at("ssm_out"), width, inner_);
  }

 private:
  DecoderBuilder& model_;
  std::int64_t inner_ = 0, states_ = 0, taps_ = 0, heads_ = 0, rank_ = 0;
};

}  // namespace

PortableModel build_plamo2(const Gguf& file) {
  DecoderBuilder model(file);
  auto spec = model.attention_spec(ir::RopeMode::kHalves);
  spec.qk_norm = QkNorm::kEachHead;
  const auto recurrent = recurrent_layers(model);
  PlamoMamba mamba(model);
  const auto& p = model.params();
  const auto after = [&](ir::Value x, const std::string& name) {
    return model.ir().rms_norm(x, model.vector(name, p.width), p.norm_eps);
  };
  return model.finish(model.each_layer(model.embed(), [&](ir::Value x, std::int64_t layer) {
    const ir::Value rows = model.norm(x, model.at(layer, "attn_norm"));
    const ir::Value mixed =
        recurrent[static_cast<std::size_t>(layer)] ? mamba(rows, layer) : model.attention(rows, layer, spec);
    x = model.residual(x, after(mixed, model.at(layer, "post_attention_norm")));
    const ir::Value out = model.gated_ffn(model.norm(x, model.at(layer, "ffn_norm")), layer, ir::Activation::kSilu);
    return model.residual(x, after(out, model.at(layer, "post_ffw_norm")));
  }));
}

}  // namespace forge::loader

// plamo2: PLaMo 2. Mamba-2's scan with one group in the layers without KV heads, attention with QK-norm in the others,
// norms before and after each block. Unlike Mamba-2, B, C and dt are projected from the convolved rows and normalised,
// and the input projection has z and x head by head. Source: arXiv 2509.04897.

#include <fmt/format.h>

#include "loader/arch/recurrent.h"
#include "loader/arch/registry.h"

namespace forge::loader {
namespace {

/// RMSNorm over runs of `dim` columns with a weight that is named without ".weight".
ir::Value bare_norm(DecoderBuilder& model, ir::Value x, const std::string& name, std::int64_t dim) {
  return model.ir().rms_norm(x, model.vector(name, dim), model.params().norm_eps);
}

/// The mixer of layers without attention. Tensors of layer N, all "blk.N.<name>", with M heads of P columns:
///   ssm_in     [M (P + P), width]     of each head the gate z, then x
///   ssm_conv1d [M P, taps]            over x
///   ssm_x      [2 states + R, M P]    B, C and dt of the convolved x; the file's dims give R
///   ssm_b_norm, ssm_c_norm, ssm_dt_norm
///   ssm_dt     [M, R], ssm_dt.bias [M]
///   ssm_a, ssm_d [M]
///   ssm_out    [width, M P]
class PlamoMamba {
 public:
  explicit PlamoMamba(DecoderBuilder& model)
      : model_(model),
        inner_(ssm_param(model, "inner_size")),
        states_(ssm_param(model, "state_size")),
        taps_(ssm_param(model, "conv_kernel")),
        heads_(ssm_param(model, "time_step_rank")) {
    if (inner_ % heads_ != 0)
      contradiction("the inner size of the state space is not a multiple of its heads",
                    fmt::format("{} and {}", inner_, heads_));
  }

  ir::Value operator()(ir::Value rows, std::int64_t layer) {
    auto& ir = model_.ir();
    const auto at = [&](const char* stem) { return DecoderBuilder::at(layer, stem); };
    const std::int64_t width = model_.params().width, dim = inner_ / heads_;
    const ir::Value both = model_.linear(rows, at("ssm_in"), 2 * inner_, width);
    const ir::Builder::Piece gates[] = {{.x = both, .begin = 0, .stride = 2 * dim, .width = dim}};
    const ir::Builder::Piece inputs[] = {{.x = both, .begin = dim, .stride = 2 * dim, .width = dim}};
    const ir::Value x = ir.activate(short_conv(model_, ir.arrange(heads_, inputs), at("ssm_conv1d"), inner_, taps_),
                                    ir::Activation::kSilu);
    const std::int64_t rank = model_.tensor(at("ssm_dt.weight")).cols();
    const auto parts = ir.split(model_.linear(x, at("ssm_x"), 2 * states_ + rank, inner_), {states_, states_, rank});
    const ir::Value b = bare_norm(model_, parts[0], at("ssm_b_norm"), states_),
                    c = bare_norm(model_, parts[1], at("ssm_c_norm"), states_);
    const ir::Value dt =
        ir.softplus(model_.linear(bare_norm(model_, parts[2], at("ssm_dt_norm"), rank), at("ssm_dt"), heads_, rank));
    const ir::Value a = model_.vector(at("ssm_a"), heads_), d = model_.vector(at("ssm_d"), heads_);
    const ir::Value y = model_.update_state(inner_ * states_, [&](ir::Value state, std::int64_t index) {
      return ir.selective_scan({x, dt, a, b, c, d}, state,
                               {.layer = index, .heads = heads_, .head_dim = dim, .state_dim = states_, .groups = 1});
    });
    return model_.linear(ir.glu(ir.arrange(heads_, gates), y, ir::Activation::kSilu), at("ssm_out"), width, inner_);
  }

 private:
  DecoderBuilder& model_;
  std::int64_t inner_ = 0, states_ = 0, taps_ = 0, heads_ = 0;
};

}  // namespace

PortableModel build_plamo2(const Gguf& file) {
  DecoderBuilder model(file);
  auto spec = model.attention_spec(ir::RopeMode::kHalves);
  spec.qk_norm = QkNorm::kEachHead;
  PlamoMamba mamba(model);
  const std::int64_t width = model.params().width;
  return model.finish(model.each_layer(model.embed(), [&](ir::Value x, std::int64_t layer) {
    const auto at = [&](const char* stem) { return DecoderBuilder::at(layer, stem); };
    const ir::Value rows = model.norm(x, at("attn_norm"));
    const ir::Value mixed = is_recurrent(model, layer) ? mamba(rows, layer) : model.attention(rows, layer, spec);
    x = model.residual(x, bare_norm(model, mixed, at("post_attention_norm"), width));
    const ir::Value out = model.gated_ffn(model.norm(x, at("ffn_norm")), layer, ir::Activation::kSilu);
    return model.residual(x, bare_norm(model, out, at("post_ffw_norm"), width));
  }));
}

}  // namespace forge::loader

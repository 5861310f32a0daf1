// rwkv7: RWKV-7 "Goose". No attention: in each layer a time mix, whose state a generalised delta rule changes, and a
// channel mix with squared ReLU. Both mix a token's normed row with that of the token before it (token shift).
// LayerNorm with bias throughout, also on the embedding. Source: arXiv 2503.14456.

#include <fmt/format.h>

#include <cmath>

#include "loader/arch/recurrent.h"
#include "loader/arch/registry.h"

namespace forge::loader {
namespace {

class Rwkv7 {
 public:
  explicit Rwkv7(DecoderBuilder& model)
      : model_(model),
        ir_(model.ir()),
        width_(model.params().width),
        dim_(positive(model.file(), model.key("wkv.head_size"))),
        heads_(width_ / dim_),
        decay_rank_(rank("decay")),
        rate_rank_(rank("iclr")),
        value_rank_(rank("value_residual_mix")),
        gate_rank_(rank("gate")) {
    if (width_ % dim_ != 0)
      contradiction("the width is not a multiple of the head size", fmt::format("{} and {}", width_, dim_));
  }

  /// Time mix on normed rows x.
  ir::Value time_mix(ir::Value x, std::int64_t layer) {
    layer_ = layer;
    const ir::Value shift = token_shift(x), lerps = model_.reshaped(at("time_mix_lerp_fused.weight"), {6 * width_});
    const auto mixed = [&](std::int64_t which) {
      return ir_.add(x, ir_.mul(shift, ir_.slice_rows(lerps, which * width_, width_)));
    };
    const ir::Value x_v = mixed(3);
    const ir::Value r = linear(mixed(0), "time_mix_receptance"), key = linear(mixed(2), "time_mix_key");
    const ir::Value v = residual_value(linear(x_v, "time_mix_value"), x_v);
    const ir::Value decay = ir_.sigmoid(low_rank(tanh(low(mixed(1), 'w', decay_rank_)), 'w', decay_rank_));
    const ir::Value rate = ir_.sigmoid(low_rank(low(mixed(4), 'a', rate_rank_), 'a', rate_rank_));
    const ir::Value gate =
        model_.linear(ir_.sigmoid(low(mixed(5), 'g', gate_rank_)), at("time_mix_g2"), width_, gate_rank_);
    const ir::Value removed = unit_heads(ir_.mul(key, vector("time_mix_k_k")));
    // k (1 + (rate - 1) k_a)
    const ir::Value scaled = ir_.mul(key, vector("time_mix_k_a"));
    const ir::Value k = ir_.add(key, ir_.add(ir_.mul(scaled, rate), ir_.scale(scaled, -1)));
    const ir::Value y = model_.update_state(width_ * dim_, [&](ir::Value state, std::int64_t index) {
      return ir_.rwkv7(
          {r, ir_.exponential(ir_.scale(decay, -kDecay)), k, v, ir_.scale(removed, -1), ir_.mul(removed, rate)}, state,
          {.layer = index, .heads = heads_, .head_dim = dim_});
    });
    const ir::Shape heads{heads_, dim_};
    const ir::Value normed = ir_.layer_norm(y, model_.reshaped(at("time_mix_ln.weight"), heads),
                                            model_.reshaped(at("time_mix_ln.bias"), heads), kHeadEps);
    return linear(ir_.mul(ir_.add(normed, bonus(ir_.mul(r, k), v)), gate), "time_mix_output");
  }

  /// Channel mix on normed rows x.
  ir::Value channel_mix(ir::Value x, std::int64_t layer) {
    layer_ = layer;
    const std::int64_t hidden = model_.shape(layer).ffn_width;
    const ir::Value mixed = ir_.add(x, ir_.mul(token_shift(x), vector("channel_mix_lerp_k")));
    const ir::Value key =
        ir_.activate(model_.linear(mixed, at("channel_mix_key"), hidden, width_), ir::Activation::kReluSquared);
    return model_.linear(key, at("channel_mix_value"), width_, hidden);
  }

 private:
  static constexpr float kDecay = 0.606531F;  ///< e^-1/2: the decay of a step is above e^-kDecay
  static constexpr float kHeadEps = 64e-5F;   ///< of the norm of the heads

  [[nodiscard]] std::int64_t rank(std::string_view of) const {
    return positive(model_.file(), model_.key(fmt::format("attention.{}_lora_rank", of)));
  }
  [[nodiscard]] std::string at(std::string_view stem) const { return DecoderBuilder::at(layer_, stem); }
  ir::Value vector(std::string_view stem) { return model_.vector(at(stem) + ".weight", width_); }
  ir::Value linear(ir::Value x, const char* stem) { return model_.linear(x, at(stem), width_, width_); }

  /// The row of the token before minus the token's own: a convolution with two constant taps.
  ir::Value token_shift(ir::Value x) {
    std::vector<float> taps;
    for (std::int64_t i = 0; i < width_; ++i) taps.insert(taps.end(), {1.0F, -1.0F});
    const ir::Value kernel = ir_.constant(std::move(taps), {width_, 2});
    return model_.update_state(
        width_, [&](ir::Value state, std::int64_t index) { return ir_.short_conv(x, kernel, {}, state, index); });
  }

  /// time_mix_<which>1 x, [rank]; and time_mix_<which>0 + time_mix_<which>2 x, [width].
  ir::Value low(ir::Value x, char which, std::int64_t rank) {
    return model_.linear(x, at(fmt::format("time_mix_{}1", which)), rank, width_);
  }
  ir::Value low_rank(ir::Value x, char which, std::int64_t rank) {
    const ir::Value y = model_.linear(x, at(fmt::format("time_mix_{}2", which)), width_, rank);
    return ir_.add(y, vector(fmt::format("time_mix_{}0", which)));
  }
  ir::Value tanh(ir::Value x) { return ir_.softcap(x, 1); }  // a soft-cap of 1 is tanh
  /// Each head divided by its length; a length of 0 is taken as 1e-12.
  ir::Value unit_heads(ir::Value x) {
    const auto dim = static_cast<float>(dim_);
    const std::vector<float> scale(static_cast<std::size_t>(dim_), 1 / std::sqrt(dim));
    return ir_.rms_norm(x, ir_.constant(scale, {dim_}), 1e-24F / dim);
  }
  /// From the second layer on v moves towards the first layer's v, which is kept.
  ir::Value residual_value(ir::Value v, ir::Value x) {
    if (layer_ == 0) {
      for (const char* unused : {"time_mix_v0.weight", "time_mix_v1.weight", "time_mix_v2.weight"})
        if (model_.has(at(unused))) (void)model_.tensor(at(unused));
      return first_value_ = v;
    }
    const ir::Value mix = ir_.sigmoid(low_rank(low(x, 'v', value_rank_), 'v', value_rank_));
    return ir_.add(v, ir_.mul(ir_.add(first_value_, ir_.scale(v, -1)), mix));
  }
  /// v, each head times the sum over the head of rk * r_k.
  ir::Value bonus(ir::Value rk, ir::Value v) {
    const ir::Builder::Piece head[] = {{.x = rk, .begin = 0, .stride = dim_, .width = dim_}};
    const ir::Value sums = ir_.batched_matmul(ir_.arrange(heads_, head, /*slots=*/true),
                                              model_.reshaped(at("time_mix_r_k.weight"), {heads_, 1, dim_}));
    return ir_.mul(v, model_.repeat_columns(sums, heads_, dim_));
  }

  DecoderBuilder& model_;
  ir::Builder& ir_;
  std::int64_t width_ = 0, dim_ = 0, heads_ = 0, decay_rank_ = 0, rate_rank_ = 0, value_rank_ = 0, gate_rank_ = 0;
  std::int64_t layer_ = 0;
  ir::Value first_value_;
};

}  // namespace

PortableModel build_rwkv7(const Gguf& file) {
  DecoderBuilder model(file, NormKind::kLayer);
  Rwkv7 mix(model);
  return model.finish(
      model.each_layer(model.norm(model.embed(), "token_embd_norm"), [&](ir::Value x, std::int64_t layer) {
        x = model.residual(x, mix.time_mix(model.norm(x, model.at(layer, "attn_norm")), layer));
        return model.residual(x, mix.channel_mix(model.norm(x, model.at(layer, "attn_norm_2")), layer));
      }));
}

}  // namespace forge::loader

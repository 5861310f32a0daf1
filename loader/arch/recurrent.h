#pragma once
// Mixers with recurrent state, which take the place of attention in a layer. Each takes the layer's normalised rows and
// returns what is added to the residual stream. Errors: kModelFormat for missing or misshapen tensors and metadata.

#include "loader/arch/blocks.h"

namespace forge::loader {

/// True for a layer without attention: its attention.head_count_kv is 0.
inline bool is_recurrent(const DecoderBuilder& model, std::int64_t layer) {
  return model.shape(layer).kv_heads == 0;
}

/// Causal convolution over the last taps of each of `channels` columns, with "<stem>.weight" [channels, taps] and
/// "<stem>.bias" if the file has it. Keeps the last taps - 1 rows of x.
ir::Value short_conv(DecoderBuilder& model, ir::Value x, const std::string& stem, std::int64_t channels,
                     std::int64_t taps);

/// Gated delta net of Qwen3-Next and Qwen 3.5 (arXiv 2412.06464), with its hyper-parameters from "ssm.*". Tensors of
/// layer N, all "blk.N.<name>":
///   attn_qkv   [2 K d + V d, width]   q, k and v of K key heads and V value heads of d columns
///   attn_gate  [V d, width]           the output's gate
///   ssm_beta, ssm_alpha [V, width], or ssm_ba [2 V, width], for each key head its betas and then its alphas
///   ssm_conv1d [2 K d + V d, taps]    over q, k and v
///   ssm_dt.bias, ssm_a [V]            decay = exp(ssm_a softplus(alpha + bias))
///   ssm_norm   [d]                    over each head of the output
///   ssm_out    [width, V d]
class GatedDeltaNet {
 public:
  /// Reads the hyper-parameters. `model` must outlive it.
  explicit GatedDeltaNet(DecoderBuilder& model);
  ir::Value operator()(ir::Value x, std::int64_t layer);

 private:
  DecoderBuilder& model_;
  std::int64_t key_heads_ = 0, heads_ = 0, dim_ = 0, taps_ = 0;
};

/// Selective state space of Mamba-1 (arXiv 2312.00752) and Jamba. With "ssm.dt_b_c_rms" (Falcon-Mamba), or with
/// ssm_dt_norm, ssm_b_norm and ssm_c_norm (Jamba), dt, B and C are normalised.
class Mamba {
 public:
  explicit Mamba(DecoderBuilder& model);
  ir::Value operator()(ir::Value x, std::int64_t layer);

 private:
  DecoderBuilder& model_;
  std::int64_t inner_ = 0, states_ = 0, taps_ = 0, rank_ = 0;
  bool norms_ = false;
};

/// Mamba-2 (arXiv 2405.21060), with its hyper-parameters from "ssm.*". ssm_norm is optional.
class Mamba2 {
 public:
  explicit Mamba2(DecoderBuilder& model);
  ir::Value operator()(ir::Value x, std::int64_t layer);

 private:
  DecoderBuilder& model_;
  std::int64_t inner_ = 0, states_ = 0, taps_ = 0, heads_ = 0, groups_ = 0;
};

/// A key "<family>.ssm.<suffix>", from 1 to 2^24.
std::int64_t ssm_param(const DecoderBuilder& model, std::string_view suffix);

}  // namespace forge::loader

#include "loader/arch/recurrent.h"

#include <fmt/format.h>

#include <cmath>

#include "support/error.h"

namespace forge::loader {
namespace {

/// "<family>.ssm.<suffix>".
std::string ssm_key(const DecoderBuilder& model, std::string_view suffix) {
  return model.key(fmt::format("ssm.{}", suffix));
}

/// x, each run of `dim` columns times its factor of a weight [dim], after its RMS norm.
ir::Value norm_heads(DecoderBuilder& model, ir::Value x, const std::string& name, std::int64_t dim) {
  return model.ir().rms_norm(x, model.vector(name, dim), model.params().norm_eps);
}

}  // namespace

std::int64_t ssm_param(const DecoderBuilder& model, std::string_view suffix) {
  return positive(model.file(), ssm_key(model, suffix));
}

ir::Value short_conv(DecoderBuilder& model, ir::Value x, const std::string& stem, std::int64_t channels,
                     std::int64_t taps) {
  auto& ir = model.ir();
  const ir::Value kernel = model.kernel(stem + ".weight", channels, taps);
  const ir::Value bias = model.has(stem + ".bias") ? model.vector(stem + ".bias", channels) : ir::Value{};
  return model.update_state(channels * (taps - 1), [&](ir::Value state, std::int64_t index) {
    return ir.short_conv(x, kernel, bias, state, index);
  });
}

GatedDeltaNet::GatedDeltaNet(DecoderBuilder& model)
    : model_(model),
      key_heads_(ssm_param(model, "group_count")),
      heads_(ssm_param(model, "time_step_rank")),
      dim_(ssm_param(model, "state_size")),
      taps_(ssm_param(model, "conv_kernel")) {
  if (heads_ % key_heads_ != 0)
    contradiction("the value heads are not a multiple of the key heads", fmt::format("{} and {}", heads_, key_heads_));
  if (const auto inner = ssm_param(model, "inner_size"); inner != heads_ * dim_)
    contradiction("the inner size is not that of the value heads",
                  fmt::format("{} and {} heads of {}", inner, heads_, dim_));
}

ir::Value GatedDeltaNet::operator()(ir::Value x, std::int64_t layer) {
  auto& ir = model_.ir();
  const auto at = [&](const char* stem) { return DecoderBuilder::at(layer, stem); };
  const std::int64_t width = model_.params().width, keys = key_heads_ * dim_, values = heads_ * dim_;
  const ir::Value qkv = model_.linear(x, at("attn_qkv"), 2 * keys + values, width);
  const ir::Value z = model_.linear(x, at("attn_gate"), values, width);
  // Qwen3-Next has betas and alphas in one matrix, head by head of the keys, and value head h belongs to key head
  // h / (heads / key_heads). Qwen 3.5 has two matrices, and value head h belongs to key head h % key_heads.
  const bool fused = model_.has(at("ssm_ba.weight"));
  ir::Value beta, alpha;
  if (fused) {
    const std::int64_t shared = heads_ / key_heads_;
    const ir::Value both = model_.linear(x, at("ssm_ba"), 2 * heads_, width);
    const ir::Builder::Piece betas[] = {{.x = both, .begin = 0, .stride = 2 * shared, .width = shared}};
    const ir::Builder::Piece alphas[] = {{.x = both, .begin = shared, .stride = 2 * shared, .width = shared}};
    beta = ir.arrange(key_heads_, betas);
    alpha = ir.arrange(key_heads_, alphas);
  } else {
    beta = model_.linear(x, at("ssm_beta"), heads_, width);
    alpha = model_.linear(x, at("ssm_alpha"), heads_, width);
  }
  const ir::Value decay =
      ir.mul(ir.softplus(ir.add(alpha, model_.vector(at("ssm_dt.bias"), heads_))), model_.vector(at("ssm_a"), heads_));
  const ir::Value mixed =
      ir.activate(short_conv(model_, qkv, at("ssm_conv1d"), 2 * keys + values, taps_), ir::Activation::kSilu);
  const auto parts = ir.split(mixed, {keys, keys, values});
  const ir::Value y = model_.update_state(heads_ * dim_ * dim_, [&](ir::Value state, std::int64_t index) {
    return ir.delta_rule(parts[0], parts[1], parts[2], decay, ir.sigmoid(beta), state,
                         {.layer = index,
                          .heads = heads_,
                          .key_heads = key_heads_,
                          .key_dim = dim_,
                          .value_dim = dim_,
                          .interleaved = fused ? 0 : 1,
                          .scale = 1.0F / std::sqrt(static_cast<float>(dim_)),
                          .norm_eps = model_.params().norm_eps});
  });
  const ir::Value gated = ir.glu(z, norm_heads(model_, y, at("ssm_norm.weight"), dim_), ir::Activation::kSilu);
  return model_.linear(gated, at("ssm_out"), width, values);
}

Mamba::Mamba(DecoderBuilder& model)
    : model_(model),
      inner_(ssm_param(model, "inner_size")),
      states_(ssm_param(model, "state_size")),
      taps_(ssm_param(model, "conv_kernel")),
      rank_(ssm_param(model, "time_step_rank")),
      norms_(model.file().get<bool>(ssm_key(model, "dt_b_c_rms"), false)) {}

ir::Value Mamba::operator()(ir::Value x, std::int64_t layer) {
  auto& ir = model_.ir();
  const auto at = [&](const char* stem) { return DecoderBuilder::at(layer, stem); };
  const std::int64_t width = model_.params().width;
  const auto both = ir.split(model_.linear(x, at("ssm_in"), 2 * inner_, width), {inner_, inner_});
  const ir::Value u = ir.activate(short_conv(model_, both[0], at("ssm_conv1d"), inner_, taps_), ir::Activation::kSilu);
  const auto parts = ir.split(model_.linear(u, at("ssm_x"), rank_ + 2 * states_, inner_), {rank_, states_, states_});
  const auto norm = [&](ir::Value part, const char* stem, std::int64_t n) {
    const auto name = fmt::format("blk.{}.{}.weight", layer, stem);
    if (model_.has(name)) return norm_heads(model_, part, name, n);
    return norms_ ? model_.unit_norm(part, n) : part;
  };
  const ir::Value dt = ir.softplus(model_.linear(norm(parts[0], "ssm_dt_norm", rank_), at("ssm_dt"), inner_, rank_));
  const ir::Value b = norm(parts[1], "ssm_b_norm", states_), c = norm(parts[2], "ssm_c_norm", states_);
  const ir::Value a = model_.weight(at("ssm_a"), inner_, states_), d = model_.vector(at("ssm_d"), inner_);
  const ir::Value y = model_.update_state(inner_ * states_, [&](ir::Value state, std::int64_t index) {
    return ir.selective_scan({u, dt, a, b, c, d}, state,
                             {.layer = index, .heads = inner_, .head_dim = 1, .state_dim = states_, .groups = 1});
  });
  return model_.linear(ir.glu(both[1], y, ir::Activation::kSilu), at("ssm_out"), width, inner_);
}

Mamba2::Mamba2(DecoderBuilder& model)
    : model_(model),
      inner_(ssm_param(model, "inner_size")),
      states_(ssm_param(model, "state_size")),
      taps_(ssm_param(model, "conv_kernel")),
      heads_(ssm_param(model, "time_step_rank")),
      groups_(ssm_param(model, "group_count")) {
  if (inner_ % heads_ != 0 || heads_ % groups_ != 0 || inner_ % groups_ != 0)
    contradiction("the inner size, heads and groups of the state space do not fit together",
                  fmt::format("{}, {} and {}", inner_, heads_, groups_));
}

ir::Value Mamba2::operator()(ir::Value x, std::int64_t layer) {
  auto& ir = model_.ir();
  const auto at = [&](const char* stem) { return DecoderBuilder::at(layer, stem); };
  const std::int64_t width = model_.params().width, shared = groups_ * states_, mixed = inner_ + 2 * shared;
  const auto parts = ir.split(model_.linear(x, at("ssm_in"), inner_ + mixed + heads_, width), {inner_, mixed, heads_});
  const ir::Value dt = ir.softplus(ir.add(parts[2], model_.vector(at("ssm_dt.bias"), heads_)));
  const auto xbc =
      ir.split(ir.activate(short_conv(model_, parts[1], at("ssm_conv1d"), mixed, taps_), ir::Activation::kSilu),
               {inner_, shared, shared});
  const ir::Value a = model_.vector(at("ssm_a"), heads_), d = model_.vector(at("ssm_d"), heads_);
  const ir::Value y = model_.update_state(inner_ * states_, [&](ir::Value state, std::int64_t index) {
    return ir.selective_scan(
        {xbc[0], dt, a, xbc[1], xbc[2], d}, state,
        {.layer = index, .heads = heads_, .head_dim = inner_ / heads_, .state_dim = states_, .groups = groups_});
  });
  ir::Value gated = ir.glu(parts[0], y, ir::Activation::kSilu);
  // The norm is over each group's columns, with weights of its own.
  if (model_.has(at("ssm_norm.weight")))
    gated = ir.mul(model_.unit_norm(gated, inner_ / groups_), model_.reshaped(at("ssm_norm.weight"), {inner_}));
  return model_.linear(gated, at("ssm_out"), width, inner_);
}

}  // namespace forge::loader

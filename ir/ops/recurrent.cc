// Ops with recurrent state: short_conv, delta_rule, selective_scan and rwkv7. A state has a fixed size a sequence and
// lies in a slot. The tokens of a sequence are neighbours in the step and change the state one after the other: the
// first continues what slot state_read[sequence] holds (zeros if that is -1), and what the last leaves goes to slot
// state_write[sequence].

#include <algorithm>
#include <array>
#include <cmath>

#include "ir/ops.h"

namespace forge::ir::ops {
namespace {

constexpr std::int64_t kStateHeadsMax = 1 << 20, kStateDimMax = 1 << 12, kTapsMax = 64;

// Floats of the state of one sequence.
std::int64_t state_floats(const DeltaRuleAttrs& delta) {
  return delta.heads * delta.key_dim * delta.value_dim;
}
std::int64_t state_floats(const SelectiveScanAttrs& scan) {
  return scan.heads * scan.state_dim * scan.head_dim;
}
std::int64_t state_floats(const Rwkv7Attrs& rwkv) {
  return rwkv.heads * rwkv.head_dim * rwkv.head_dim;
}
std::int64_t conv_state_floats(const TensorType& x, const TensorType& kernel) {
  return x.cols() * (kernel.cols() - 1);
}

/// Throws unless the last operands are a state, sequence [T], state_read [B] and state_write [B].
void require_state_operands(std::string_view op, Types operands) {
  const std::size_t first = operands.size() - kStateOperands;
  require_state(op, operands, first);
  require_i32(op, operands, first + 1, {operands[0].shape[0]});
  const TensorType& read = operands[first + 2];
  if (read.dtype != DType::kI32 || read.shape.size() != 1) refuse_operand(op, first + 2, read, "i32 with 1 dimension");
  require_i32(op, operands, first + 3, read.shape);
}

/// Throws unless the operand is f32 [T, cols], T being the rows of operand 0.
void require_columns(std::string_view op, Types operands, std::size_t operand, std::int64_t cols) {
  const TensorType wanted{DType::kF32, {operands[0].shape[0], cols}};
  if (operands[operand] != wanted) refuse_operand(op, operand, operands[operand], wanted.text());
}

/// Throws unless the operand is an f32 tensor of exactly `shape`.
void require_tensor(std::string_view op, Types operands, std::size_t operand, const Shape& shape) {
  const TensorType wanted{DType::kF32, shape};
  if (operands[operand] != wanted) refuse_operand(op, operand, operands[operand], wanted.text());
}

/// (y [T, cols], state)
std::vector<TensorType> results_of(Types operands, std::int64_t cols) {
  return {{DType::kF32, {operands[0].shape[0], cols}}, {DType::kState, {}}};
}

std::vector<TensorType> infer_short_conv(const Attrs& attrs, Types operands) {
  attr_between("short_conv", "layer", std::get<ShortConvAttrs>(attrs).layer, 0, kCountMax);
  require_f32("short_conv", operands, 0, 2);
  require_state_operands("short_conv", operands);
  const std::int64_t channels = operands[0].cols();
  const TensorType& kernel = operands[1];
  if (kernel.dtype != DType::kF32 || kernel.shape.size() != 2 || kernel.shape[0] != Dim(channels) ||
      !kernel.shape[1].is_constant() || kernel.cols() < 2 || kernel.cols() > kTapsMax)
    refuse_operand("short_conv", 1, kernel, fmt::format("f32[{},K], K from 2 to {}", channels, kTapsMax));
  if (operands.size() > 2 + kStateOperands) require_tensor("short_conv", operands, 2, {channels});
  return results_of(operands, channels);
}

std::vector<TensorType> infer_delta_rule(const Attrs& attrs, Types operands) {
  constexpr std::string_view kOp = "delta_rule";
  const auto& delta = std::get<DeltaRuleAttrs>(attrs);
  attr_between(kOp, "layer", delta.layer, 0, kCountMax);
  attr_between(kOp, "heads", delta.heads, 1, kStateHeadsMax);
  attr_between(kOp, "key_heads", delta.key_heads, 1, delta.heads);
  attr_between(kOp, "key_dim", delta.key_dim, 1, kStateDimMax);
  attr_between(kOp, "value_dim", delta.value_dim, 1, kStateDimMax);
  attr_between(kOp, "interleaved", delta.interleaved, 0, 1);
  if (delta.heads % delta.key_heads != 0)
    refuse_attr(kOp, "heads", fmt::to_string(delta.heads),
                fmt::format("a multiple of key_heads = {}", delta.key_heads));
  if (!std::isfinite(delta.scale)) refuse_attr(kOp, "scale", "not finite", "finite");
  if (!(delta.norm_eps >= 0 && delta.norm_eps < 1))
    refuse_attr(kOp, "norm_eps", fmt::to_string(delta.norm_eps), "from 0 to 1");
  require_f32(kOp, operands, 0, 2);
  require_columns(kOp, operands, 0, delta.key_heads * delta.key_dim);
  require_columns(kOp, operands, 1, delta.key_heads * delta.key_dim);
  require_columns(kOp, operands, 2, delta.heads * delta.value_dim);
  require_f32(kOp, operands, 3, 2);
  if (operands[3].cols() != delta.heads) require_columns(kOp, operands, 3, delta.heads * delta.key_dim);
  require_columns(kOp, operands, 4, delta.heads);
  require_state_operands(kOp, operands);
  return results_of(operands, delta.heads * delta.value_dim);
}

std::vector<TensorType> infer_selective_scan(const Attrs& attrs, Types operands) {
  constexpr std::string_view kOp = "selective_scan";
  const auto& scan = std::get<SelectiveScanAttrs>(attrs);
  attr_between(kOp, "layer", scan.layer, 0, kCountMax);
  attr_between(kOp, "heads", scan.heads, 1, kStateHeadsMax);
  attr_between(kOp, "head_dim", scan.head_dim, 1, kStateDimMax);
  attr_between(kOp, "state_dim", scan.state_dim, 1, kStateDimMax);
  attr_between(kOp, "groups", scan.groups, 1, scan.heads);
  if (scan.heads % scan.groups != 0)
    refuse_attr(kOp, "heads", fmt::to_string(scan.heads), fmt::format("a multiple of groups = {}", scan.groups));
  require_f32(kOp, operands, 0, 2);
  require_columns(kOp, operands, 0, scan.heads * scan.head_dim);
  require_columns(kOp, operands, 1, scan.heads);
  if (operands[2].shape.size() == 2)
    require_tensor(kOp, operands, 2, {scan.heads, scan.state_dim});
  else
    require_tensor(kOp, operands, 2, {scan.heads});
  require_columns(kOp, operands, 3, scan.groups * scan.state_dim);
  require_columns(kOp, operands, 4, scan.groups * scan.state_dim);
  require_tensor(kOp, operands, 5, {scan.heads});
  require_state_operands(kOp, operands);
  return results_of(operands, scan.heads * scan.head_dim);
}

std::vector<TensorType> infer_rwkv7(const Attrs& attrs, Types operands) {
  constexpr std::string_view kOp = "rwkv7";
  const auto& rwkv = std::get<Rwkv7Attrs>(attrs);
  attr_between(kOp, "layer", rwkv.layer, 0, kCountMax);
  attr_between(kOp, "heads", rwkv.heads, 1, kStateHeadsMax);
  attr_between(kOp, "head_dim", rwkv.head_dim, 1, kStateDimMax);
  require_f32(kOp, operands, 0, 2);
  for (std::size_t i = 0; i < operands.size() - kStateOperands; ++i)
    require_columns(kOp, operands, i, rwkv.heads * rwkv.head_dim);
  require_state_operands(kOp, operands);
  return results_of(operands, rwkv.heads * rwkv.head_dim);
}

/// Operands and y, the states of all sequences once read and once written, and `flops` for each of their floats and
/// token.
Cost recurrent_cost(Types operands, Types results, const Bounds& bounds, std::int64_t state_floats,
                    std::int64_t flops) {
  Cost cost = streaming_cost(operands.first(operands.size() - kStateOperands), results.first(1), bounds, 0);
  cost.activation_bytes += 2 * bounds.sequences * state_floats * static_cast<std::int64_t>(sizeof(float));
  cost.flops = flops * state_floats * bounds.tokens;
  return cost;
}
Cost short_conv_cost(const Attrs&, Types operands, Types results, const Bounds& bounds) {
  Cost cost = recurrent_cost(operands, results, bounds, conv_state_floats(operands[0], operands[1]), 0);
  cost.flops = 2 * operands[1].cols() * operands[0].cols() * bounds.tokens;
  return cost;
}
Cost delta_rule_cost(const Attrs& attrs, Types operands, Types results, const Bounds& bounds) {
  return recurrent_cost(operands, results, bounds, state_floats(std::get<DeltaRuleAttrs>(attrs)), 7);
}
Cost selective_scan_cost(const Attrs& attrs, Types operands, Types results, const Bounds& bounds) {
  return recurrent_cost(operands, results, bounds, state_floats(std::get<SelectiveScanAttrs>(attrs)), 5);
}
Cost rwkv7_cost(const Attrs& attrs, Types operands, Types results, const Bounds& bounds) {
  return recurrent_cost(operands, results, bounds, state_floats(std::get<Rwkv7Attrs>(attrs)), 9);
}

/// Calls token(t, state) for every token of the step, in order, with the state of its sequence, `floats` values in f64.
template <class Token>
void each_token(Operands operands, std::int64_t layer, std::int64_t state_floats, EvalContext& context,
                const Token& token) {
  const auto floats = static_cast<std::size_t>(state_floats);
  const auto inputs = operands.last(kStateOperands - 1);
  const auto& sequence = inputs[0]->i32;
  const auto& read = inputs[1]->i32;
  const auto& write = inputs[2]->i32;
  std::size_t t = 0;
  while (t < sequence.size()) {
    const auto of = static_cast<std::size_t>(sequence[t]);
    if (of >= read.size() || write[of] < 0)
      throw Error(ErrorCode::kInternal, fmt::format("sequence {} has no slot for its recurrent state", of));
    std::vector<double> state(floats);
    if (read[of] >= 0) {
      const auto found = context.kv->recurrent.find({context.state_group, layer, read[of]});
      if (found == context.kv->recurrent.end() || found->second.size() != floats)
        throw Error(ErrorCode::kInternal, fmt::format("slot {} of layer {} was never written", read[of], layer));
      state.assign(found->second.begin(), found->second.end());
    }
    for (; t < sequence.size() && static_cast<std::size_t>(sequence[t]) == of; ++t) token(t, state.data());
    context.kv->recurrent[{context.state_group, layer, write[of]}] = std::vector<float>(state.begin(), state.end());
  }
}

/// Row `t` of a tensor, from column `column` on.
const float* row(const Tensor& x, std::size_t t, std::int64_t column = 0) {
  return x.f32.data() + static_cast<std::int64_t>(t) * x.cols() + column;
}

void run_short_conv(const Attrs& attrs, Operands operands, Results results, EvalContext& context) {
  const Tensor &x = *operands[0], &kernel = *operands[1];
  const Tensor* bias = operands.size() > 2 + kStateOperands ? operands[2] : nullptr;
  const std::int64_t channels = x.cols(), taps = kernel.cols();
  const auto floats = channels * (taps - 1);
  each_token(operands, std::get<ShortConvAttrs>(attrs).layer, floats, context, [&](std::size_t t, double* state) {
    float* y = results[0].f32.data() + static_cast<std::int64_t>(t) * channels;
    for (std::int64_t c = 0; c < channels; ++c) {
      double sum = bias == nullptr ? 0 : bias->f32[static_cast<std::size_t>(c)];
      for (std::int64_t j = 0; j < taps; ++j)
        sum += static_cast<double>(*row(kernel, static_cast<std::size_t>(c), j)) *
               (j + 1 < taps ? state[j * channels + c] : *row(x, t, c));
      y[c] = static_cast<float>(sum);
    }
    std::copy(state + channels, state + floats, state);
    std::copy_n(row(x, t), channels, state + (taps - 2) * channels);
  });
}

/// A head of q or k as doubles, divided by its length if `eps` > 0.
std::vector<double> unit_head(const float* head, std::int64_t dim, float eps) {
  std::vector<double> out(head, head + dim);
  double squares = eps;
  for (const double x : out) squares += x * x;
  if (eps > 0)
    for (double& x : out) x /= std::sqrt(squares);
  return out;
}

void run_delta_rule(const Attrs& attrs, Operands operands, Results results, EvalContext& context) {
  const auto& delta = std::get<DeltaRuleAttrs>(attrs);
  const std::int64_t keys = delta.key_dim, values = delta.value_dim;
  const bool each_channel = operands[3]->cols() != delta.heads;
  const auto run_head = [&](std::size_t t, std::int64_t head, double* state) {
    const std::int64_t key_head =
        delta.interleaved == 1 ? head % delta.key_heads : head / (delta.heads / delta.key_heads);
    const auto q = unit_head(row(*operands[0], t, key_head * keys), keys, delta.norm_eps);
    const auto k = unit_head(row(*operands[1], t, key_head * keys), keys, delta.norm_eps);
    const float* v = row(*operands[2], t, head * values);
    const float* decay = row(*operands[3], t, each_channel ? head * keys : head);
    const double beta = *row(*operands[4], t, head);
    for (std::int64_t i = 0; i < keys; ++i)
      for (std::int64_t j = 0; j < values; ++j) state[i * values + j] *= std::exp(decay[each_channel ? i : 0]);
    for (std::int64_t j = 0; j < values; ++j) {
      double recalled = 0, y = 0;
      for (std::int64_t i = 0; i < keys; ++i) recalled += state[i * values + j] * k[static_cast<std::size_t>(i)];
      const double u = beta * (v[j] - recalled);
      for (std::int64_t i = 0; i < keys; ++i) {
        state[i * values + j] += k[static_cast<std::size_t>(i)] * u;
        y += state[i * values + j] * q[static_cast<std::size_t>(i)];
      }
      *(results[0].f32.data() + static_cast<std::int64_t>(t) * results[0].cols() + head * values + j) =
          static_cast<float>(delta.scale * y);
    }
  };
  each_token(operands, delta.layer, state_floats(delta), context, [&](std::size_t t, double* state) {
    for (std::int64_t head = 0; head < delta.heads; ++head) run_head(t, head, state + head * keys * values);
  });
}

void run_selective_scan(const Attrs& attrs, Operands operands, Results results, EvalContext& context) {
  const auto& scan = std::get<SelectiveScanAttrs>(attrs);
  const std::int64_t dim = scan.head_dim, states = scan.state_dim;
  const Tensor &a = *operands[2], &d = *operands[5];
  const bool one = a.dims.size() == 1;
  const auto run_head = [&](std::size_t t, std::int64_t head, double* state) {
    const std::int64_t group = head / (scan.heads / scan.groups);
    const float* x = row(*operands[0], t, head * dim);
    const double dt = *row(*operands[1], t, head);
    const float *b = row(*operands[3], t, group * states), *c = row(*operands[4], t, group * states);
    float* y = results[0].f32.data() + static_cast<std::int64_t>(t) * results[0].cols() + head * dim;
    for (std::int64_t p = 0; p < dim; ++p) {
      double sum = static_cast<double>(d.f32[static_cast<std::size_t>(head)]) * x[p];
      for (std::int64_t n = 0; n < states; ++n) {
        const double rate = a.f32[static_cast<std::size_t>(one ? head : head * states + n)];
        double& h = state[n * dim + p];
        h = h * std::exp(dt * rate) + dt * x[p] * b[n];
        sum += h * c[n];
      }
      y[p] = static_cast<float>(sum);
    }
  };
  each_token(operands, scan.layer, state_floats(scan), context, [&](std::size_t t, double* state) {
    for (std::int64_t head = 0; head < scan.heads; ++head) run_head(t, head, state + head * states * dim);
  });
}

void run_rwkv7(const Attrs& attrs, Operands operands, Results results, EvalContext& context) {
  const auto& rwkv = std::get<Rwkv7Attrs>(attrs);
  const std::int64_t dim = rwkv.head_dim;
  const auto run_head = [&](std::size_t t, std::int64_t head, double* state) {
    std::array<const float*, 6> of{};  // r, w, k, v, a, b
    for (std::size_t i = 0; i < of.size(); ++i) of[i] = row(*operands[i], t, head * dim);
    const auto [r, w, k, v, a, b] = of;
    for (std::int64_t j = 0; j < dim; ++j) {
      double recalled = 0, y = 0;
      for (std::int64_t i = 0; i < dim; ++i) recalled += state[i * dim + j] * a[i];
      for (std::int64_t i = 0; i < dim; ++i) {
        double& s = state[i * dim + j];
        s = w[i] * s + b[i] * recalled + static_cast<double>(k[i]) * v[j];
        y += s * r[i];
      }
      *(results[0].f32.data() + static_cast<std::int64_t>(t) * results[0].cols() + head * dim + j) =
          static_cast<float>(y);
    }
  };
  each_token(operands, rwkv.layer, state_floats(rwkv), context, [&](std::size_t t, double* state) {
    for (std::int64_t head = 0; head < rwkv.heads; ++head) run_head(t, head, state + head * dim * dim);
  });
}

}  // namespace

std::span<const OpDef> recurrent_defs() {
  static constexpr std::array kDefs{
      OpDef{.op = Op::kShortConv,
            .name = "short_conv",
            .operands_min = 6,
            .operands_max = 7,
            .attrs_index = attrs_index<ShortConvAttrs>(),
            .has_effect = true,
            .infer = infer_short_conv,
            .cost = short_conv_cost,
            .reference = run_short_conv},
      OpDef{.op = Op::kDeltaRule,
            .name = "delta_rule",
            .operands_min = 9,
            .operands_max = 9,
            .attrs_index = attrs_index<DeltaRuleAttrs>(),
            .has_effect = true,
            .infer = infer_delta_rule,
            .cost = delta_rule_cost,
            .reference = run_delta_rule},
      OpDef{.op = Op::kSelectiveScan,
            .name = "selective_scan",
            .operands_min = 10,
            .operands_max = 10,
            .attrs_index = attrs_index<SelectiveScanAttrs>(),
            .has_effect = true,
            .infer = infer_selective_scan,
            .cost = selective_scan_cost,
            .reference = run_selective_scan},
      OpDef{.op = Op::kRwkv7,
            .name = "rwkv7",
            .operands_min = 10,
            .operands_max = 10,
            .attrs_index = attrs_index<Rwkv7Attrs>(),
            .has_effect = true,
            .infer = infer_rwkv7,
            .cost = rwkv7_cost,
            .reference = run_rwkv7},
  };
  return kDefs;
}

}  // namespace forge::ir::ops

namespace forge::ir {

std::optional<RecurrentUse> recurrent_use(Op op, const Attrs& attrs, std::span<const TensorType> operands) {
  switch (op) {
    case Op::kShortConv:
      return RecurrentUse{std::get<ShortConvAttrs>(attrs).layer, ops::conv_state_floats(operands[0], operands[1])};
    case Op::kDeltaRule: {
      const auto& delta = std::get<DeltaRuleAttrs>(attrs);
      return RecurrentUse{delta.layer, ops::state_floats(delta)};
    }
    case Op::kSelectiveScan: {
      const auto& scan = std::get<SelectiveScanAttrs>(attrs);
      return RecurrentUse{scan.layer, ops::state_floats(scan)};
    }
    case Op::kRwkv7: {
      const auto& rwkv = std::get<Rwkv7Attrs>(attrs);
      return RecurrentUse{rwkv.layer, ops::state_floats(rwkv)};
    }
    default:
      return std::nullopt;
  }
}

}  // namespace forge::ir

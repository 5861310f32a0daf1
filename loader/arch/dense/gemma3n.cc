// gemma3n: the text models of Gemma 3n, E2B and E4B. The residual is four streams (AltUp, arXiv 2301.13310): each layer
// predicts all of them from the streams before it, computes attention and FFN on the first, and corrects all four by
// what the first one gained. Beside attention stands a low-rank residual (LAuReL, arXiv 2411.07501). The FFN's gate is
// sparse in the first layers. The softmax scale is 1, values have an RMSNorm without weight, the last layers read the
// KV cache of earlier ones, and layers have per-layer inputs. Sources: the papers and the model's code.

#include <fmt/format.h>

#include <array>
#include <cmath>
#include <numbers>

#include "loader/arch/per_layer_input.h"
#include "loader/arch/registry.h"

namespace forge::loader {
namespace {

constexpr std::int64_t kStreams = 4;
constexpr std::int64_t kSparseLayers = 10;      // with activation sparsity
constexpr float kSparseCutoff = 1.6448533535F;  // keeps 5 % of a normal distribution
constexpr std::int64_t kFirstSharing = 20;      // from this layer on the KV cache of an earlier layer is read
using Streams = std::array<ir::Value, kStreams>;

/// One layer, or the whole model, as functions of the papers.
class Gemma3n {
 public:
  explicit Gemma3n(const Gguf& file) : model_(file), ir_(model_.ir()), p_(model_.params()) {
    const auto streams = file.get<std::int64_t>(model_.key("altup.num_inputs"), kStreams);
    const auto active = file.get<std::int64_t>(model_.key("altup.active_idx"), 0);
    model_.refuse_if(streams != kStreams || active != 0,
                     fmt::format("{} streams of which {} is active", streams, active));
    auto global = model_.attention_spec(ir::RopeMode::kHalves);
    global.scale = 1;
    global.qk_norm = QkNorm::kHead;
    global.value_norm = true;
    auto local = global;
    local.window = model_.sliding_window();
    local.rope.freqs.base = model_.rope_base("rope.freq_base_swa");
    attention_ = model_.alternate(local, global, 5);
  }

  PortableModel run() {
    const auto embedding = model_.embed(std::sqrt(static_cast<float>(p_.width)));
    const auto inputs = per_layer_inputs(model_, embedding);
    if (inputs.empty()) contradiction("a Gemma 3n model has no per-layer inputs", "their width is 0 or missing");
    Streams x{embedding};
    for (std::int64_t j = 1; j < kStreams; ++j)
      x[static_cast<std::size_t>(j)] = ir_.match_rms(project(embedding, "altup_proj.weight", j), embedding);
    for (std::int64_t i = 0; i < p_.layers; ++i) {
      ir_.set_layer(static_cast<std::int32_t>(i));
      x = layer(x, inputs[static_cast<std::size_t>(i)], i);
    }
    const auto first = model_.logit_rows(x[0]);
    auto sum = first;
    for (std::int64_t j = 1; j < kStreams; ++j) {
      const auto rows = model_.logit_rows(x[static_cast<std::size_t>(j)]);
      sum = ir_.add(sum, ir_.match_rms(project(rows, "altup_unembd_proj.weight", j), first));
    }
    return model_.finish_rows(ir_.scale(sum, 1.0F / kStreams), 1, model_.feature("final_logit_softcapping", 30));
  }

 private:
  /// x times matrix `stream` - 1 of a tensor [3, width, width].
  ir::Value project(ir::Value x, const std::string& name, std::int64_t stream) {
    const auto& tensor = model_.tensor(name);
    const std::int64_t rows = (kStreams - 1) * p_.width;
    if (tensor.cols() != p_.width || tensor.rows() != rows)
      contradiction("a tensor has the wrong shape", fmt::format("{} where the metadata requires [{}, {}, {}]",
                                                                tensor.describe(), kStreams - 1, p_.width, p_.width));
    const auto all = ir_.weight(name, tensor.dtype, {rows, p_.width});
    return ir_.matmul(x, ir_.slice_rows(all, (stream - 1) * p_.width, p_.width));
  }

  /// The coefficients of a token, [T, n]: W tanh(router(RMSNorm(x) / width)) + offset.
  ir::Value coefficients(ir::Value x, std::int64_t layer, const char* stem, std::vector<float> offset) {
    const auto rows = model_.norm(x, model_.at(layer, "altup_router_norm"));
    const auto routed = model_.linear(rows, model_.at(layer, "altup_router"), kStreams, p_.width);
    const auto modes = ir_.softcap(ir_.scale(routed, 1 / static_cast<float>(p_.width)), 1);  // a soft-cap of 1 is tanh
    const auto n = static_cast<std::int64_t>(offset.size());
    return ir_.add(model_.linear(modes, model_.at(layer, stem), n, kStreams), ir_.constant(std::move(offset), {n}));
  }

  /// The streams as slots, [T, n, width].
  ir::Value stacked(std::span<const ir::Value> streams) {
    std::vector<ir::Builder::Piece> pieces;
    for (const auto x : streams) pieces.push_back({.x = x, .begin = 0, .stride = 0, .width = p_.width});
    const auto count = static_cast<std::int64_t>(streams.size());
    const auto side_by_side = count == 1 ? streams[0] : ir_.arrange(1, pieces);
    const ir::Builder::Piece slot[] = {{.x = side_by_side, .begin = 0, .stride = p_.width, .width = p_.width}};
    return ir_.arrange(count, slot, true);
  }

  /// Each stream plus what a token's [4, 4] coefficients make of all streams.
  Streams predicted(const Streams& x, std::int64_t layer) {
    std::vector<float> identity(kStreams * kStreams);
    for (std::size_t j = 0; j < kStreams; ++j) identity[j * (kStreams + 1)] = 1;
    const auto c = coefficients(x[0], layer, "altup_predict_coef", std::move(identity));
    const auto rows = ir_.split(c, std::vector(kStreams, kStreams));
    const auto all = stacked(x);
    Streams out;
    for (std::size_t j = 0; j < kStreams; ++j) out[j] = ir_.expert_sum(all, rows[j]);
    return out;
  }

  /// Each stream plus its share of z - p[0].
  Streams corrected(const Streams& p, ir::Value z, std::int64_t layer) {
    const auto c = coefficients(z, layer, "altup_correct_coef", std::vector<float>(kStreams, 1));
    const auto shares = ir_.split(c, std::vector(kStreams, std::int64_t{1}));
    const ir::Value gain[] = {ir_.add(z, ir_.scale(p[0], -1))};
    const auto slots = stacked(gain);
    Streams out;
    for (std::size_t j = 0; j < kStreams; ++j) out[j] = ir_.add(ir_.expert_sum(slots, shares[j]), p[j]);
    return out;
  }

  ir::Value attended(ir::Value rows, std::int64_t layer) {
    auto spec = attention_(layer);
    if (layer >= kFirstSharing) {
      spec.kv_layer = kFirstSharing - (spec.window > 0 ? 2 : 1);
      for (const char* unused : {"attn_k.weight", "attn_v.weight", "attn_k_norm.weight"})
        if (model_.has(model_.at(layer, unused))) (void)model_.tensor(model_.at(layer, unused));
    }
    return model_.norm(model_.attention(rows, layer, spec), model_.at(layer, "post_attention_norm"));
  }

  ir::Value laurel(ir::Value rows, std::int64_t layer) {
    const auto rank = model_.tensor(model_.at(layer, "laurel_l.weight")).rows();
    const auto low = model_.linear(rows, model_.at(layer, "laurel_l"), rank, p_.width);
    const auto high = model_.linear(low, model_.at(layer, "laurel_r"), p_.width, rank);
    return ir_.add(rows, model_.norm(high, model_.at(layer, "laurel_post_norm")));
  }

  ir::Value ffn(ir::Value rows, std::int64_t layer) {
    if (layer >= kSparseLayers) return model_.gated_ffn(rows, layer, ir::Activation::kGelu);
    const auto n = model_.shape(layer).ffn_width;
    const auto gate = model_.linear(rows, model_.at(layer, "ffn_gate"), n, p_.width);
    const auto up = model_.linear(rows, model_.at(layer, "ffn_up"), n, p_.width);
    const auto product = ir_.glu(ir_.gaussian_topk(gate, kSparseCutoff), up, ir::Activation::kGelu);
    return model_.linear(product, model_.at(layer, "ffn_down"), p_.width, n);
  }

  Streams layer(const Streams& x, ir::Value input, std::int64_t layer) {
    const auto p = predicted(x, layer);
    const auto rows = model_.norm(p[0], model_.at(layer, "attn_norm"));
    const auto low_rank = laurel(rows, layer);
    const auto y = ir_.scale(ir_.add(ir_.add(attended(rows, layer), p[0]), low_rank), std::numbers::sqrt2_v<float> / 2);
    const auto out = ffn(model_.norm(y, model_.at(layer, "ffn_norm")), layer);
    const auto z = ir_.add(model_.norm(out, model_.at(layer, "post_ffw_norm")), y);
    auto streams = corrected(p, z, layer);
    const auto scale = model_.weight(model_.at(layer, "altup_correct_scale.weight"), p_.width);
    const auto own = per_layer_block(model_, ir_.mul(streams[0], scale), input, layer);
    for (std::size_t j = 1; j < kStreams; ++j) streams[j] = ir_.add(streams[j], own);
    return streams;
  }

  DecoderBuilder model_;
  ir::Builder& ir_;
  const DecoderParams& p_;
  AlternatingAttention attention_;
};

}  // namespace

PortableModel build_gemma3n(const Gguf& file) {
  return Gemma3n(file).run();
}

}  // namespace forge::loader

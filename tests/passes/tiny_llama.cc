// See tiny_llama.h.
#include "tests/passes/tiny_llama.h"

#include <cmath>

namespace forge::passes::test {
namespace {

using ir::Builder;
using ir::Value;

class Maker {
 public:
  Maker(const TinyLlama& shape, ir::Graph& graph) : s_(shape), b_(graph) {}

  void run() {
    Value x = b_.embed(b_.weight("token_embd.weight", s_.dtype, {s_.vocab, s_.dim}), b_.input(ir::InputKind::kIds));
    state_ = b_.kv_state({0, s_.layers, s_.kv_heads, s_.head_dim, 0});
    for (layer_ = 0; layer_ < s_.layers; ++layer_) {
      b_.set_layer(static_cast<std::int32_t>(layer_));
      x = b_.add(x, attention(norm("attn_norm", x)));
      x = b_.add(x, feed_forward(norm("ffn_norm", x)));
    }
    b_.set_layer(ir::kNoLayer);
    x = b_.gather_rows(x, b_.input(ir::InputKind::kRows));
    x = b_.rms_norm(x, b_.weight("output_norm.weight", DType::kF32, {s_.dim}), 1e-5F);
    x = b_.matmul(x, b_.weight("token_embd.weight", s_.dtype, {s_.vocab, s_.dim}));
    b_.graph().add_output("logits", b_.scale(x, s_.logit_scale));
    b_.graph().add_output("kv0", state_);
  }

 private:
  [[nodiscard]] std::string name(const char* stem) const { return "blk." + std::to_string(layer_) + "." + stem; }

  Value linear(const char* stem, Value x, std::int64_t n, std::int64_t k, DType dtype, bool bias) {
    const Value y = b_.matmul(x, b_.weight(name(stem) + ".weight", dtype, {n, k}));
    return bias ? b_.add(y, b_.weight(name(stem) + ".bias", DType::kF32, {n})) : y;
  }

  Value norm(const char* stem, Value x) {
    return b_.rms_norm(x, b_.weight(name(stem) + ".weight", DType::kF32, {s_.dim}), 1e-5F);
  }

  Value attention(Value x) {
    const Value factors = s_.freq_factors ? b_.weight("rope_freqs.weight", DType::kF32, {s_.head_dim / 2}) : Value{};
    const Value freqs = b_.rope_freqs({.dims = s_.head_dim, .base = 10000}, factors);
    const Value table = b_.rope_table(b_.input(ir::InputKind::kPositions), freqs, 1);
    const ir::RopeAttrs rope{s_.head_dim, s_.head_dim, ir::RopeMode::kPairs};
    const std::int64_t q_dim = s_.heads * s_.head_dim;
    const std::int64_t kv_dim = s_.kv_heads * s_.head_dim;
    const Value q = b_.scale(b_.rope(linear("attn_q", x, q_dim, s_.dim, s_.dtype, s_.biases), table, rope), 0.25F);
    const Value k = b_.rope(linear("attn_k", x, kv_dim, s_.dim, s_.dtype, s_.biases), table, rope);
    const Value v = linear("attn_v", x, kv_dim, s_.dim, s_.v_dtype, s_.biases);
    state_ = b_.kv_store(state_, k, v, layer_);
    const Value mixed = b_.attention(q, state_, {layer_, s_.heads, s_.kv_heads, s_.head_dim, 1, 0, 0});
    return linear("attn_output", mixed, s_.dim, q_dim, s_.dtype, false);
  }

  Value feed_forward(Value x) {
    const Value gate = linear("ffn_gate", x, s_.ffn, s_.dim, s_.dtype, false);
    const Value up = linear("ffn_up", x, s_.ffn, s_.dim, s_.dtype, false);
    return linear("ffn_down", b_.glu(gate, up, ir::Activation::kSilu), s_.dim, s_.ffn, s_.dtype, false);
  }

  const TinyLlama& s_;
  Builder b_;
  Value state_;
  std::int64_t layer_ = 0;
};

/// Deterministic weights: a hash of the name gives values in [-0.3, 0.3), with 1 added for norms and RoPE factors.
std::vector<float> made_up_weight(const std::string& name, const ir::TensorType& type) {
  std::uint64_t state = 1469598103934665603ULL;
  for (const char c : name) state = (state ^ static_cast<unsigned char>(c)) * 1099511628211ULL;
  const bool near_one = name.find("norm") != std::string::npos || name.find("freqs") != std::string::npos;
  std::vector<float> values(static_cast<std::size_t>(type.elements({})));
  for (float& value : values) {
    state = state * 6364136223846793005ULL + 1442695040888963407ULL;
    const float unit = float(state >> 40) / float(1 << 24) - 0.5F;
    value = (near_one ? 1.0F : 0.0F) + 0.6F * unit;
  }
  return values;
}

}  // namespace

ir::Graph TinyLlama::build() const {
  ir::Graph graph;
  Maker(*this, graph).run();
  return graph;
}

std::vector<float> run_two_steps(const ir::Graph& graph) {
  ir::ReferenceKv kv;
  ir::StepInputs prompt;
  prompt.ids = {3, 17, 5, 42, 8};
  prompt.positions = {0, 1, 2, 3, 4};
  prompt.sequence = {0, 0, 0, 0, 0};
  prompt.rows = {1, 4};
  prompt.kv_length = {5};
  prompt.block_table = {{2, 0}};
  ir::StepInputs next;
  next.ids = {11};
  next.positions = {5};
  next.sequence = {0};
  next.rows = {0};
  next.kv_length = {6};
  next.block_table = {{2, 0}};
  std::vector<float> values;
  for (const ir::StepInputs* step : {&prompt, &next}) {
    const auto outputs = ir::interpret(graph, *step, kv, made_up_weight);
    for (const auto& [name, tensor] : outputs) values.insert(values.end(), tensor.f32.begin(), tensor.f32.end());
  }
  return values;
}

double nmse(const std::vector<float>& expected, const std::vector<float>& actual) {
  if (expected.size() != actual.size()) return INFINITY;
  double error = 0;
  double power = 0;
  for (std::size_t i = 0; i < expected.size(); ++i) {
    error += (double(expected[i]) - actual[i]) * (double(expected[i]) - actual[i]);
    power += double(expected[i]) * expected[i];
  }
  return power > 0 ? error / power : INFINITY;
}

}  // namespace forge::passes::test

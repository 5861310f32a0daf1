#pragma once
// A small Llama-like graph as the model families build it: embedding, pre-norm attention with GQA and RoPE, SwiGLU,
// logits.

#include <string>

#include "ir/builder.h"

namespace forge::ir::test {

struct SmallLlama {
  std::int64_t layers = 2, vocab = 96, dim = 64, heads = 4, kv_heads = 2, head_dim = 16, ffn = 96, window = 0;
  DType dtype = DType::kQ8_0;

  [[nodiscard]] Graph build() const {
    Graph graph;
    Builder b(graph);
    Value x = b.embed(b.weight("token_embd.weight", dtype, {vocab, dim}), b.input(InputKind::kIds));
    const Value freqs = b.rope_freqs({.dims = head_dim, .base = 10000});
    const Value table = b.rope_table(b.input(InputKind::kPositions), freqs, 1);
    Value state = b.kv_state({0, layers, kv_heads, head_dim, window});
    for (std::int64_t layer = 0; layer < layers; ++layer) {
      b.set_layer(static_cast<std::int32_t>(layer));
      x = block(b, x, table, state, layer);
    }
    b.set_layer(kNoLayer);
    x = b.gather_rows(x, b.input(InputKind::kRows));
    x = b.rms_norm(x, b.weight("output_norm.weight", DType::kF32, {dim}), 1e-5f);
    graph.add_output("logits", b.matmul(x, b.weight("token_embd.weight", dtype, {vocab, dim})));
    graph.add_output("kv0", state);
    return graph;
  }

 private:
  Value block(Builder& b, Value x, Value table, Value& state, std::int64_t layer) const {
    const auto weight = [&](const char* name, std::int64_t rows, std::int64_t cols) {
      return b.weight("blk." + std::to_string(layer) + "." + name + ".weight", dtype, {rows, cols});
    };
    const auto norm = [&](const char* name, Value value) {
      const auto full = "blk." + std::to_string(layer) + "." + name + ".weight";
      return b.rms_norm(value, b.weight(full, DType::kF32, {dim}), 1e-5f);
    };
    const RopeAttrs rope{head_dim, head_dim, RopeMode::kPairs};
    const Value h = norm("attn_norm", x);
    const Value q = b.rope(b.matmul(h, weight("attn_q", heads * head_dim, dim)), table, rope);
    const Value k = b.rope(b.matmul(h, weight("attn_k", kv_heads * head_dim, dim)), table, rope);
    const Value v = b.matmul(h, weight("attn_v", kv_heads * head_dim, dim));
    state = b.kv_store(state, k, v, layer);
    const Value mixed = b.attention(q, state, {layer, heads, kv_heads, head_dim, 0.25f, window, 0});
    x = b.add(x, b.matmul(mixed, weight("attn_output", dim, heads * head_dim)));
    const Value f = norm("ffn_norm", x);
    const Value gated =
        b.glu(b.matmul(f, weight("ffn_gate", ffn, dim)), b.matmul(f, weight("ffn_up", ffn, dim)), Activation::kSilu);
    return b.add(x, b.matmul(gated, weight("ffn_down", dim, ffn)));
  }
};

}  // namespace forge::ir::test

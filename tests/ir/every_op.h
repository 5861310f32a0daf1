#pragma once
// A graph that contains every op, with all attributes set to values other than their defaults. Tests of the text form
// and the verifier use it so that no attribute is forgotten.

#include "ir/builder.h"

namespace forge::ir::test {

inline Graph every_op() {
  Graph graph;
  Builder b(graph);
  const Value ids = b.input(InputKind::kIds);
  Value x = b.embed(b.weight("emb \"x\"\\\n\xc3\xa9\x01", DType::kQ4_1, {40, 64}), ids);
  const Value factors = b.constant({1, 2.5f, 1e-30f, 0.1f}, {4});
  const Value freqs = b.rope_freqs({.dims = 8,
                                    .base = 500000.5f,
                                    .scaling = RopeScaling::kYarn,
                                    .factor = 4,
                                    .original_context = 4096,
                                    .ext_factor = 1,
                                    .beta_fast = 31.5f,
                                    .beta_slow = 1.25f},
                                   factors, b.constant({2, 3, 4, 5.5f}, {4}));
  const Value table = b.rope_table(b.input(InputKind::kPositions), freqs, 1.1386294f, 0.1f, 50, 1);
  Value state = b.kv_state({.group = 3, .layers = 2, .kv_heads = 2, .head_dim = 16, .window = 96});
  b.set_layer(1);
  const Value gain = b.weight("gain", DType::kF32, {64});
  const Value squares{graph.add(Op::kSumSquares, {x}, {}, 1), 0};
  const Value q8{graph.add(Op::kQuantize, {b.mul(x, gain)}, QuantizeAttrs{}, 1), 0};
  const Value wq = b.weight("q", DType::kQ8_0, {64, 64});
  const Value wk = b.slice_rows(b.weight("k", DType::kQ8_0, {48, 64}), 16, 32);
  const Value wv = b.weight("v", DType::kQ8_0, {32, 64});
  const Value qkv_weight{graph.add(Op::kConcatRows, {wq, wk, wv}, PartsAttrs{{64, 32, 32}, 0}, 1), 0};
  const Value bias{graph.add(Op::kConcatRows, {b.weight("bq", DType::kF32, {64}), b.weight("bk", DType::kF32, {64})},
                             PartsAttrs{{64, 64}, 32}, 1),
                   0};
  const Value raw{graph.add(Op::kInvRmsScale, {b.matmul(q8, qkv_weight), squares}, NormAttrs{1e-6f, 64}, 1), 0};
  const NodeId split = graph.add(Op::kSplit, {b.add(raw, bias)}, PartsAttrs{{64, 32, 32}, 0}, 1);
  const Value q = b.rope(b.rms_norm({split, 0}, b.weight("qn", DType::kF32, {16}), 1e-5f), table,
                         {.head_dim = 16, .rotary_dims = 8, .mode = RopeMode::kHalves});
  const Value turned = b.rope({split, 1}, table, {.head_dim = 16, .rotary_dims = 8, .mode = RopeMode::kHalves});
  const Value k{graph.add(Op::kHadamard, {turned}, {}, 1), 0};
  state = b.kv_store(state, k, {split, 2}, 1);
  const Value index =
      b.kv_store(b.kv_state({.group = 4, .layers = 2, .kv_heads = 1, .head_dim = 32, .shared_row = 1}), k, {}, 1);
  const Value index_weights = b.split(q, {2, 62})[0];
  const Value keys = b.select_keys(
      q, index, {.layer = 1, .heads = 2, .head_dim = 32, .top_k = 4, .block = 2, .local = 1}, index_weights);
  const Value mixed = b.attention(q, state,
                                  {.layer = 1,
                                   .heads = 4,
                                   .kv_heads = 2,
                                   .head_dim = 16,
                                   .scale = 0.3f,
                                   .window = 64,
                                   .softcap = 50,
                                   .chunk = 80,
                                   .selected = 4,
                                   .selected_block = 2},
                                  b.weight("sinks", DType::kF32, {4}), keys);
  const std::uint32_t group = graph.new_group();
  x = b.add(x, mixed);
  graph.set_group(x.node, group);
  const NodeId halves = graph.add(Op::kSplit, {x}, PartsAttrs{{32, 32}, 8}, 2);
  x = b.glu({halves, 0}, {halves, 1}, Activation::kGelu);
  graph.set_group(halves, group);
  x = b.clamp(b.softcap(b.activate(x, Activation::kGelu), 30), 20);
  x = b.exponential(b.sigmoid(b.softplus(x)));
  x = b.match_rms(b.gaussian_topk(x, 1.25f), b.mul(x, b.weight("one", DType::kF32, {1})));
  const Shape heads{2, 16};
  x = b.layer_norm(x, b.weight("ln", DType::kF32, heads), b.weight("ln_bias", DType::kF32, heads), 1e-5f);
  const auto [chosen, shares] = b.route(b.matmul(x, b.weight("router", DType::kF32, {8, 32})),
                                        {.used = 3,
                                         .gate = RouteGate::kSigmoid,
                                         .share = RoutingNormalization::kChosen,
                                         .scale = 2.5f,
                                         .groups = 4,
                                         .groups_used = 2,
                                         .group_top = 2,
                                         .experts_per_adjugate = 2},
                                        b.weight("choice", DType::kF32, {8}), b.weight("factors", DType::kF32, {8}));
  const Value hidden = b.expert_matmul(x, b.slice_rows(b.weight("experts", DType::kQ4_0, {4, 48, 32}), 16, 32), chosen);
  const Value scaled = b.expert_scale(hidden, b.weight("expert_factors", DType::kF32, {4}), chosen);
  x = b.expert_sum(b.expert_add(scaled, b.weight("biases", DType::kF32, {4, 32, 1}), chosen), shares);
  const Builder::Piece pieces[] = {{x, 2, 8, 4}, {{}, 0, 0, 1}, {hidden, 40, 0, 27}};
  const Value arranged = b.arrange(3, pieces, true);
  const Value batched = b.batched_matmul(arranged, b.weight("batches", DType::kQ8_0, {3, 8, 32}));
  x = b.add(b.expert_sum(arranged, shares), b.matmul(batched, b.weight("wide", DType::kF16, {32, 24})));
  // Ops with recurrent state, each with a group of its own, and attention without a cache, on parts of 24 columns of x.
  x = b.split(x, {24, 8})[0];
  const auto state_of = [&](std::int64_t number, std::int64_t floats) {
    return b.recurrent_state({.group = number, .layers = 1, .floats = floats});
  };
  const auto conv = b.short_conv(x, b.weight("taps", DType::kF32, {24, 3}), b.weight("tap_bias", DType::kF32, {24}),
                                 state_of(1, 48), 0);
  const auto of_delta = b.split(conv.y, {4, 4, 12, 2, 2});
  const auto delta = b.delta_rule(of_delta[0], of_delta[1], of_delta[2], of_delta[3], of_delta[4], state_of(2, 48),
                                  {.heads = 2, .key_heads = 1, .key_dim = 4, .value_dim = 6, .norm_eps = 1e-5f});
  const auto of_scan = b.split(x, {8, 4, 3, 3, 6});
  const auto scan = b.selective_scan({of_scan[0], of_scan[1], b.weight("rates", DType::kF32, {4, 3}), of_scan[2],
                                      of_scan[3], b.weight("skips", DType::kF32, {4})},
                                     state_of(3, 24), {.heads = 4, .head_dim = 2, .state_dim = 3, .groups = 1});
  const auto of_rwkv = b.split(x, {4, 4, 4, 4, 4, 4});
  const auto rwkv = b.rwkv7({of_rwkv[0], of_rwkv[1], of_rwkv[2], of_rwkv[3], of_rwkv[4], of_rwkv[5]}, state_of(4, 16),
                            {.heads = 1, .head_dim = 4});
  const auto of_self = b.split(x, {12, 6, 6});
  const Value seen =
      b.self_attention(of_self[0], of_self[1], of_self[2],
                       {.heads = 2, .kv_heads = 1, .head_dim = 6, .scale = 0.5f, .window = 4, .alibi = 8});
  const Builder::Piece of_all[] = {{delta.y, 0, 0, 6}, {scan.y, 0, 0, 8}, {rwkv.y, 0, 0, 4}, {seen, 0, 0, 6}};
  x = b.gather_rows(b.scale(b.arrange(1, of_all), 0.125f), b.input(InputKind::kRows));
  graph.add_output("hidden \"state\"", x);
  graph.add_output("kv3", state);
  graph.add_output("kv4", index);
  graph.add_output("recurrent0", b.recurrent_state({.group = 0, .layers = 2, .floats = 96}));
  graph.add_output("recurrent1", conv.state);
  graph.add_output("recurrent2", delta.state);
  graph.add_output("recurrent3", scan.state);
  graph.add_output("recurrent4", rwkv.state);
  return graph;
}

}  // namespace forge::ir::test

// The reference interpreter: each op against numbers computed by hand, then whole models in equivalent forms. All other
// back-ends are compared with this interpreter, so its results must not be checked only against themselves.

#include "ir/interpreter.h"

#include <catch2/catch.hpp>
#include <cmath>

#include "by_hand.h"
#include "every_op.h"
#include "ir/builder.h"
#include "small_llama.h"
#include "support/error.h"
#include "tests/support/error_of.h"

using namespace forge;
using namespace forge::ir;
using namespace forge::ir::test;

namespace {

using tests::error_of;

/// Deterministic weights: small values of both signs that depend only on the name and the index.
Floats made_up_weight(const std::string& name, const TensorType& type) {
  Floats values(static_cast<std::size_t>(type.elements({})));
  std::uint64_t state = std::hash<std::string>{}(name) | 1;
  for (float& value : values) {
    state = state * 6364136223846793005u + 1442695040888963407u;
    value = static_cast<float>(static_cast<std::int64_t>(state >> 40) - (1 << 23)) / (1 << 23) * 0.2f;
    if (type.shape.size() == 1) value += 1;
  }
  return values;
}

Floats logits(const Graph& graph, const StepInputs& in, ReferenceKv& kv, bool quantize = false) {
  return interpret(graph, in, kv, made_up_weight, quantize).at("logits").f32;
}

}  // namespace

TEST_CASE("elementwise ops, by hand") {
  check_near(run([](Builder& b) { return b.add(b.constant({1, 2, 3, 4}, {2, 2}), b.constant({10, 20}, {2})); }),
             {11, 22, 13, 24});
  check_near(run([](Builder& b) { return b.mul(b.constant({1, 2, 3, 4}, {2, 2}), b.constant({2, 3, 4, 5}, {2, 2})); }),
             {2, 6, 12, 20});
  check_near(run([](Builder& b) { return b.scale(b.constant({1, -2}, {2}), 0.5f); }), {0.5f, -1});
  const auto glu = [](Activation activation) {
    return run([=](Builder& b) { return b.glu(b.constant({1, -2}, {1, 2}), b.constant({3, 5}, {1, 2}), activation); });
  };
  check_near(glu(Activation::kSilu), {0.7310586f * 3, -2 * 0.1192029f * 5});
  check_near(glu(Activation::kGelu), {0.8411920f * 3, -0.0454023f * 5});
  const auto clamped = run([](Builder& b) {
    return b.glu(b.constant({8, -2}, {1, 2}), b.constant({3, -9}, {1, 2}), Activation::kClampedSwish);
  });
  check_near(clamped, {7 / (1 + std::exp(-1.702f * 7)) * 4, -2 / (1 + std::exp(1.702f * 2)) * -6});
  check_near(glu(Activation::kRelu), {3, 0});
  const auto limited = run([](Builder& b) {
    return b.glu(b.constant({8, -2}, {1, 2}), b.constant({3, -9}, {1, 2}), Activation::kLimitedSilu, {2.5f});
  });
  check_near(limited, {2.5f * 2.5f, -2 / (1 + std::exp(2.0f)) * -2.5f});
}

TEST_CASE("activations and soft-caps, by hand") {
  const auto of = [](auto op) { return run([=](Builder& b) { return op(b, b.constant({1, -2, 40}, {1, 3})); }); };
  check_near(of([](Builder& b, Value x) { return b.activate(x, Activation::kSilu); }), {0.7310586f, -0.2384058f, 40});
  check_near(of([](Builder& b, Value x) { return b.activate(x, Activation::kGelu); }), {0.8411920f, -0.0454023f, 40});
  check_near(of([](Builder& b, Value x) { return b.activate(x, Activation::kReluSquared); }), {1, 0, 1600});
  check_near(of([](Builder& b, Value x) { return b.activate(x, Activation::kRelu); }), {1, 0, 40});
  check_near(of([](Builder& b, Value x) { return b.clamp(x, 1.5f); }), {1, -1.5f, 1.5f});
  check_near(of([](Builder& b, Value x) { return b.softcap(x, 20); }), {0.9991680f, -1.9933599f, 19.2805516f});
  check_near(of([](Builder& b, Value x) { return b.softplus(x); }), {1.3132617f, 0.1269280f, 40});
  check_near(of([](Builder& b, Value x) { return b.sigmoid(x); }), {0.7310586f, 0.1192029f, 1});
  check_near(of([](Builder& b, Value x) { return b.exponential(b.scale(x, 0.1f)); }),
             {1.1051709f, 0.8187308f, 54.598150f});
  // Parameters alpha_n, alpha_p, beta, eps. Expected: 1.25 + 0.5; 0.8 (e^-2 - 1 + 2) - 1; 1.25 * 1600 + 20.
  check_near(of([](Builder& b, Value x) { return b.activate(x, Activation::kXielu, {0.8f, 1.25f, 0.5f, -1e-6f}); }),
             {1.75f, -0.0917318f, 2020});
}

TEST_CASE("LayerNorm, by hand: shared gains, and gains and offsets of each head") {
  const auto x = [](Builder& b) { return b.constant({1, 3, 10, 30}, {1, 4}); };
  check_near(run([&](Builder& b) { return b.layer_norm(x(b), b.constant({2, 4}, {2}), {}, 3); }),
             {-1, 2, -20 / 10.1488916f, 40 / 10.1488916f});
  check_near(run([&](Builder& b) {
               return b.layer_norm(x(b), b.constant({1, 2, 3, 4}, {2, 2}), b.constant({5, 6, 7, 8}, {2, 2}), 0);
             }),
             {4, 8, 4, 12});
}

TEST_CASE("slice_rows takes rows of matrices and elements of vectors") {
  check_near(run([](Builder& b) { return b.slice_rows(b.constant({1, 2, 3, 4, 5, 6}, {3, 2}), 1, 2); }), {3, 4, 5, 6});
  check_near(run([](Builder& b) { return b.slice_rows(b.constant({1, 2, 3}, {3}), 2, 1); }), {3});
  const auto experts = [](Builder& b) { return b.constant({1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12}, {2, 3, 2}); };
  check_near(run([&](Builder& b) { return b.slice_rows(experts(b), 1, 2); }), {3, 4, 5, 6, 9, 10, 11, 12});
}

TEST_CASE("of two lists of RoPE factors, the second is for contexts longer than the original one") {
  const auto freqs = [](std::size_t blocks) {
    StepInputs in = step(2);
    in.block_table[0].resize(blocks, 0);
    return run(
        [](Builder& b) {
          return b.rope_freqs({.dims = 4, .base = 100, .original_context = 64}, b.constant({1, 2}, {2}),
                              b.constant({4, 5}, {2}));
        },
        false, in);
  };
  check_near(freqs(2), {1, 0.05f});
  check_near(freqs(3), {0.25f, 0.02f});
}

TEST_CASE("split and concat_rows, contiguous and interleaved") {
  const auto part = [](const PartsAttrs& parts, std::uint32_t i) {
    return run([&](Builder& b) {
      const Value x = b.constant({0, 1, 2, 3, 4, 5, 6, 7, 10, 11, 12, 13, 14, 15, 16, 17}, {2, 8});
      return Value{b.graph().add(Op::kSplit, {x}, parts), i};
    });
  };
  check_near(part({{2, 6}, 0}, 1), {2, 3, 4, 5, 6, 7, 12, 13, 14, 15, 16, 17});
  check_near(part({{4, 4}, 2}, 0), {0, 1, 4, 5, 10, 11, 14, 15});
  check_near(part({{4, 4}, 2}, 1), {2, 3, 6, 7, 12, 13, 16, 17});
  const auto concat = [](Shape shape, const PartsAttrs& parts) {
    return run([&](Builder& b) {
      const Value p = b.constant({1, 2, 3, 4}, shape);
      const Value q = b.constant({5, 6, 7, 8}, shape);
      return Value{b.graph().add(Op::kConcatRows, {p, q}, parts), 0};
    });
  };
  check_near(concat({2, 2}, {{2, 2}, 0}), {1, 2, 3, 4, 5, 6, 7, 8});
  check_near(concat({2, 2}, {{2, 2}, 1}), {1, 2, 5, 6, 3, 4, 7, 8});
  check_near(concat({4}, {{4, 4}, 2}), {1, 2, 5, 6, 3, 4, 7, 8});
}

TEST_CASE("matmul multiplies by the transposed weight; embed and gather_rows select rows") {
  check_near(run([](Builder& b) {
               return b.matmul(b.constant({1, 2, 3, 4}, {2, 2}), b.constant({1, 0, 0, 1, 1, 1}, {3, 2}));
             }),
             {1, 2, 3, 3, 4, 7});
  StepInputs in = step(2);
  in.ids = {2, 0};
  in.rows = {1};
  const auto table = [](Builder& b) { return b.constant({1, 2, 3, 4, 5, 6}, {3, 2}); };
  check_near(run([&](Builder& b) { return b.embed(table(b), b.input(InputKind::kIds)); }, false, in), {5, 6, 1, 2});
  check_near(run([&](Builder& b) { return b.gather_rows(table(b), b.input(InputKind::kRows)); }, false, in), {3, 4});
  in.ids[0] = 3;
  CHECK_THAT(error_of([&] { run([&](Builder& b) { return b.embed(table(b), b.input(InputKind::kIds)); }, false, in); }),
             Catch::Contains("row 3 of a table of 3 rows"));
}

TEST_CASE("match_rms and gaussian_topk, by hand") {
  check_near(
      run([](Builder& b) { return b.match_rms(b.constant({3, 4, 0, 0}, {2, 2}), b.constant({0, 10, 1, 2}, {2, 2})); }),
      {6, 8, 0, 0});
  // Means 2 and 5; deviations 2 and, of equal numbers, 0.
  check_near(run([](Builder& b) { return b.gaussian_topk(b.constant({0, 2, 4, 5, 5, 5}, {2, 3}), 0.5F); }),
             {0, 0, 1, 0, 0, 0});
  check_near(run([](Builder& b) { return b.gaussian_topk(b.constant({0, 2, 4}, {1, 3}), -0.5F); }), {0, 1, 3});
}

TEST_CASE("RMSNorm of whole rows, of heads, and as its two halves") {
  check_near(run([](Builder& b) { return b.rms_norm(b.constant({3, 4}, {1, 2}), b.constant({1, 2}, {2}), 0); }),
             {3 / 3.5355339f, 8 / 3.5355339f});
  check_near(run([](Builder& b) { return b.rms_norm(b.constant({3, 4, 0, 2}, {1, 4}), b.constant({1, 2}, {2}), 2); }),
             {3 / 3.8078866f, 8 / 3.8078866f, 0, 2});
  Floats x(80, 1);
  x[0] = 3;
  x[79] = 5;
  const auto squares = [&](Builder& b) { return Value{b.graph().add(Op::kSumSquares, {b.constant(x, {2, 40})}), 0}; };
  check_near(run(squares), {24, 16, 8, 16, 16, 32});
  check_near(run([&](Builder& b) {
               const Value s = squares(b);
               return Value{b.graph().add(Op::kInvRmsScale, {b.constant({2, 6}, {2, 1}), s}, NormAttrs{0.4f, 40}), 0};
             }),
             {2 / std::sqrt(1.6f), 6 / std::sqrt(2.0f)});
}

TEST_CASE("quantize keeps f32 by default; with int8 enabled 32 values share a scale of amax/127") {
  Floats x(64, 0);
  x[0] = 127;
  x[1] = 0.4f;
  x[2] = -63.6f;
  x[32] = 1;
  x[33] = 0.5f;
  const auto quantize = [&](DType type) {
    return [&x, type](Builder& b) {
      return Value{b.graph().add(Op::kQuantize, {b.constant(x, {1, 64})}, QuantizeAttrs{type}), 0};
    };
  };
  const auto graph = quantize(DType::kQ8A_32);
  CHECK(run(graph) == x);
  const auto rounded = run(graph, true);
  CHECK(rounded[0] == 127);
  CHECK(rounded[1] == 0);
  CHECK(rounded[2] == -64);
  CHECK(rounded[32] == Approx(1));
  CHECK(rounded[33] == Approx(64.0 / 127));
}

TEST_CASE("q8a_16: 16 values share a scale of amax/127 that is rounded up to BF16") {
  Floats x(32, 0);
  x[0] = 127;
  x[1] = 0.4f;
  x[16] = 1;
  x[17] = 0.5f;
  const auto rounded = run(
      [&](Builder& b) {
        return Value{b.graph().add(Op::kQuantize, {b.constant(x, {1, 32})}, QuantizeAttrs{DType::kQ8A_16}), 0};
      },
      true);
  CHECK((rounded[0] == 127 && rounded[1] == 0));
  const float scale = 0x1.04p-7f;  // 1/127 = 0x1.02041p-7, and BF16 has 7 fraction bits
  CHECK((rounded[16] == 126 * scale && rounded[17] == 63 * scale));
}

TEST_CASE("q16a_16: 16 values share a scale of amax/32639 that is rounded up to BF16, and are clamped") {
  Floats x(32, 0);
  x[0] = 32640;
  x[1] = 0.4f;
  x[2] = -1.6f;
  x[16] = 0x1p30f;
  const auto rounded = run(
      [&](Builder& b) {
        return Value{b.graph().add(Op::kQuantize, {b.constant(x, {1, 32})}, QuantizeAttrs{DType::kQ16A_16}), 0};
      },
      true);
  const float scale = 0x1.02p0f;  // 32640/32639 is above 1, and BF16 has 7 fraction bits
  CHECK((rounded[0] == 32387 * scale && rounded[1] == 0 && rounded[2] == -2 * scale));
  CHECK(rounded[16] == Approx(16.0 * 65504).epsilon(1e-5));
}

TEST_CASE("RoPE frequencies: default, by factors, linear, YaRN") {
  const auto freqs = [](const RopeFreqsAttrs& attrs, Floats factors = {}) {
    return run([&](Builder& b) {
      const auto n = static_cast<std::int64_t>(factors.size());
      return b.rope_freqs(attrs, factors.empty() ? Value{} : b.constant(factors, {n}));
    });
  };
  check_near(freqs({.dims = 4, .base = 100}), {1, 0.1f});
  check_near(freqs({.dims = 4, .base = 100}, {2, 5}), {0.5f, 0.02f});
  check_near(freqs({.dims = 4, .base = 100, .scaling = RopeScaling::kLinear, .factor = 4}), {0.25f, 0.025f});
  // dims 8, base 10000: frequencies 1, .1, .01, .001. Context 1000, beta_fast 32 turns, beta_slow 1. The ramp goes from
  // dimension floor(8 ln(1000/(32*2pi)) / (2 ln 1e4)) = 0 to ceil(8 ln(1000/2pi) / (2 ln 1e4)) = 3. The share of the
  // interpolated frequency is 0, 1/3, 2/3, 1.
  const RopeFreqsAttrs yarn{
      .dims = 8, .base = 10000, .scaling = RopeScaling::kYarn, .factor = 4, .original_context = 1000, .ext_factor = 1};
  check_near(freqs(yarn), {1, 0.1f * (2.0f / 3 + 0.25f / 3), 0.01f * (1.0f / 3 + 0.5f / 3), 0.00025f});
  RopeFreqsAttrs off = yarn;
  off.ext_factor = 0;
  check_near(freqs(off), {0.25f, 0.025f, 0.0025f, 0.00025f});
}

TEST_CASE("RoPE rotates neighbouring pairs or halves by position x frequency") {
  StepInputs in = step(2);
  in.kv_length = {8};
  in.positions = {0, 3};
  const auto table = [](Builder& b) {
    return b.rope_table(b.input(InputKind::kPositions), b.constant({0.5f, 0.25f}, {2}), 2);
  };
  const float c0 = 2 * std::cos(1.5f), s0 = 2 * std::sin(1.5f), c1 = 2 * std::cos(0.75f), s1 = 2 * std::sin(0.75f);
  check_near(run(table, false, in), {2, 0, 2, 0, c0, s0, c1, s1});
  const auto rope = [&](RopeMode mode, std::int64_t head_dim, Floats x) {
    return run(
        [&](Builder& b) {
          const Value turned = b.rope(b.embed(b.constant(x, {2, 5}), b.input(InputKind::kIds)), table(b),
                                      {.head_dim = head_dim, .rotary_dims = 4, .mode = mode});
          return turned;
        },
        false, in);
  };
  const Floats x{1, 2, 3, 4, 5, 6, 7, 8, 9, 10};
  check_near(rope(RopeMode::kPairs, 5, x),
             {2, 4, 6, 8, 5, 6 * c0 - 7 * s0, 6 * s0 + 7 * c0, 8 * c1 - 9 * s1, 8 * s1 + 9 * c1, 10});
  check_near(rope(RopeMode::kHalves, 5, x),
             {2, 4, 6, 8, 5, 6 * c0 - 8 * s0, 7 * c1 - 9 * s1, 6 * s0 + 8 * c0, 7 * s1 + 9 * c1, 10});
}

namespace {

/// One attention layer with head_dim 1. Token t of the step has the rows q = qs[t], k = ks[t], v = vs[t].
/// halves: k and v have a store each.
Floats attend(const AttentionAttrs& attrs, const StepInputs& in, ReferenceKv& kv, Floats qs, Floats ks, Floats vs,
              Floats sinks = {}, bool halves = false) {
  Graph graph;
  Builder b(graph);
  const Value rows = b.input(InputKind::kIds);
  const auto tokens = static_cast<std::int64_t>(in.ids.size());
  const auto values = [&](const Floats& x) {
    return b.embed(b.constant(x, {tokens, static_cast<std::int64_t>(x.size()) / tokens}), rows);
  };
  Value state = b.kv_state({0, attrs.layer + 1, attrs.kv_heads, attrs.head_dim, 0});
  const Value q = values(qs);
  const Value k = values(ks);
  if (halves) {
    const auto store = [&](Value rows_of, KvHalf half) {
      return Value{graph.add(Op::kKvStore,
                             {state, rows_of, b.input(InputKind::kPositions), b.input(InputKind::kSequence),
                              b.input(InputKind::kBlockTable)},
                             KvStoreAttrs{attrs.layer, half}),
                   0};
    };
    state = store(values(vs), KvHalf::kValues);
    state = store(k, KvHalf::kKeys);
  } else {
    state = b.kv_store(state, k, values(vs), attrs.layer);
  }
  graph.add_output("y", b.attention(q, state, attrs, sinks.empty() ? Value{} : b.constant(sinks, {attrs.heads})));
  graph.add_output("kv", state);
  verify(graph);
  StepInputs numbered = in;
  for (std::size_t t = 0; t < in.ids.size(); ++t) numbered.ids[t] = static_cast<std::int32_t>(t);
  return interpret(graph, numbered, kv, {}).at("y").f32;
}

}  // namespace

TEST_CASE("attention is causal, grouped, scaled, capped and windowed, by hand") {
  ReferenceKv kv{.block_tokens = 2, .rows = {}};
  const AttentionAttrs plain{0, 2, 1, 1, 0.5f, 0, 0};
  const float e = std::exp(1.0f);
  // k = 0, 2. Head 0 (q = 1) weighs by exp(0), exp(1); head 1 (q = 0) weighs evenly.
  check_near(attend(plain, step(2), kv, {1, 0, 1, 0}, {0, 2}, {10, 20}), {10, 10, (10 + 20 * e) / (1 + e), 15});
  CHECK(kv.rows.size() == 2);
  ReferenceKv by_halves{.block_tokens = 2, .rows = {}};
  check_near(attend(plain, step(2), by_halves, {1, 0, 1, 0}, {0, 2}, {10, 20}, {}, true),
             {10, 10, (10 + 20 * e) / (1 + e), 15});
  // The next token sees all three; its block is physical block 1.
  check_near(attend(plain, step(1, 2), kv, {0, 0}, {7}, {60}), {30, 30});
  CHECK(kv.rows.contains({0, 0, 2}));
  AttentionAttrs windowed = plain;
  windowed.window = 2;
  check_near(attend(windowed, step(1, 2), kv, {0, 0}, {7}, {60}), {40, 40});
  AttentionAttrs chunked = plain;  // position 2 begins a chunk of its own, or position 1 one of three
  chunked.chunk = 2;
  check_near(attend(chunked, step(1, 2), kv, {0, 0}, {7}, {60}), {60, 60});
  chunked.chunk = 3;
  check_near(attend(chunked, step(1, 2), kv, {0, 0}, {7}, {60}), {30, 30});
  AttentionAttrs capped = plain;
  capped.softcap = 0.5f;
  const float cap = std::exp(0.5f * std::tanh(2.0f));
  ReferenceKv fresh{.block_tokens = 2, .rows = {}};
  check_near(attend(capped, step(2), fresh, {1, 0, 1, 0}, {0, 2}, {10, 20}), {10, 10, (10 + 20 * cap) / (1 + cap), 15});
}

TEST_CASE("an attention sink takes its share of a head's softmax") {
  ReferenceKv kv{.block_tokens = 2, .rows = {}};
  const float e = std::exp(1.0f);
  check_near(attend({0, 2, 1, 1, 0.5f, 0, 0}, step(2), kv, {1, 0, 1, 0}, {0, 2}, {10, 20}, {0, std::log(3.0f)}),
             {5, 2.5f, (10 + 20 * e) / (2 + e), 6});
}

TEST_CASE("query heads share the KV head of their group (GQA)") {
  ReferenceKv kv;
  const AttentionAttrs attrs{0, 4, 2, 1, 1, 0, 0};
  check_near(attend(attrs, step(1), kv, {1, 1, 1, 1}, {1, 1}, {3, 8}), {3, 3, 8, 8});
}

TEST_CASE("sequences of a step do not see each other, and blocks may lie anywhere or be shared") {
  const AttentionAttrs attrs{0, 1, 1, 1, 1, 0, 0};
  ReferenceKv kv{.block_tokens = 2, .rows = {}};
  StepInputs in;  // sequence 0 has one token in block 5, sequence 1 three tokens in blocks 9 and 2
  in.ids = {0, 0, 0, 0};
  in.sequence = {0, 1, 1, 1};
  in.positions = {0, 0, 1, 2};
  in.kv_length = {1, 3};
  in.block_table = {{5}, {9, 2}};
  check_near(attend(attrs, in, kv, {0, 0, 0, 0}, {1, 1, 1, 1}, {100, 1, 2, 6}), {100, 1, 1.5f, 3});
  CHECK(kv.rows.contains({0, 0, 10}));
  CHECK(kv.rows.contains({0, 0, 18}));
  CHECK(kv.rows.contains({0, 0, 4}));
  in = {};  // a third sequence that shares block 9 as its prefix
  in.ids = {0};
  in.sequence = {0};
  in.positions = {2};
  in.kv_length = {3};
  in.block_table = {{9, 7}};
  check_near(attend(attrs, in, kv, {0}, {1}, {30}), {11});
}

TEST_CASE("invalid step inputs are refused with their numbers") {
  const AttentionAttrs attrs{0, 1, 1, 1, 1, 0, 0};
  ReferenceKv kv{.block_tokens = 2, .rows = {}};
  const auto with = [&](auto&& change) {
    StepInputs in = step(1, 4);
    change(in);
    return error_of([&] { attend(attrs, in, kv, {0}, {1}, {1}); });
  };
  CHECK_THAT(with([](StepInputs&) {}), Catch::Contains("position 0 of sequence 0, which was never stored"));
  CHECK_THAT(with([](StepInputs& in) { in.block_table[0].resize(2); }), Catch::Contains("has no KV block"));
  CHECK_THAT(with([](StepInputs& in) { in.block_table[0][2] = -1; }), Catch::Contains("has no KV block"));
  CHECK_THAT(with([](StepInputs& in) { in.positions.clear(); }), Catch::Contains("1 ids, 0 positions"));
  CHECK_THAT(with([](StepInputs& in) { in.sequence[0] = 1; }), Catch::Contains("sequence 1, the step has 1"));
  CHECK_THAT(with([](StepInputs& in) { in.kv_length[0] = 4; }), Catch::Contains("its sequence is 4 long"));
  Graph graph;
  graph.add_output("w", Builder(graph).weight("w", DType::kF32, {4}));
  CHECK_THAT(error_of([&] { interpret(graph, step(1), kv, [](auto&, auto&) { return Floats(3); }); }),
             Catch::Contains("3 values for w f32[4]"));
}

TEST_CASE("weights are loaded once, and only when used") {
  Graph graph = test::SmallLlama{.layers = 1}.build();
  Builder(graph).weight("unused", DType::kF32, {4});
  std::map<std::string, int> loads;
  ReferenceKv kv;
  interpret(graph, step(2), kv, [&](const std::string& name, const TensorType& type) {
    ++loads[name];
    return made_up_weight(name, type);
  });
  CHECK(loads.size() == 11);  // two nodes name token_embd.weight
  for (const auto& [name, count] : loads) CHECK((count == 1 && name != "unused"));
}

TEST_CASE("a prompt at once, in chunks, and token by token gives the same logits") {
  const Graph graph = test::SmallLlama{.layers = 2, .window = 4}.build();
  ReferenceKv whole{.block_tokens = 2, .rows = {}};
  const auto all = logits(graph, step(7), whole);
  ReferenceKv pieces{.block_tokens = 3, .rows = {}};
  Floats joined;
  for (const auto& [n, first] : {std::pair{3, 0}, {1, 3}, {1, 4}, {2, 5}}) {
    const auto part = logits(graph, step(static_cast<std::size_t>(n), first, 11), pieces);
    joined.insert(joined.end(), part.begin(), part.end());
  }
  CHECK(joined == all);
  ReferenceKv rounded;
  const auto int8 = logits(graph, step(7), rounded, true);
  CHECK(int8 == all);  // this graph has no quantize node
}

TEST_CASE("merged QKV and split RMSNorm give the results of the separate ops") {
  const auto build = [](bool merged) {
    Graph graph;
    Builder b(graph);
    const Value table = b.weight("e", DType::kF32, {8, 64});
    const Value x = b.embed(table, b.input(InputKind::kIds));
    const Value gain = b.weight("gain", DType::kF32, {64});
    const Value wq = b.weight("q", DType::kF32, {32, 64});
    const Value wk = b.weight("k", DType::kF32, {32, 64});
    if (merged) {
      const Value squares{graph.add(Op::kSumSquares, {x}), 0};
      const Value q8{graph.add(Op::kQuantize, {b.mul(x, gain)}, QuantizeAttrs{}), 0};
      const Value both{graph.add(Op::kConcatRows, {wq, wk}, PartsAttrs{{32, 32}, 4}), 0};
      const Value y{graph.add(Op::kInvRmsScale, {b.matmul(q8, both), squares}, NormAttrs{1e-5f, 64}), 0};
      const NodeId parts = graph.add(Op::kSplit, {y}, PartsAttrs{{32, 32}, 4});
      graph.add_output("logits", b.mul({parts, 0}, {parts, 1}));
    } else {
      const Value h = b.rms_norm(x, gain, 1e-5f);
      graph.add_output("logits", b.mul(b.matmul(h, wq), b.matmul(h, wk)));
    }
    return graph;
  };
  ReferenceKv kv;
  const auto separate = logits(build(false), step(3), kv);
  check_near(logits(build(true), step(3), kv), separate, 1e-5);
  const auto int8 = logits(build(true), step(3), kv, true);
  CHECK(int8 != separate);
  check_near(int8, separate, 0.05);
}

TEST_CASE("a graph with every op runs") {
  ReferenceKv kv;
  auto inputs = step(5);
  inputs.state_read = {-1};
  inputs.state_write = {0};
  const auto out = interpret(test::every_op(), inputs, kv, made_up_weight, true);
  CHECK(out.size() == 1);
  const Tensor& hidden = out.at("hidden \"state\"");
  CHECK(hidden.dims == std::vector<std::int64_t>{5, 24});
  for (const float value : hidden.f32) CHECK(std::isfinite(value));
  CHECK(kv.rows.size() == 10);  // keys and values, and index keys
  CHECK(kv.rows.contains({3, 1, 4}));
}

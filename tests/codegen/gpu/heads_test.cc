// The step that makes an attention's heads (norms, RoPE, stores of keys and values), as a launch of its own and in the
// attention's: which steps are joined, and that no target keeps their arguments or values in private memory.

#include <fmt/format.h>
#include <catch2/catch.hpp>

#include "codegen/compile.h"
#include "codegen/gpu/gpu_target.h"
#include "ir/builder.h"
#include "passes/schedule/bind_variants.h"
#include "tests/codegen/gpu/kernels.h"

namespace forge::codegen::tests {
namespace {

using ir::Value;

/// Attention of one layer whose heads come from one row: normed and rotated queries and keys, and values.
struct Layer {
  std::int64_t heads = 4, kv_heads = 2, head_dim = 64;
  bool norm_values = false;     ///< as Gemma 3n does
  bool query_is_used = false;   ///< something else reads the queries
  bool query_is_stored = true;  ///< the attention reads what the step makes
  std::int64_t value_dim = 0;   ///< 0: head_dim

  [[nodiscard]] ir::Graph graph() const {
    ir::Graph graph;
    ir::Builder b(graph);
    const auto values = value_dim > 0 ? value_dim : head_dim;
    const std::int64_t columns[] = {heads * head_dim, kv_heads * head_dim, kv_heads * values};
    const Value x = b.embed(b.weight("embd", DType::kF32, {64, columns[0] + columns[1] + columns[2]}),
                            b.input(ir::InputKind::kIds));
    const auto parts = b.split(x, {columns[0], columns[1], columns[2]});
    const auto normed = [&](Value rows, const char* name, std::int64_t dim) {
      return b.rms_norm(rows, b.weight(name, DType::kF32, {dim}), 1e-6F);
    };
    const Value freqs = b.constant(std::vector<float>(static_cast<std::size_t>(head_dim) / 2, 1.0F), {head_dim / 2});
    const Value angles = b.rope_table(b.input(ir::InputKind::kPositions), freqs, 1);
    const ir::RopeAttrs rope{head_dim, head_dim, ir::RopeMode::kHalves};
    const Value q_normed = normed(parts[0], "q_norm", head_dim), k_normed = normed(parts[1], "k_norm", head_dim);
    const Value v = norm_values ? normed(parts[2], "v_norm", values) : parts[2];
    const Value q = b.rope(q_normed, angles, rope), k = b.rope(k_normed, angles, rope);
    ir::KvStateAttrs state{.layers = 1, .kv_heads = kv_heads, .head_dim = head_dim};
    state.value_dim = value_dim;
    const Value stored = b.kv_store(b.kv_state(state), k, v, 0);
    ir::AttentionAttrs attention;
    attention.heads = heads;
    attention.kv_heads = kv_heads;
    attention.head_dim = head_dim;
    attention.value_dim = value_dim;
    attention.scale = 0.125F;
    const Value other = b.embed(b.weight("others", DType::kF32, {64, columns[0]}), b.input(ir::InputKind::kIds));
    const Value query = query_is_stored ? q : other;
    const Value y = b.attention(query, stored, attention);
    graph.add_output("y", y);
    if (query_is_used || !query_is_stored) graph.add_output("q", b.scale(q, 2));
    const auto group = graph.new_group();
    for (const Value& value : {parts[0], q_normed, k_normed, v, q, k, stored}) graph.set_group(value.node, group);
    return graph;
  }
};

struct Options {
  Tuning tuning;
  DType kv_type = DType::kF16;
  bool deterministic = false;
};

passes::Program bound(const GpuTarget& target, const Layer& layer, const Options& options = {}) {
  const AttentionChoice attention;
  const GpuTargetModel model(target, options.tuning, attention, options.kv_type, options.deterministic);
  return passes::bind_variants(layer.graph(), model, model.variants(2048, 2));
}

/// True if one step of the variant makes the heads and attends to them; else two do.
bool joined(const passes::Variant& variant) {
  const auto count = [&](auto&& what) { return std::ranges::count_if(variant.steps, what); };
  const auto has = [](const passes::Step& step, std::string_view part) {
    return step.choice.step.label.contains(part);
  };
  CHECK(count([&](const auto& step) { return has(step, "store_k"); }) == 1);
  CHECK(count([&](const auto& step) { return has(step, "attention"); }) == 1);
  return count([&](const auto& step) { return has(step, "store_k") && has(step, " + attention"); }) == 1;
}

bool joins(const Layer& layer, const Options& options = {}, const char* target = "gfx1100") {
  const auto program = bound(*find_target(target), layer, options);
  CHECK(program.variants[0].name == "decode1");
  return joined(program.variants[0]);
}

}  // namespace

TEST_CASE("attention of one token makes its heads; with more tokens a launch of its own makes them") {
  const auto program = bound(*find_target("gfx1100"), {});
  REQUIRE(program.variants.size() > 2);
  CHECK(joined(program.variants[0]));
  for (std::size_t i = 1; i < program.variants.size(); ++i) {
    CAPTURE(program.variants[i].name);
    CHECK_FALSE(joined(program.variants[i]));
  }
}

TEST_CASE("attention makes heads only if nothing else reads them, they are whole waves, and all are as wide") {
  CHECK(joins({}));
  CHECK(joins({.norm_values = true}));
  CHECK_FALSE(joins({.query_is_used = true}));
  CHECK_FALSE(joins({.query_is_stored = false}));
  CHECK(joins({.head_dim = 32}));
  CHECK_FALSE(joins({.head_dim = 32}, {}, "gfx90a"));  // waves of 64 lanes
  CHECK_FALSE(joins({.head_dim = 48}));
  CHECK_FALSE(joins({.value_dim = 32}));
  CHECK_FALSE(joins({}, {}, "sm_90"));  // kernels overlap
  CHECK(joins({}, {.tuning = {{"join_heads", 1}}}, "sm_90"));
  CHECK(joins({}, {}, "sm_80"));
  CHECK_FALSE(joins({}, {.tuning = {{"join_heads", 0}}}));
  CHECK_FALSE(joins({}, {.tuning = {{"attention_waves", 1}}}));
  CHECK(joins({}, {.tuning = {{"attention_waves", 2}}}));
  CHECK_FALSE(joins({}, {.deterministic = true}));
}

TEST_CASE("kernels that make heads keep arguments and values in registers") {
  for (const GpuTarget* target : compilable({"gfx900", "gfx90a", "gfx1030", "gfx1100", "gfx1201", "gfx942", "sm_90"}))
    for (const auto type : {DType::kF16, DType::kQ8_0, DType::kQ4_0, DType::kFp8}) {
      if (!supports_kv_type(target->name, type)) continue;
      KernelSet kernels;
      for (const Layer& layer : {Layer{.heads = 32, .kv_heads = 4, .head_dim = 128},
                                 Layer{.heads = 8, .kv_heads = 4, .head_dim = 256, .norm_values = true},
                                 Layer{.heads = 16, .kv_heads = 8, .head_dim = 64, .norm_values = true}}) {
        const auto program = bound(*target, layer, {.tuning = {{"join_heads", 1}}, .kv_type = type});
        REQUIRE(joined(program.variants[0]));
        for (const auto* variant : {&program.variants[0], &program.variants[1]})
          for (const auto& step : variant->steps)
            if (step.choice.step.label.contains("store_k")) kernels.add(step.choice.kernel);
      }
      for (const auto& kernel : compiled(*target, kernels)) {
        INFO(target->name << ": " << kernel.facts.registers << " registers, " << kernel.facts.lds_bytes
                          << " bytes of LDS");
        CHECK(kernel.facts.spill_bytes <= 0);
        CHECK(kernel.facts.lds_bytes <= 48 << 10);
      }
    }
}

}  // namespace forge::codegen::tests

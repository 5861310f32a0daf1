// Parts that only some families have: leaving one out of a model's graph, or changing it, moves the logits away from
// NumPy's (make_families.py). Limits that the fixture's few tokens do not reach are compared as numbers.

#include <catch2/catch.hpp>

#include <algorithm>

#include "runtime/cpu/executor.h"
#include "runtime/weights/weight_source.h"
#include "tests/e2e/family_errors.h"

using namespace forge;
using namespace forge::tests;
using ir::Op;

namespace {

/// The error of a family's model with `change` on the attributes of all its nodes of `op`.
template <class Attrs, class Change>
double changed(const char* name, Op op, Change change) {
  const auto& model = family_model(name);
  return error_of(model, with_attrs<Attrs>(family_graph(model), op, change));
}
double cut(const char* name, Op op) {
  const auto& model = family_model(name);
  return error_of(model, without(family_graph(model), op));
}

}  // namespace

TEST_CASE("gates on attended heads are noticed") {
  CHECK(cut("afmoe", Op::kMul) > kNoticed);
  CHECK(cut("afmoe", Op::kSigmoid) > kNoticed);
  CHECK(cut("step35", Op::kMul) > kNoticed);
  CHECK(cut("step35", Op::kSigmoid) > kNoticed);
}

TEST_CASE("the limits of SwiGLU, a clamp of q, k and v, and ReLU are noticed") {
  for (const float limit : {0.25F, 0.5F, 0.75F})  // of dense, shared and routed experts
    CHECK(changed<ir::GluAttrs>("step35", Op::kGlu, [&](auto& glu) {
            if (glu.parameters[0] == limit) glu = {ir::Activation::kSilu};
          }) > kNoticed);
  CHECK(cut("dbrx", Op::kClamp) > kNoticed);
  CHECK(changed<ir::ClampAttrs>("dbrx", Op::kClamp, [](auto& clamp) { clamp.limit = 1.25F; }) > kNoticed);
  CHECK(cut("olmo_clamped", Op::kClamp) > kNoticed);
  CHECK(changed<ir::GluAttrs>("smallthinker", Op::kGlu, [](auto& glu) { glu = {ir::Activation::kSilu}; }) > kNoticed);
}

TEST_CASE("jais: ALiBi's slopes and the scale of scores are noticed") {
  CHECK(changed<ir::AttentionAttrs>("jais", Op::kAttention, [](auto& a) { a.alibi = 0; }) > kNoticed);
  CHECK(changed<ir::AttentionAttrs>("jais", Op::kAttention, [](auto& a) { a.alibi = 4; }) > kNoticed);
  CHECK(cut("jais", Op::kScale) > kNoticed);
}

TEST_CASE("smallthinker's router reads the layer's input, not that of the experts") {
  const auto& model = family_model("smallthinker");
  auto graph = family_graph(model);
  std::vector<ir::Value> normed(5);  // by layer: the input of its experts
  for (const auto node : graph.nodes())
    if (graph.op(node) == Op::kGlu)
      normed.at(static_cast<std::size_t>(graph.layer(node))) = graph.operand(graph.operand(node, 0).node, 0);
  for (const auto node : graph.nodes())
    if (graph.op(node) == Op::kRoute)
      graph.set_operand({graph.operand(node, 0).node, 0}, normed.at(static_cast<std::size_t>(graph.layer(node))));
  CHECK(error_of(model, graph) > kNoticed);
}

TEST_CASE("llama4: chunks, temperatures and unweighted norms are in the layers that have them") {
  const auto graph = family_graph(family_model("llama4"));
  for (const auto node : graph.nodes()) {
    if (graph.op(node) == Op::kAttention) {
      CHECK(graph.attrs_as<ir::AttentionAttrs>(node).chunk == (graph.layer(node) == 3 ? 0 : 8192));
    } else if (graph.op(node) == Op::kRopeTable) {
      const auto& table = graph.attrs_as<ir::RopeTableAttrs>(node);
      const auto& freqs = graph.attrs_as<ir::RopeFreqsAttrs>(graph.operand(node, 1).node);
      CHECK((freqs.factor > 1e9F) == (table.temperature == 0.1F));  // the layer that does not rotate
      if (table.temperature != 0) CHECK((table.temperature_length == 8192 && table.temperature_offset == 1));
    }
  }
  CHECK(changed<ir::AttentionAttrs>("llama4", Op::kAttention, [](auto& a) { a.chunk = a.chunk > 0 ? 4 : 0; }) >
        kNoticed);
  CHECK(changed<ir::RopeTableAttrs>("llama4", Op::kRopeTable, [](auto& table) {
          if (table.temperature != 0) table.temperature_length = 4;
        }) > kNoticed);
  const auto has_norm_of_heads = [](const char* name) {
    const auto made = family_graph(family_model(name));
    return std::ranges::any_of(made.nodes(), [&](auto node) {
      return made.op(node) == Op::kRmsNorm && made.attrs_as<ir::NormAttrs>(node).dim == 16;
    });
  };
  CHECK((has_norm_of_heads("llama4") && !has_norm_of_heads("llama4_maverick")));
}

TEST_CASE("llama4 in chunks and with a temperature, in few tokens: the program does as the interpreter") {
  const TinyModel tiny(FileImage{family_gguf(family_model("llama4"))});
  auto graph = with_attrs<ir::AttentionAttrs>(tiny.portable().graph, Op::kAttention,
                                              [](auto& a) { a.chunk = a.chunk > 0 ? 5 : 0; });
  graph = with_attrs<ir::RopeTableAttrs>(std::move(graph), Op::kRopeTable, [](auto& table) {
    if (table.temperature != 0) table.temperature_length = 4;
  });
  std::shared_ptr<const plan::ProgramT> program =
      codegen::compile_program(graph, tiny.file(), codegen::host_target(), {.context = 64, .batch_max = 4});
  runtime::SpanWeightSource source("tiny", tiny.bytes());
  runtime::CpuExecutor executor(program, source, {.threads = 2});
  const auto whole = run_alone(executor, family_tokens(), 64, {0});
  CHECK(nmse(whole, tiny.reference(graph, family_tokens(), false)) < 1e-5);  // keys and values are rounded to f16
  CHECK(nmse(whole, tiny.reference(tiny.portable().graph, family_tokens(), false)) > kNoticed);
  CHECK(whole == run_alone(executor, family_tokens(), 1, {0}));
}

TEST_CASE("mistral4's temperature is noticed, and grovemoe's adjugate experts are those of the chosen ones' groups") {
  const auto tempered = [](auto& a) { return a.temperature != 0; };
  CHECK(changed<ir::RopeTableAttrs>("mistral4", Op::kRopeTable, [&](auto& a) {
          if (tempered(a)) a.temperature = 0.5F;
        }) > kNoticed);
  CHECK(changed<ir::RopeTableAttrs>("mistral4", Op::kRopeTable, [&](auto& a) {
          if (tempered(a)) a.temperature_length = 6;
        }) > kNoticed);
  const auto adjugate = [](auto change) {
    return changed<ir::RouteAttrs>("grovemoe", Op::kRoute, [&](auto& a) {
      if (a.experts_per_adjugate > 1) change(a);
    });
  };
  CHECK(adjugate([](auto& a) { a.experts_per_adjugate = 8; }) > kNoticed);
  CHECK(adjugate([](auto& a) { a.share = ir::RoutingNormalization::kAll; }) > kNoticed);
}

TEST_CASE("deci: layers lack attention or the FFN where the file says so") {
  const auto graph = family_graph(family_model("deci"));
  std::vector<int> attentions(5), networks(5);
  for (const auto node : graph.nodes()) {
    if (graph.layer(node) < 0) continue;
    attentions[static_cast<std::size_t>(graph.layer(node))] += graph.op(node) == Op::kAttention;
    networks[static_cast<std::size_t>(graph.layer(node))] += graph.op(node) == Op::kGlu;
  }
  CHECK(attentions == std::vector{1, 0, 0, 1, 1});
  CHECK(networks == std::vector{1, 1, 1, 0, 1});
}

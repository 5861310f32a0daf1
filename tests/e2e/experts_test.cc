// Mixtures of experts (MoE) from the file to the logits: equal to the interpreter, batch-invariant, no weights read of
// experts that were not selected, and broken plans refused.

#include <catch2/catch.hpp>

#include <functional>
#include <numeric>

#include "passes/pass.h"
#include "runtime/plan/step.h"
#include "support/error.h"
#include "tests/e2e/family_models.h"
#include "tests/e2e/tiny_model.h"
#include "tests/runtime/allocation_counter.h"

using namespace forge;
using namespace forge::tests;

namespace {

TinyShape mixture(DType dtype, std::int64_t experts = 6, std::int64_t used = 2) {
  return {.dtype = dtype, .experts = experts, .experts_used = used};
}

std::vector<std::int32_t> blocks(std::int32_t count, std::int32_t first = 0) {
  std::vector<std::int32_t> out(static_cast<std::size_t>(count));
  std::iota(out.begin(), out.end(), first);
  return out;
}

/// The last step of variant 0 that runs this kernel; for "experts" it is the weighted sum over experts.
plan::StepT& last_step(plan::ProgramT& program, std::string_view kernel) {
  plan::StepT* found = nullptr;
  for (const auto& step : program.variants.at(0)->steps)
    if (plan::kernel_name(program, *step) == kernel) found = step.get();
  REQUIRE(found != nullptr);
  return *found;
}

}  // namespace

TEST_CASE("experts: every weight type gives the interpreter's logits, as one prefill and token by token") {
  for (const auto dtype : {DType::kF32, DType::kF16, DType::kBF16, DType::kQ8_0, DType::kQ4_0, DType::kQ4_1}) {
    const TinyModel model(mixture(dtype), 3);
    const auto ids = random_ids(70, model.file().vocab, 3);
    const auto reference = model.reference(model.portable().graph, ids, false);
    const auto executor = model.open();
    const auto prefill = run_alone(*executor, ids, 64, blocks(3));
    INFO(dtype_name(dtype) << " nmse " << nmse(prefill, reference));
    // Rounded activations may decide a near tie of the router differently, which changes the logits of that token
    // completely. The bound for rounded types is therefore wide.
    CHECK(nmse(prefill, reference) < (meets_floats(dtype) ? 3e-6 : is_float(dtype) ? 1e-3 : 2e-2));
    CHECK(run_alone(*executor, ids, 1, blocks(3)) == prefill);
    if (is_float(dtype))
      CHECK(nmse(run_alone(*model.open(1, 4, {}, target_of_floats()), ids, 64, blocks(3)), reference) < 3e-6);
  }
}

TEST_CASE("experts: shapes that do not divide evenly, one expert, all experts, biases") {
  const TinyShape shapes[] = {
      {.width = 60,
       .ffn = 100,
       .heads = 3,
       .kv_heads = 1,
       .head_dim = 20,
       .vocab = 33,
       .experts = 5,
       .experts_used = 3},
      {.dtype = DType::kF16, .ffn = 24, .biases = true, .experts = 17, .experts_used = 4},
      {.ffn = 8, .biases = true, .experts = 3, .experts_used = 3},
      {.ffn = 80, .experts = 1, .experts_used = 1},
      {.dtype = DType::kBF16, .width = 96, .ffn = 48, .experts = 40, .experts_used = 8},
  };
  for (const auto& shape : shapes) {
    const TinyModel model(shape, 7);
    const auto ids = random_ids(45, model.file().vocab, 5);
    const auto reference = model.reference(model.portable().graph, ids, false);
    const auto executor = model.open(2);
    const auto logits = run_alone(*executor, ids, 64, blocks(2));
    INFO("width " << shape.width << " experts " << shape.experts << " nmse " << nmse(logits, reference));
    CHECK(nmse(logits, reference) < (meets_floats(shape.dtype) ? 1e-6 : 2e-3));
    CHECK(run_alone(*executor, ids, 1, blocks(2)) == logits);
    CHECK(nmse(run_alone(*model.open(2, 4, {}, target_of_floats()), ids, 64, blocks(2)), reference) < 1e-6);
  }
}

TEST_CASE("experts: a result does not depend on chunking, thread count, or CPU class with FMA") {
  const TinyModel model(mixture(DType::kQ4_1, 9, 3));
  const auto ids = random_ids(150, model.file().vocab, 11);
  const auto expected = run_alone(*model.open(), ids, 64, blocks(5));
  for (const std::size_t threads : {1, 2, 7})
    for (const std::size_t chunk : {1, 7, 50, 64}) {
      INFO("threads " << threads << " chunk " << chunk);
      CHECK(run_alone(*model.open(threads), ids, chunk, blocks(5)) == expected);
    }
  for (const auto cpu_class : cpu::all_classes()) {
    if (cpu_class == cpu::CpuClass::kGeneric || !cpu::runs_here(cpu_class)) continue;
    CHECK(run_alone(*model.open(2, 4, {}, "cpu-" + std::string(cpu::name(cpu_class))), ids, 64, blocks(5)) == expected);
  }
}

TEST_CASE("experts: one tensor per expert, as in old files, gives the same bits as one tensor for all") {
  for (const auto dtype : {DType::kF32, DType::kQ4_1, DType::kQ8_0}) {
    INFO(dtype_name(dtype));
    auto shape = mixture(dtype, 7, 3);
    const TinyModel merged(shape);
    shape.scattered = true;
    const TinyModel scattered(shape);
    CHECK_FALSE(scattered.file().tensors.contains("blk.0.ffn_gate_exps.weight"));
    CHECK(scattered.file().tensors.contains("blk.1.ffn_down.6.weight"));
    const auto ids = random_ids(40, merged.file().vocab, 9);
    const auto expected = run_alone(*merged.open(), ids, 64, blocks(2));
    CHECK(run_alone(*scattered.open(2), ids, 64, blocks(2)) == expected);
    std::vector<std::string> none;
    for (const auto& pass : passes::pipeline_passes())
      if (pass.optional) none.emplace_back(pass.name);
    CHECK(run_alone(*scattered.open(2, 4, none), ids, 64, blocks(2)) ==
          run_alone(*merged.open(2, 4, none), ids, 64, blocks(2)));
    if (dtype == DType::kF32) CHECK(nmse(expected, scattered.reference(scattered.portable().graph, ids, false)) < 1e-6);
  }
}

TEST_CASE("experts: a missing or mismatched tensor of a single expert is named") {
  const auto good = tiny_gguf({.experts = 3, .experts_used = 2, .scattered = true});
  const auto refusal = [&](std::string_view name, char instead) {
    auto image = good;
    image[image.find(name) + name.find("gate.2") + 5] = instead;
    try {
      (void)TinyModel(FileImage{image});
    } catch (const Error& error) {
      return error.exit_status() == 3 ? error.line() : std::string("another kind of error");
    }
    return std::string("built");
  };
  CHECK(refusal("blk.1.ffn_gate.2.weight", '7').find("blk.1.ffn_gate.2.weight") != std::string::npos);
}

TEST_CASE("experts: more tokens than are summed together") {
  const TinyModel model(mixture(DType::kF32, 4, 2));
  const auto ids = random_ids(700, model.file().vocab, 12);
  const auto at_once = run_alone(*model.open(2, 700), ids, 700, blocks(22));
  CHECK(at_once == run_alone(*model.open(), ids, 64, blocks(22)));
}

TEST_CASE("experts: two sequences in one step give bit for bit the results of single runs") {
  const TinyModel model(mixture(DType::kQ8_0));
  const auto vocab = static_cast<std::size_t>(model.file().vocab);
  const auto first = random_ids(20, model.file().vocab, 2), second = random_ids(20, model.file().vocab, 4);
  const auto alone_first = run_alone(*model.open(), first, 64, {0}),
             alone_second = run_alone(*model.open(), second, 64, {0});
  const auto executor = model.open(2);
  const std::vector<std::int32_t> tables{3, 1};
  for (std::int32_t i = 0; i < 20; ++i) {
    const auto at = static_cast<std::size_t>(i);
    const std::int32_t ids[] = {first[at], second[at]}, positions[] = {i, i}, sequence[] = {0, 1}, rows[] = {0, 1},
                       length[] = {i + 1, i + 1};
    const auto out = executor->forward({.ids = ids,
                                        .positions = positions,
                                        .sequence = sequence,
                                        .rows = rows,
                                        .kv_length = length,
                                        .block_table = tables,
                                        .table_stride = 1});
    const auto row = [&](const std::vector<float>& logits) { return std::span(logits).subspan(at * vocab, vocab); };
    REQUIRE(std::ranges::equal(out.first(vocab), row(alone_first)));
    REQUIRE(std::ranges::equal(out.subspan(vocab), row(alone_second)));
  }
}

TEST_CASE("experts: skipping any optional pass keeps the logits") {
  for (const bool biases : {false, true}) {
    const TinyModel model({.dtype = DType::kF16, .biases = biases, .experts = 6, .experts_used = 2});
    const auto ids = random_ids(40, model.file().vocab, 6);
    const auto expected = run_alone(*model.open(), ids, 64, blocks(2));
    for (const auto& pass : passes::pipeline_passes()) {
      if (!pass.optional) continue;
      INFO(pass.name);
      const auto executor = model.open(2, 4, {std::string(pass.name)});
      CHECK(nmse(run_alone(*executor, ids, 64, blocks(2)), expected) < 1e-6);
    }
  }
}

TEST_CASE("experts: a layer is seven steps, and decode reads only the selected experts' weights") {
  const TinyModel model(mixture(DType::kQ8_0, 16, 2));
  const auto executor = model.open(1, 1);
  const auto& decode = executor->variants()[0];
  std::vector<int> steps(2);
  std::int64_t read = 0;
  for (const auto& step : decode.steps) {
    if (step.layer >= 0) ++steps[static_cast<std::size_t>(step.layer)];
    if (step.kind == runtime::StepKind::kExperts) read += step.weight_bytes;
  }
  CHECK(steps == std::vector{7, 7});
  // Layers * matrices * selected experts * rows of a matrix * row bytes (ffn_down has 64 rows of 102 bytes: the same
  // product), plus the next layer's norm weight, which is applied in this step.
  CHECK(read == 2 * 3 * 2 * 96 * 68 + 64 * 4);
  CHECK(executor->program().variants[0]->arena_bytes == executor->program().variants[0]->arena_bound_bytes);
}

TEST_CASE("experts: a step allocates nothing") {
  const TinyModel model(mixture(DType::kQ4_0));
  const auto executor = model.open(2);
  const auto ids = random_ids(40, model.file().vocab, 2);
  const std::vector<std::int32_t> table = blocks(2), positions = blocks(40), sequence(40, 0), rows(1, 39), length{40};
  const auto before = test::allocations();
  for (int i = 0; i < 2; ++i)
    executor->forward({.ids = ids,
                       .positions = positions,
                       .sequence = sequence,
                       .rows = rows,
                       .kv_length = length,
                       .block_table = table,
                       .table_stride = 2});
  CHECK(test::allocations() == before);
}

TEST_CASE("experts: a wrong number of selected experts, normalisation or scale changes the logits") {
  const TinyModel model(mixture(DType::kF32));
  const auto ids = random_ids(30, model.file().vocab, 8);
  const auto logits = run_alone(*model.open(), ids, 64, blocks(1));
  const auto changed = [&](auto change) {
    ir::Graph graph = model.portable().graph;
    for (const auto node : graph.nodes()) {
      if (graph.op(node) != ir::Op::kRoute) continue;
      auto attrs = graph.attrs_as<ir::RouteAttrs>(node);
      change(attrs);
      graph.set_attrs(node, attrs);
    }
    return nmse(logits, model.reference(graph, ids, false));
  };
  CHECK(changed([](ir::RouteAttrs&) {}) < 1e-6);
  CHECK(changed([](ir::RouteAttrs& a) { a.share = ir::RoutingNormalization::kAll; }) > 1e-3);
  CHECK(changed([](ir::RouteAttrs& a) { a.gate = ir::RouteGate::kSigmoid; }) > 1e-4);
  CHECK(changed([](ir::RouteAttrs& a) { a.scale = 1.02F; }) > 1e-5);
}

TEST_CASE("experts: a plan with inconsistent numbers is refused") {
  const TinyModel model(mixture(DType::kQ8_0));
  CHECK(opening(model, [](auto&) {}).empty());
  const auto route_of = [](plan::ProgramT& program) { return last_step(program, "route").body.AsRoute(); };
  const auto tile_of = [](plan::ProgramT& program) { return last_step(program, "experts").body.AsTile(); };
  const auto experts_of = [&](plan::ProgramT& program) { return tile_of(program)->source.AsExpertMatmulRows(); };
  // Sets one number of the route step and of the experts' matmul at a time to values out of range.
  for (const auto member : {&plan::RouteT::experts, &plan::RouteT::used, &plan::RouteT::groups,
                            &plan::RouteT::groups_used, &plan::RouteT::group_top})
    for (const std::int32_t value : {-1, 0, 1 << 30})
      CHECK(!opening(model, [&](auto& program) { route_of(program)->*member = value; }).empty());
  for (const auto member : {&plan::ExpertMatmulRowsT::k, &plan::ExpertMatmulRowsT::expert_bytes})
    for (const std::int64_t value : {std::int64_t{-1}, std::int64_t{0}, std::int64_t{1} << 41})
      CHECK(!opening(model, [&](auto& program) { experts_of(program)->*member = value; }).empty());
  const auto says = [&](auto edit, const char* why) {
    const auto line = opening(model, edit);
    INFO(line);
    CHECK(line.find(why) != std::string::npos);
  };
  // Operands that do not exist or are in the wrong memory space.
  constexpr std::uint16_t kFar = 60'000;
  for (const auto member : {&plan::RouteT::logits, &plan::RouteT::bias, &plan::RouteT::chosen, &plan::RouteT::shares})
    says([&](auto& program) { route_of(program)->*member = kFar; }, "an operand is missing");
  for (const auto member : {&plan::ExpertMatmulRowsT::x, &plan::ExpertMatmulRowsT::chosen})
    says([&](auto& program) { experts_of(program)->*member = kFar; }, "an operand is missing");
  for (const auto* kernel : {"route", "experts"})
    says([&](auto& program) { last_step(program, kernel).operands.clear(); }, "an operand is missing");
  says([&](auto& program) { route_of(program)->gate = static_cast<plan::RouteGate>(7); }, "out of range");
  says([&](auto& program) { route_of(program)->share = static_cast<plan::RoutingNormalization>(7); }, "out of range");
  says([&](auto& program) { route_of(program)->rows = static_cast<plan::RowCount>(7); }, "out of range");
  says([&](auto& program) { route_of(program)->used = 7; }, "do not fit together");
  says([&](auto& program) { route_of(program)->groups = 4; }, "do not fit together");
  says([&](auto& program) { experts_of(program)->experts = 1000; }, "exceeds its block");
  says([&](auto& program) { experts_of(program)->expert_bytes = std::int64_t{1} << 30; }, "exceeds its block");
  says([&](auto& program) { tile_of(program)->slots = 1 << 20; }, "out of range");
  says([&](auto& program) { tile_of(program)->sections.clear(); }, "without a section");
  says([&](auto& program) { tile_of(program)->sections[0]->ops[0]->body.Reset(); }, "has no body");
  says([&](auto& program) { tile_of(program)->source.Reset(); }, "without a source");
  says([&](auto& program) { last_step(program, "experts").body.Reset(); }, "has no body");
  const auto is_sum = [](const auto& op) { return op->body.type == plan::TileOpBody::SumExperts; };
  says(
      [&](auto& program) {
        auto& ops = tile_of(program)->sections[0]->ops;
        const auto sum = std::ranges::find_if(ops, is_sum);
        REQUIRE(sum != ops.end());
        auto again = std::make_unique<plan::TileOpT>();
        again->body.Set(plan::SumExpertsT(*(*sum)->body.AsSumExperts()));
        ops.insert(sum, std::move(again));
      },
      "a sum over experts is not allowed");
  for (const std::int64_t slices : {0, 5, 1 << 30}) {
    const auto line = opening(model, [&](auto& program) {
      for (const auto& weight : program.weights)
        if (weight->slices > 1) weight->slices = slices;
    });
    INFO(slices << ": " << line);
    CHECK(line.find("is broken") != std::string::npos);
  }
}

TEST_CASE("experts: removing any part of a family's MoE changes the logits") {
  const auto error = [](const char* name, const auto& change) {
    const auto& model = family_model(name);
    const TinyModel tiny(FileImage{family_gguf(model)});
    ir::Graph graph = tiny.portable().graph;
    change(graph);
    return nmse(kept_rows(tiny.reference(graph, family_tokens(), false)), family_logits(model));
  };
  constexpr double kNoticed = 1e-4;
  const auto nothing = [](ir::Graph&) {};
  const auto other_share = [](ir::Graph& graph) {
    graph = with_attrs<ir::RouteAttrs>(std::move(graph), ir::Op::kRoute, [](auto& a) {
      a.share = a.share == ir::RoutingNormalization::kAll ? ir::RoutingNormalization::kChosen
                                                          : ir::RoutingNormalization::kAll;
    });
  };
  for (const auto* name : {"qwen2moe", "qwen3moe", "olmoe", "granitemoe", "granitemoe_shared", "gpt_oss"}) {
    INFO(name);
    CHECK(error(name, nothing) < 1e-6);
    CHECK(error(name, other_share) > kNoticed);
  }
  CHECK(error("gpt_oss", [](ir::Graph& graph) {  // attention sinks
          for (const auto node : graph.topological_order()) {
            if (graph.op(node) != ir::Op::kAttention) continue;
            const auto operands = graph.operands(node);
            const auto bare = graph.add(ir::Op::kAttention, {operands.begin(), operands.begin() + 6}, graph.attrs(node),
                                        graph.layer(node));
            graph.replace_uses({node, 0}, {bare, 0});
          }
        }) > kNoticed);
  CHECK(error("gpt_oss", [](ir::Graph& graph) {  // biases of the experts
          for (const auto node : graph.topological_order())
            if (graph.op(node) == ir::Op::kExpertAdd) graph.replace_uses({node, 0}, graph.operand(node, 0));
        }) > kNoticed);
  CHECK(error("gpt_oss", [](ir::Graph& graph) {  // the clamps, and the offset 1 of up
          for (const auto node : graph.nodes())
            if (graph.op(node) == ir::Op::kGlu) graph.set_attrs(node, ir::GluAttrs{ir::Activation::kSilu});
        }) > kNoticed);
  CHECK(error("qwen2moe", [](ir::Graph& graph) {  // the gate of the shared expert
          for (const auto node : graph.nodes())
            if (graph.op(node) == ir::Op::kRoute && graph.type(graph.operand(node, 0)).cols() == 1)
              graph.set_attrs(node, ir::RouteAttrs{.share = ir::RoutingNormalization::kChosen});
        }) > kNoticed);
}

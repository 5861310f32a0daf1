// The whole pass pipeline on a Llama-like graph: the resulting steps, unchanged results, and the benefit of each pass.

#include <catch2/catch.hpp>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <map>
#include <sstream>

#include "ir/text/text.h"
#include "passes/dump.h"
#include "passes/passes.h"
#include "passes/schedule/output_hidden_rows.h"
#include "support/error.h"
#include "tests/passes/fake_target.h"
#include "tests/passes/tiny_llama.h"

namespace forge::passes::test {
namespace {

PipelineOptions options_with(std::vector<std::string> skip = {}) {
  return {.context = 256, .batch_max = 2, .skip = std::move(skip), .check_round_trip = true};
}

std::int64_t bytes_moved(const Variant& variant) {
  std::int64_t sum = 0;
  for (const Step& step : variant.steps) sum += step.choice.step.weight_bytes + step.choice.step.activation_bytes;
  return sum;
}

std::size_t steps_of_layer(const Variant& variant, std::int32_t layer) {
  return static_cast<std::size_t>(
      std::ranges::count_if(variant.steps, [layer](const Step& step) { return step.choice.step.layer == layer; }));
}

/// Every value that a step reads from another step must have a buffer that is live then, and no other live buffer may
/// overlap it.
void check_places(const Program& program, const Variant& variant) {
  const ir::Graph& graph = program.graph;
  const RowLayout layout(graph, variant.buffers);
  for (std::size_t at = 0; at < variant.steps.size(); ++at) {
    const auto step = static_cast<std::int32_t>(at);
    const auto inside = [&](ir::NodeId node) {
      return std::ranges::find(variant.steps[at].nodes, node) != variant.steps[at].nodes.end();
    };
    for (const ir::NodeId node : variant.steps[at].nodes)
      for (const ir::Value& operand : graph.operands(node)) {
        if (inside(operand.node) || !runs_in_step(graph, operand.node) || graph.type(operand).is_state()) continue;
        const auto at_buffer = layout.buffer_of(operand);
        REQUIRE(at_buffer >= 0);
        const Buffer& buffer = variant.buffers[static_cast<std::size_t>(at_buffer)];
        CHECK((buffer.first < step && step <= buffer.last));
      }
  }
  for (const Buffer& a : variant.buffers) {
    CHECK(a.offset + a.bytes <= variant.arena_bytes);
    for (const Buffer& b : variant.buffers)
      if (&a != &b && a.first <= b.last && b.first <= a.last)
        CHECK((a.offset + a.bytes <= b.offset || b.offset + b.bytes <= a.offset));
    for (std::size_t at = 0; at < variant.steps.size(); ++at) {
      const Step& step = variant.steps[at];
      if (step.choice.scratch_bytes == 0 || std::int32_t(at) < a.first || std::int32_t(at) > a.last) continue;
      CHECK((a.offset + a.bytes <= step.scratch_offset || step.scratch_offset + step.choice.scratch_bytes <= a.offset));
    }
  }
}

TEST_CASE("pipeline: a decode layer becomes five steps, and the arena reaches its bound", "[pipeline]") {
  FakeTarget target;
  target.scratch_bytes = 1000;
  const TinyLlama shape{.layers = 3};
  const auto result = run_pipeline(shape.build(), target, options_with());
  REQUIRE(result.program.variants.size() == 2);
  for (const Variant& variant : result.program.variants) {
    INFO(schedule_text(result.program, variant));
    for (std::int32_t layer = 1; layer < 3; ++layer) CHECK(steps_of_layer(variant, layer) == 5);
    // 5 per layer, plus RoPE table, embedding, gathered rows and logits.
    CHECK(variant.steps.size() == 5 * 3 + 4);
    CHECK(variant.arena_bytes == variant.arena_bound_bytes);
    check_places(result.program, variant);
  }
  CHECK(result.program.arena_bytes == result.program.variants[1].arena_bytes);
  CHECK(result.reports.size() == pipeline_passes().size() + 1);
}

TEST_CASE("pipeline: the residual stays in place through all layers", "[pipeline]") {
  const auto result = run_pipeline(TinyLlama{.layers = 3}.build(), FakeTarget(), options_with());
  const auto& buffers = result.program.variants[0].buffers;
  CHECK(std::ranges::any_of(buffers, [](const Buffer& buffer) { return buffer.aliases.size() == 6; }));
}

TEST_CASE("pipeline: the interpreter gives the same logits before and after", "[pipeline]") {
  for (const TinyLlama& shape :
       {TinyLlama{}, TinyLlama{.biases = true}, TinyLlama{.v_dtype = DType::kF16, .freq_factors = true},
        TinyLlama{.dtype = DType::kF16, .logit_scale = 0.5F}}) {
    const ir::Graph graph = shape.build();
    const auto expected = run_two_steps(graph);
    const auto result = run_pipeline(graph, FakeTarget(), options_with());
    CHECK(nmse(expected, run_two_steps(result.program.graph)) < 1e-9);
  }
}

TEST_CASE("pipeline: skipping an optional pass keeps the logits and costs steps or bytes", "[pipeline]") {
  const FakeTarget target;
  std::map<std::string_view, int> costs;  // graphs in which a pass saves something
  for (const auto v_dtype : {DType::kQ8_0, DType::kF16}) {
    const ir::Graph graph = TinyLlama{.v_dtype = v_dtype}.build();
    const auto expected = run_two_steps(graph);
    const auto whole = run_pipeline(graph, target, options_with());
    const Variant& best = whole.program.variants[0];
    for (const Pass& pass : pipeline_passes()) {
      if (!pass.optional) continue;
      INFO(pass.name);
      const auto without = run_pipeline(graph, target, options_with({std::string(pass.name)}));
      const Variant& variant = without.program.variants[0];
      CHECK(nmse(expected, run_two_steps(without.program.graph)) < 1e-9);
      costs[pass.name] += variant.steps.size() > best.steps.size() || bytes_moved(variant) > bytes_moved(best) ? 1 : 0;
      CHECK(variant.steps.size() >= best.steps.size());
      CHECK(variant.arena_bytes == variant.arena_bound_bytes);
      check_places(without.program, variant);
    }
  }
  // With one type for q, k and v there is one matmul, whose group takes the store as it is.
  for (const auto& [pass, graphs] : costs) {
    INFO(pass);
    CHECK(graphs == (pass == "split_kv_store" ? 1 : 2));
  }
}

TEST_CASE("pipeline: without any two passes, and without all, the logits are the same", "[pipeline]") {
  const ir::Graph graph = TinyLlama{.biases = true}.build();
  const auto expected = run_two_steps(graph);
  std::vector<std::string> all;
  for (const Pass& pass : pipeline_passes())
    if (pass.optional) all.emplace_back(pass.name);
  for (std::size_t i = 0; i < all.size(); ++i)
    for (std::size_t j = 0; j < i; ++j) {
      const auto result = run_pipeline(graph, FakeTarget(), options_with({all[i], all[j]}));
      INFO(all[i] << " and " << all[j]);
      CHECK(nmse(expected, run_two_steps(result.program.graph)) < 1e-9);
    }
  const auto none = run_pipeline(graph, FakeTarget(), options_with(all));
  CHECK(nmse(expected, run_two_steps(none.program.graph)) < 1e-9);
}

TEST_CASE("pipeline: a second run on its own result changes nothing", "[pipeline]") {
  const FakeTarget target;
  for (const TinyLlama& shape : {TinyLlama{}, TinyLlama{.biases = true}, TinyLlama{.v_dtype = DType::kQ4_0}}) {
    auto graph = run_pipeline(shape.build(), target, options_with()).program.graph;
    const auto before = graph.hash();
    PassContext context{.target = target, .notes = {}};
    for (const Pass& pass : pipeline_passes()) {
      INFO(pass.name);
      CHECK_FALSE(pass.run(graph, context));
    }
    CHECK(graph.hash() == before);
  }
}

TEST_CASE("pipeline: each weight is read once per step", "[pipeline]") {
  const TinyLlama shape{.layers = 2};
  const auto result = run_pipeline(shape.build(), FakeTarget(), options_with());
  const Variant& decode = result.program.variants[0];
  const auto row = [](std::int64_t n, std::int64_t k) { return n * k / 32 * 34; };
  const std::int64_t layer = row(64, 64) * 2 + row(32, 64) * 2 + row(96, 64) * 2 + row(64, 96) + 2 * 64 * 4;
  std::int64_t sum = 0;
  for (const Step& step : decode.steps) sum += step.choice.step.weight_bytes;
  CHECK(sum == 2 * layer + row(96, 64) + 64 * 4 + row(decode.bounds.tokens, 64));
}

TEST_CASE("pipeline: unknown names in `skip` are refused", "[pipeline]") {
  const ir::Graph graph = TinyLlama{.layers = 1}.build();
  const FakeTarget target;
  CHECK_THROWS_WITH(run_pipeline(graph, target, options_with({"no_such_pass"})),
                    Catch::Contains("no_such_pass") && Catch::Contains("fuse_qkv"));
  CHECK_THROWS_WITH(run_pipeline(graph, target, options_with({"quantize_activations"})), Catch::Contains("required"));
  PipelineOptions nothing;
  CHECK_THROWS_AS(run_pipeline(graph, target, nothing), Error);
}

TEST_CASE("pipeline: an op without a kernel is reported with its variant", "[pipeline]") {
  FakeTarget target;
  target.unsupported = {ir::Op::kEmbed};
  CHECK_THROWS_WITH(run_pipeline(TinyLlama{.layers = 1}.build(), target, options_with()),
                    Catch::Contains("decode2") && Catch::Contains("no kernel for"));
}

TEST_CASE("pipeline: dumps are readable graphs and DOT files", "[pipeline]") {
  const auto dir = std::filesystem::temp_directory_path() / "forge-passes-dump-test";
  std::filesystem::remove_all(dir);
  auto options = options_with({"fuse_glu"});
  options.dump_ir_dir = options.dump_dot_dir = (dir / "deep").string();
  const auto result = run_pipeline(TinyLlama{.layers = 1}.build(), FakeTarget(), options);
  const auto read = [&](const std::string& name) {
    std::ifstream file(dir / "deep" / name);
    std::stringstream text;
    text << file.rdbuf();
    return text.str();
  };
  const std::size_t passes = pipeline_passes().size();
  CHECK(read("02-canonicalise.ir").find("attention") != std::string::npos);
  const std::string schedule = read(std::to_string(passes + 1) + "-decode2.ir");
  CHECK(schedule.find("ratio 1.000") != std::string::npos);
  CHECK(schedule.find("// step 0") != std::string::npos);
  CHECK(ir::parse(schedule).hash() == result.program.graph.hash());
  const std::string picture = read(std::to_string(passes + 2) + "-prefill128.dot");
  CHECK(picture.find("arena 0x") != std::string::npos);
  CHECK(picture.find("step 0") != std::string::npos);
  std::filesystem::remove_all(dir);

  options.dump_ir_dir = "/dev/null/forge";
  CHECK_THROWS_WITH(run_pipeline(TinyLlama{.layers = 1}.build(), FakeTarget(), options), Catch::Contains("/dev/null"));
}

TEST_CASE("pass manager: a pass that reports falsely or breaks the graph is named", "[pipeline]") {
  const FakeTarget target;
  PassContext context{.target = target, .notes = {}};
  ir::Graph graph = TinyLlama{.layers = 1}.build();
  const auto run = [&](bool (*pass)(ir::Graph&, PassContext&)) {
    const Pass passes[]{{"liar", true, Phase::kPortable, pass, "for this test"}};
    ir::Graph copy = graph;
    return run_passes(copy, passes, context, options_with());
  };
  CHECK_THROWS_WITH(run([](ir::Graph&, PassContext&) { return true; }),
                    Catch::Contains("liar") && Catch::Contains("PM-001"));
  CHECK_THROWS_WITH(run([](ir::Graph& g, PassContext&) {
                      g.add(ir::Op::kConstant, {}, ir::ConstantAttrs{{1}, {DType::kF32, {1}}});
                      return false;
                    }),
                    Catch::Contains("PM-001"));
  CHECK_THROWS_WITH(run([](ir::Graph& g, PassContext&) {
                      for (const ir::NodeId node : g.nodes())
                        if (g.op(node) == ir::Op::kMatmul) g.set_group(node, 1);
                      return true;
                    }),
                    Catch::Contains("liar"));
  CHECK_THROWS_WITH(run([](ir::Graph& g, PassContext&) {
                      for (const ir::NodeId node : g.nodes())
                        if (g.op(node) == ir::Op::kRmsNorm) {
                          g.add(ir::Op::kQuantize, {{node, 0}}, ir::QuantizeAttrs{});
                          return true;
                        }
                      return false;
                    }),
                    Catch::Contains("PH-001"));
  CHECK_THROWS_WITH(run([](ir::Graph& g, PassContext&) {
                      for (const ir::NodeId node : g.nodes())
                        if (g.op(node) == ir::Op::kWeight) {
                          auto attrs = g.attrs_as<ir::WeightAttrs>(node);
                          attrs.type.shape[0] = 7;  // the users keep their types
                          g.set_attrs(node, attrs);
                        }
                      return true;
                    }),
                    Catch::Contains("liar") && Catch::Contains("IR-0"));
  CHECK_THROWS_WITH(check_phase(graph, target, Phase::kLowered), Catch::Contains("PH-002"));
}

}  // namespace
TEST_CASE("hidden rows are what the head multiplies, whatever follows its matmul") {
  ir::Graph graph;
  ir::Builder b(graph);
  const auto rows =
      b.gather_rows(b.embed(b.weight("token_embd.weight", DType::kF32, {40, 16}), b.input(ir::InputKind::kIds)),
                    b.input(ir::InputKind::kRows));
  const auto product = b.mul(b.matmul(rows, b.weight("output.weight", DType::kF32, {40, 16})),
                             b.weight("output.scale", DType::kF32, {1}));
  const auto biased = b.add(product, b.weight("output.bias", DType::kF32, {40}));
  graph.add_output("logits", b.softcap(b.scale(biased, 0.5F), 30));
  const auto hidden = output_hidden_rows(std::move(graph));
  REQUIRE(hidden.outputs().size() == 1);
  CHECK((hidden.outputs()[0].name == ir::kHiddenOutput && hidden.outputs()[0].value == rows));
}

}  // namespace forge::passes::test

// Plans that no compiler made. Operand indices, offsets and counts that would lead the CPU executor outside its memory
// must be refused when the plan is opened.

#include <algorithm>
#include <catch2/catch.hpp>
#include <functional>
#include <limits>

#include "runtime/plan/step.h"
#include "tests/e2e/tiny_model.h"
#include "tests/support/error_of.h"

namespace forge {
namespace {

using tests::TinyModel;

class Plan {
 public:
  Plan()
      : program_(codegen::compile_program(model_.portable().graph, model_.file(), codegen::host_target(),
                                          {.context = 64})) {}

  /// Calls `change` for each tile program that has an op of this kind; at least one must exist.
  void change(plan::TileOpBody body, const std::function<void(plan::TileT&)>& change) {
    change_tiles(
        [&](const plan::TileT& tile) {
          return std::ranges::any_of(tile.sections, [&](const auto& section) {
            return std::ranges::any_of(section->ops, [&](const auto& op) { return op->body.type == body; });
          });
        },
        [&](plan::TileT& tile, plan::StepT&) { change(tile); });
  }
  /// The same for tile programs with this source.
  void change(plan::Source source, const std::function<void(plan::TileT&, plan::StepT&)>& change) {
    change_tiles([&](const plan::TileT& tile) { return tile.source.type == source; }, change);
  }
  plan::ProgramT& program() { return *program_; }
  void open() {
    runtime::SpanWeightSource source("tiny", model_.bytes());
    runtime::CpuExecutor(program_, source, {.threads = 1});
  }
  std::string refusal() {
    const auto error = tests::thrown_by([&] { open(); });
    CHECK(error->code() == ErrorCode::kPlan);
    return error->line();
  }

 private:
  void change_tiles(const std::function<bool(const plan::TileT&)>& wanted,
                    const std::function<void(plan::TileT&, plan::StepT&)>& change) {
    std::size_t found = 0;
    for (auto& variant : program_->variants)
      for (auto& step : variant->steps)
        if (auto* tile = step->body.AsTile(); tile != nullptr && wanted(*tile)) change(*tile, *step), ++found;
    REQUIRE(found > 0);
  }

  TinyModel model_{{.dtype = DType::kF32}};
  std::shared_ptr<plan::ProgramT> program_;
};

}  // namespace

TEST_CASE("the unchanged plan opens") {
  Plan plan;
  CHECK_NOTHROW(plan.open());
}

TEST_CASE("step inputs are used only for the rows that they have entries for") {
  constexpr auto kLogits = plan::RowCount::LogitRows;
  SECTION("keys for more rows than tokens") {
    Plan plan;
    // two slots per token: more rows than the step has tokens
    plan.change(plan::TileOpBody::StoreKv, [](auto& tile) { tile.slots = 2; });
    plan.refusal();
  }
  SECTION("values for logits rows") {
    Plan plan;
    plan.change(plan::TileOpBody::StoreKv, [](auto& tile) { tile.rows = kLogits; });
    CHECK_THAT(plan.refusal(), Catch::Contains("of the step's tokens"));
  }
  SECTION("embeddings indexed by logits rows") {
    Plan plan;
    plan.change(plan::Source::EmbeddedRows, [](auto& tile, auto& step) {
      step.operands[tile.source.AsEmbeddedRows()->ids] = plan::operand_at(plan::Space::Input, 3, 0);
    });
    CHECK_THAT(plan.refusal(), Catch::Contains("the embedded rows"));
  }
  SECTION("an embedding table in a GPU layout, and in an unknown layout") {
    for (const std::uint8_t layout : {2, 99}) {
      Plan plan;
      plan.change(plan::Source::EmbeddedRows, [layout](auto& tile, auto& step) {
        auto& table = step.operands[tile.sections[0]->from];
        table = {table.space(), table.dtype(), table.index(), table.row_bytes(), table.offset(), table.value(), layout};
      });
      CHECK_THAT(plan.refusal(), Catch::Contains("layout"));
    }
  }
  SECTION("embeddings for logits rows") {
    Plan plan;
    plan.change(plan::Source::EmbeddedRows, [](auto& tile, auto&) { tile.rows = kLogits; });
    plan.refusal();
  }
  SECTION("a gather by token ids") {
    Plan plan;
    plan.change(plan::Source::GatheredRows, [](auto& tile, auto& step) {
      step.operands[tile.source.AsGatheredRows()->indices] = plan::operand_at(plan::Space::Input, 0, 0);
    });
    CHECK_THAT(plan.refusal(), Catch::Contains("the gather's indices"));
  }
}

TEST_CASE("an elementwise function has the parameters and the operand that the table says") {
  using elementwise::Function;
  constexpr float kNan = std::numeric_limits<float>::quiet_NaN(), kInfinity = std::numeric_limits<float>::infinity();
  const auto number = [](Function function) { return static_cast<std::uint8_t>(function); };
  const auto refusal = [](const std::function<void(plan::ElementwiseT&)>& change) {
    Plan plan;
    plan.change(plan::TileOpBody::Elementwise, [&](plan::TileT& tile) {
      for (auto& section : tile.sections)
        for (auto& op : section->ops)
          if (auto* body = op->body.AsElementwise()) change(*body);
    });
    return plan.refusal();
  };
  const auto unary = [&](Function function, std::vector<float> parameters) {
    return refusal([=](plan::ElementwiseT& op) {
      op.function = number(function);
      op.operand = plan::kNoOperand;
      op.parameters = parameters;
    });
  };
  CHECK_THAT(unary(Function::kScale, {kNan}), Catch::Contains("factor of scale is out of range"));
  CHECK_THAT(unary(Function::kScale, {kInfinity}), Catch::Contains("out of range"));
  CHECK_THAT(unary(Function::kSoftcap, {0}), Catch::Contains("cap of softcap is out of range"));
  CHECK_THAT(unary(Function::kScale, {}), Catch::Contains("scale has 1 parameters, not 0"));
  CHECK_THAT(unary(Function::kSilu, {1}), Catch::Contains("silu has 0 parameters, not 1"));
  CHECK_THAT(unary(Function::kSoftcap, std::vector<float>(1000, 1.0F)), Catch::Contains("not 1000"));
  CHECK_THAT(unary(Function::kXielu, {1, 1, kNan, 0}), Catch::Contains("beta of xielu is out of range"));
  CHECK_THAT(unary(Function::kXielu, {1, 1, 1}), Catch::Contains("xielu has 4 parameters, not 3"));
  CHECK_THAT(unary(Function::kAdd, {}), Catch::Contains("add is not a function of one value"));
  CHECK_THAT(unary(Function::kClampedSwish, {}), Catch::Contains("not a function of one value"));
  CHECK_THAT(refusal([&](auto& op) { op.function = number(Function::kReluSquared); }),
             Catch::Contains("relu_squared is not a function of two values"));
  for (const std::size_t unknown : {elementwise::kFunctionCount, std::size_t{255}})
    CHECK_THAT(refusal([&](auto& op) { op.function = static_cast<std::uint8_t>(unknown); }),
               Catch::Contains("there is no elementwise function " + std::to_string(unknown)));
  CHECK_THAT(refusal([](auto& op) { op.operand = 60000; }), Catch::Contains("an operand is missing"));

  const auto pairs = [](const std::function<void(plan::ElementwisePairsT&)>& change) {
    Plan plan;
    plan.change(plan::TileOpBody::ElementwisePairs, [&](plan::TileT& tile) {
      for (auto& section : tile.sections)
        for (auto& op : section->ops)
          if (auto* body = op->body.AsElementwisePairs()) change(*body);
    });
    return plan.refusal();
  };
  CHECK_THAT(pairs([&](auto& op) { op.function = number(Function::kScale); }),
             Catch::Contains("scale has 1 parameters"));
  CHECK_THAT(pairs([&](auto& op) { op.function = number(Function::kReluSquared); }),
             Catch::Contains("not a function of two values"));
  CHECK_THAT(pairs([](auto& op) { op.function = 255; }), Catch::Contains("no elementwise function 255"));
  CHECK_THAT(pairs([](auto& op) { op.parameters = {1}; }), Catch::Contains("0 parameters, not 1"));
  CHECK_THAT(pairs([](auto& op) { op.unit = 7; }), Catch::Contains("pairs of columns do not fit"));
}

TEST_CASE("the memory of a plan's step inputs is known before it is opened, and an absurd size is refused") {
  Plan plan;
  auto& program = plan.program();
  for (auto& variant : program.variants) variant->bounds = plan::Bounds(8, 4, 3, 5);
  const auto io = [&](const plan::Bounds& last) {
    program.variants.back()->bounds = last;
    return runtime::CpuExecutor::memory_need_of(program, 8).io;
  };
  const auto small = io({8, 4, 3, 5});
  const auto vocab = static_cast<std::size_t>(program.vocab);
  CHECK(io({8, 4, 3, 1'000'005}) - small == program.kv_groups.size() * 3 * 1'000'000 * sizeof(std::int32_t));
  CHECK(io({8, 4, 1'000'003, 5}) - small == (program.kv_groups.size() * 5 + 1) * 1'000'000 * sizeof(std::int32_t));
  CHECK(io({8, 1'004, 3, 5}) - small == 1'000 * (vocab + 1) * sizeof(float));
  CHECK(io({1'008, 4, 3, 5}) - small == 1'000 * ((4 + program.kv_groups.size()) * sizeof(std::int32_t) + 1));
  program.variants.back()->bounds = plan::Bounds(8, 4, 1 << 24, 1 << 24);
  CHECK_THAT(plan.refusal(), Catch::Contains("block table"));
}

TEST_CASE("a weight's sources are parts of tensors of the model") {
  const auto refusal = [](const std::function<void(plan::WeightT&, plan::WeightSourceT&)>& change) {
    Plan plan;
    auto& weight = *plan.program().weights.front();
    change(weight, *weight.sources.front());
    return plan.refusal();
  };
  CHECK_THAT(refusal([](auto&, auto& s) { s.file = 1; }), Catch::Contains("a file that the model does not have"));
  CHECK_THAT(refusal([](auto&, auto& s) { s.row_begin = 1; }), Catch::Contains("rows that its tensor does not have"));
  CHECK_THAT(refusal([](auto&, auto& s) { --s.rows; }), Catch::Contains("more or fewer rows"));
  CHECK_THAT(refusal([](auto&, auto& s) { s.col_begin = 1; }), Catch::Contains("columns that its tensor"));
  CHECK_THAT(refusal([](auto&, auto& s) { s.cols = 0; }), Catch::Contains("columns that its tensor"));
  CHECK_THAT(refusal([](auto& w, auto& s) { s.cols = w.cols / 2, s.col_begin = w.cols / 2; }),
             Catch::Contains("a different row length"));
  CHECK_THAT(refusal([](auto&, auto& s) { s.tensor_rows = s.rows = std::int64_t{1} << 62; }),
             Catch::Contains("rows that its tensor"));
  CHECK_THAT(refusal([](auto&, auto& s) { s.tensor_rows = 1 << 28; }), Catch::Contains("leaves the model file"));
  CHECK_THAT(refusal([](auto& w, auto&) { w.slices = w.rows + 1; }), Catch::Contains("out of range"));
  CHECK_THAT(refusal([](auto& w, auto&) { w.sources.clear(); }), Catch::Contains("more or fewer rows"));
  CHECK_THAT(refusal([](auto& w, auto&) { w.sources.front() = nullptr; }), Catch::Contains("missing"));
}

TEST_CASE("a matmul's activations have the type that its kernel takes") {
  for (const auto type : {DType::kQ8A_32, DType::kQ8A_16, DType::kI32, static_cast<DType>(200)}) {
    Plan plan;
    plan.change(plan::Source::MatmulRows, [type](auto& tile, auto& step) {
      auto& x = step.operands[tile.source.AsMatmulRows()->x];
      x = {x.space(), static_cast<std::uint8_t>(type), x.index(), x.row_bytes(), x.offset(), x.value(), x.layout()};
    });
    CHECK_THAT(plan.refusal(), Catch::Contains("not f32"));
  }
}

TEST_CASE("a program that is one shard of several is refused with one line") {
  for (const auto& [rank, world] : {std::pair{0, 2}, {1, 2}, {1, 1}, {-1, 1}, {0, 0}}) {
    Plan plan;
    plan.program().rank = rank;
    plan.program().world = world;
    CHECK_THAT(plan.refusal(), Catch::Contains("part " + std::to_string(rank) + " of " + std::to_string(world)) &&
                                   Catch::Contains("one device per model"));
  }
}

TEST_CASE("a program that takes other inputs than ids is refused with one line") {
  for (const std::int64_t width : {std::int64_t{1}, std::int64_t{64}, std::int64_t{-1}}) {
    Plan plan;
    plan.program().input_width = width;
    CHECK_THAT(plan.refusal(), Catch::Contains("takes embeddings") && Catch::Contains("token ids as input only"));
  }
}

TEST_CASE("embeddings are read from files that the model has") {
  Plan plan;
  plan.change(plan::Source::EmbeddedRows, [](auto& tile, auto& step) {
    step.operands[tile.sections[0]->from] = plan::operand_at(plan::Space::File, 1, 0);
  });
  CHECK_THAT(plan.refusal(), Catch::Contains("a file that the model does not have"));
}

TEST_CASE("a weight unit whose byte size overflows 64 bits is refused") {
  Plan plan;
  bool found = false;
  for (auto& weight : plan.program().weights)
    if (weight->layout == 0 && weight->dtype == static_cast<int>(DType::kF32) && weight->sources.size() == 1) {
      weight->unit = std::int64_t{1} << 62;
      found = true;
    }
  REQUIRE(found);
  CHECK_THAT(plan.refusal(), Catch::Contains("is broken"));
}

}  // namespace forge

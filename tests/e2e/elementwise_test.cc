// Every function of kernels/elementwise through the compiler and the CPU executor, compared with the reference
// interpreter.

#include "tests/e2e/elementwise_graphs.h"

#include <catch2/catch.hpp>

#include "tests/e2e/tiny_model.h"

namespace forge::tests {
namespace {

class ElementwiseModel {
 public:
  /// The graph's logits on every CPU class that this machine runs must equal the interpreter's.
  void check(const ir::Graph& graph) const {
    const auto expected = model_.reference(graph, ids_, false);
    for (const auto cpu_class : cpu::all_classes()) {
      if (!cpu::runs_here(cpu_class)) continue;
      const auto target = "cpu-" + std::string(cpu::name(cpu_class));
      CAPTURE(target);
      std::shared_ptr<const plan::ProgramT> program =
          codegen::compile_program(graph, model_.file(), target, {.context = 64});
      runtime::SpanWeightSource source("tiny", model_.bytes());
      runtime::CpuExecutor executor(program, source, {.threads = 1});
      CHECK(nmse(run_alone(executor, ids_, 64, {0}), expected) < 1e-6);
    }
  }
  [[nodiscard]] const ir::Graph& graph() const { return model_.portable().graph; }

 private:
  TinyModel model_{{.dtype = DType::kF32}};
  std::vector<std::int32_t> ids_ = random_ids(20, 90, 3);
};

}  // namespace

TEST_CASE("each unary elementwise function compiles and gives the interpreter's result") {
  const ElementwiseModel model;
  for (const auto& function : unary_functions()) {
    CAPTURE(function.name);
    // The logits differ by the rounding of keys and values to f16, and e^x makes relative errors of absolute ones; half
    // of the logits keep these below the bound.
    const float factor = function.name == "exponential" ? 0.5F : 1.0F;
    model.check(on_logits(model.graph(), [&](ir::Builder& b, ir::Value x) {
      return function.apply(b, factor == 1 ? x : b.scale(x, factor));
    }));
  }
}

TEST_CASE("all elementwise functions in one step") {
  const ElementwiseModel model;
  model.check(with_all_functions(model.graph()));
}

TEST_CASE("each GLU gate compiles, with gate and up interleaved and separate") {
  const ElementwiseModel model;
  for (const auto activation : all_activations()) {
    const auto& def = elementwise::function_def(ir::function_of(activation));
    if (!elementwise::is_binary(def.form)) continue;
    CAPTURE(std::string(def.name));
    const ir::GluAttrs attrs{activation, padded(parameters_for(def.function))};
    model.check(with_attrs<ir::GluAttrs>(model.graph(), ir::Op::kGlu, [&](auto& glu) { glu = attrs; }));
    model.check(on_logits(model.graph(), [&](ir::Builder& b, ir::Value x) {
      return b.glu(x, b.scale(x, 0.5F), activation, attrs.parameters);
    }));
  }
}

}  // namespace forge::tests

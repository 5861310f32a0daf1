// The device functions of kernels/elementwise agree with scalar definitions in double and propagate NaN.

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>

#include "kernels/elementwise/function.h"
#include "tests/gpu_host/host_compiler.h"
#include "tests/gpu_host/support.h"
#include "tests/support/kernel_macros.h"

using namespace forge;
using namespace forge::gpu_host;

namespace {

constexpr int kPoints = 64;

struct FunctionCase {
  std::string call;  ///< the expression in the kernel, a function of x
  std::function<double(double)> exact;
  double relative = 4e-6, absolute = 1e-30;
};

double sigmoid_of(double x) {
  return 1 / (1 + std::exp(-x));
}

std::vector<FunctionCase> function_cases() {
  return {
      {"add(x, 1.5f)", [](double x) { return x + 1.5; }},
      {"mul(x, 1.5f)", [](double x) { return x * 1.5; }},
      {"scale(x, 0.75f)", [](double x) { return x * 0.75; }},
      // Near 0 the result is a difference of nearly equal numbers, so the bound is absolute.
      {"softcap(x, 5.0f)", [](double x) { return 5 * std::tanh(x / 5); }, 4e-6, 2e-6},
      {"silu(x)", [](double x) { return x * sigmoid_of(x); }},
      {"gelu(x)", [](double x) { return x / 2 * (1 + std::tanh(0.79788456080286535588 * (x + 0.044715 * x * x * x))); },
       4e-6, 4e-6},
      {"clamped_swish(x, 2.0f)", [](double x) { return std::min(x, 7.0) * sigmoid_of(1.702 * std::min(x, 7.0)) * 3; },
       2e-5},
      {"clamped_swish(1.0f, x)", [](double x) { return sigmoid_of(1.702) * (std::clamp(x, -7.0, 7.0) + 1); }, 4e-6,
       1e-6},
      {"relu(x)", [](double x) { return std::max(x, 0.0); }},
      {"clamp(x, 1.5f)", [](double x) { return std::clamp(x, -1.5, 1.5); }},
      {"limited_silu(x, 0.5f, 2.0f)", [](double x) { return std::min(x * sigmoid_of(x), 2.0) * 0.5; }},
      {"limited_silu(1.0f, x, 2.0f)", [](double x) { return sigmoid_of(1) * std::clamp(x, -2.0, 2.0); }},
      {"relu_squared(x)", [](double x) { return x > 0 ? x * x : 0; }},
      {"sigmoid(x)", sigmoid_of},
      {"xielu(x, 0.8f, 1.25f, 0.5f, -1e-6f)",
       [](double x) { return x > 0 ? 1.25 * x * x + 0.5 * x : 0.8 * (std::expm1(std::min(x, -1e-6)) - x) + 0.5 * x; },
       4e-6, 1e-6},
      {"exponential(x)", [](double x) { return std::exp(x); }},
      {"softplus(x)", [](double x) { return std::log1p(std::exp(x)); }},
  };
}

codegen::KernelSource functions_source(int wave, const std::vector<FunctionCase>& cases) {
  std::string body;
  for (std::size_t i = 0; i < cases.size(); ++i)
    body += "  args.out[" + std::to_string(i * kPoints) + " + i] = " + cases[i].call + ";\n";
  return {"functions", forge::tests::kernel_macros(wave) + R"(
#include "kernels/gpu/elementwise.h"
using namespace forge::gpu;
struct Args {
  const float* in;
  float* out;
};
FORGE_KERNEL(functions, 1, 64, Args) {
  const int i = thread_id();
  const float x = load(args.in + i);
)" + body + "}\n"};
}

}  // namespace

TEST_CASE("device functions compute their formulas and propagate NaN") {
  struct Args {
    const float* in;
    float* out;
  };
  const auto cases = function_cases();
  HostKernelCompiler compiler;
  for (const int wave : kWaves) {
    const auto compiled =
        compiler.compile("host-wave" + std::to_string(wave), std::vector{functions_source(wave, cases)});
    REQUIRE(compiled.size() == 1);
    const auto control = std::make_shared<driver::NullControl>();
    run_on_host(*control);
    const auto driver = driver::open_null(control);
    const auto device = driver.device(0);
    const driver::Stream stream(device);
    const driver::Module module(device, compiled[0].code, "functions");
    const auto kernel = module.function("functions");
    const driver::Buffer memory(device, (cases.size() + 1) * kPoints * sizeof(float), "numbers");
    float* in = reinterpret_cast<float*>(memory.address().value);
    float* out = in + kPoints;
    for (int i = 0; i < kPoints; ++i) in[i] = 0.01F * static_cast<float>((i - 31) * std::abs(i - 31));  // -9.6 .. 10.2
    in[0] = std::numeric_limits<float>::quiet_NaN();
    const Args args{in, out};
    stream.launch_block(kernel, {1}, {64}, 0, std::as_bytes(std::span(&args, 1))).check("launching");
    for (std::size_t c = 0; c < cases.size(); ++c) {
      CAPTURE(wave, cases[c].call);
      const float* got = out + c * kPoints;
      CHECK(std::isnan(got[0]));
      for (int i = 1; i < kPoints; ++i) {
        CAPTURE(in[i]);
        const double want = cases[c].exact(static_cast<double>(in[i]));
        CHECK(std::fabs(static_cast<double>(got[i]) - want) <= cases[c].relative * std::fabs(want) + cases[c].absolute);
      }
    }
  }
  // Every function of the table must have a case above.
  for (std::size_t number = 0; number < elementwise::kFunctionCount; ++number) {
    const std::string name(elementwise::function_def(*elementwise::find_function(number)).name);
    CAPTURE(name);
    CHECK(std::ranges::any_of(cases, [&](const auto& one) { return one.call.starts_with(name + "("); }));
  }
}

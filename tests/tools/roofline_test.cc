// What forge-bench --roofline makes of an executor's step times: sums by label, and bytes and FLOPs of a GPU's steps,
// whose executor does not count rows and positions itself.

#include "tools/bench/roofline.h"

#include <catch2/catch.hpp>
#include <cmath>

#include "runtime/plan/step.h"

namespace forge::tools {
namespace {

std::unique_ptr<plan::StepT> step(std::int64_t weights, std::int64_t activations, std::int64_t flops, bool kv) {
  auto out = std::make_unique<plan::StepT>();
  out->weight_bytes = weights;
  out->activation_bytes = activations;
  out->flops = flops;
  if (kv) out->operands.push_back(plan::operand_at(plan::Space::Kv, 0, 0));
  return out;
}

/// A variant of 4 tokens: a matmul that stores keys and values, attention, and another matmul.
plan::ProgramT program(std::int32_t window) {
  plan::ProgramT out;
  out.kv_groups.emplace_back(/*layers=*/1, /*kv_heads=*/2, /*head_dim=*/64, /*value_dim=*/64, /*block_tokens=*/32,
                             window, /*block_bytes=*/32 * 512, /*dtype=*/1, /*shared_row=*/false);
  auto variant = std::make_unique<plan::VariantT>();
  variant->name = "batch4";
  variant->bounds = plan::Bounds(4, 4, 4, 8);
  variant->steps.push_back(step(1000, 400, 8000, true));
  variant->steps.push_back(step(0, 80, 0, true));
  variant->steps.push_back(step(1000, 400, 8000, false));
  out.variants.push_back(std::move(variant));
  return out;
}

BenchResult result(std::int64_t batch, std::int64_t depth) {
  BenchResult out{.what = {.predict = 20, .depth = depth, .batch = batch}};
  out.steps = {{.variant = "batch4", .label = "matmul", .calls = 20, .nanoseconds = 1000},
               {.variant = "batch4", .label = "attention", .calls = 20, .nanoseconds = 5000},
               {.variant = "batch4", .label = "matmul", .calls = 20, .nanoseconds = 2000}};
  return out;
}

}  // namespace

TEST_CASE("roofline: kernels are sums of steps, longest first, and their sum is the last") {
  const auto kernels = measured_kernels(result(2, 100), program(0));
  REQUIRE(kernels.size() == 3);
  CHECK(kernels[0].kernel == "attention");
  CHECK(kernels[1].kernel == "matmul");
  CHECK(kernels[1].calls == 40);
  CHECK(kernels[1].seconds == Approx(3e-6));
  CHECK(kernels[2].kernel == "all");
  CHECK(kernels[2].calls == 60);
  CHECK(kernels[2].bytes == kernels[0].bytes + kernels[1].bytes);
}

TEST_CASE("roofline: a GPU's steps move the bytes of real rows and of the positions that attention reads") {
  // 2 of 4 rows; half of the 20 tokens are behind the 100 cached ones on average, and the step's own.
  const auto kernels = measured_kernels(result(2, 100), program(0));
  CHECK(kernels[1].bytes == 40 * (1000 + 200));
  CHECK(kernels[1].flops == 40 * 4000);
  CHECK(kernels[0].bytes == 20 * (40 + 2 * 111 * 512));
  // A sliding window bounds them.
  CHECK(measured_kernels(result(2, 100), program(64))[0].bytes == 20 * (40 + 2 * 65 * 512));
}

TEST_CASE("roofline: the CPU's executor counts rows and positions itself") {
  auto one = result(1, 0);
  one.on_host = true;
  one.steps = {{.variant = "batch4",
                .label = "matmul",
                .calls = 3,
                .nanoseconds = 10,
                .filled = 1.5,
                .kv_bytes = 7,
                .kv_flops = 9,
                .weight_bytes = 100,
                .activation_bytes = 10,
                .flops = 20}};
  const auto kernels = measured_kernels(one, program(0));
  CHECK(kernels[0].bytes == 3 * 100 + 15 + 7);
  CHECK(kernels[0].flops == 30 + 9);
}

TEST_CASE("roofline: shares are those of the measured rates, and not there without them") {
  const auto value = [](const BenchResult& of, const MeasuredKernel& kernel, std::string_view name) {
    for (const auto& [field, value] : measured_record(of, "tg20", kernel))
      if (field == name) return std::get<double>(value);
    FAIL("no field " << name);
    return 0.0;
  };
  auto one = result(1, 0);
  const MeasuredKernel kernel{.kernel = "matmul", .calls = 2, .seconds = 2e-6, .bytes = 4e6, .flops = 1e8};
  for (const char* name : {"read_rate", "read_share", "matrix_rate", "matrix_share", "memory_bandwidth"})
    CHECK(std::isnan(value(one, kernel, name)));
  one.memory_rate = 4e12;
  one.matrix_rate = 5e14;
  one.memory_bandwidth = 4.8e12;
  CHECK(value(one, kernel, "read_rate") == 4e12);
  CHECK(value(one, kernel, "read_share") == Approx(0.5));
  CHECK(value(one, kernel, "matrix_rate") == 5e14);
  CHECK(value(one, kernel, "matrix_share") == Approx(0.1));
  CHECK(value(one, kernel, "memory_bandwidth") == 4.8e12);
  CHECK(std::isnan(value(one, {.kernel = "copy", .seconds = 1e-6, .bytes = 8}, "matrix_share")));
  one.device = "a card";
  CHECK(limits_line(one) ==
        "limits measured on a card: 4000.0 GB/s read (its driver says 4800.0), 500.0 TFLOP/s of matrix instructions");
  one.matrix_rate = one.memory_bandwidth = 0;
  CHECK(limits_line(one) == "limits measured on a card: 4000.0 GB/s read");
}

}  // namespace forge::tools

// Steps that run side by side, in one launch (passes/schedule/pair_steps.h), on kernels that the host runs.

#include <algorithm>
#include <catch2/catch.hpp>

#include "tests/gpu_host/host_gpu.h"

namespace forge::tests {

TEST_CASE("gpu model: matmuls of one value with weights of different types are one launch and give the same logits") {
  const TinyShape shape{.dtype = DType::kQ4_0, .biases = true, .types = {{"attn_v", DType::kQ4_1}}};
  const TinyModel model(shape);
  const auto ids = random_ids(9, shape.vocab, 5);
  HostGpu both(model, kWave32, 1, kByRows, Prompts::kShort), wide(model, kWave64, 1, kByRows, Prompts::kShort),
      apart(model, kWave32, 1, "matrix=0,beside=0", Prompts::kShort);
  const std::vector<std::int32_t> blocks{5, 2};
  const auto one_by_one = run_alone(*apart, ids, 1, blocks);
  CHECK(run_alone(*both, ids, 1, blocks) == one_by_one);
  CHECK(run_alone(*both, ids, 64, blocks) == run_alone(*apart, ids, 64, blocks));
  CHECK(nmse(run_alone(*wide, ids, 1, blocks), one_by_one) < 1e-8);
  CHECK(std::ranges::count_if(both.labels(), [](const auto& label) {
          return label.contains("rope_table") && label.contains("embed") && label.contains(" | ");
        }) == 1);
  CHECK(both.labels().size() + static_cast<std::size_t>(shape.layers) + 1 == apart.labels().size());
  CHECK(std::ranges::count_if(both.labels(), [](const auto& label) { return label.contains(" | matmul q4_1"); }) ==
        shape.layers);
}

}  // namespace forge::tests

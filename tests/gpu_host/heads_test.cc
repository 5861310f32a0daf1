// Attention that makes its own heads in steps of one token (kernels/gpu/attention_heads.h), on kernels that the host
// runs, against the launch for heads that all other steps have.

#include <algorithm>
#include <catch2/catch.hpp>

#include "tests/gpu_host/host_gpu.h"
#include "tests/support/reference_data.h"
#include "tests/support/skip.h"

namespace forge::tests {
namespace {

struct Case {
  const char* model;
  HostTarget target;
  DType kv;
  const char* tune;  ///< of both models
  double bound;      ///< of the logits' NMSE; rounding of activations to 8 bits makes 1e-5 of 1e-12
};

std::ptrdiff_t count_labels(const HostGpu& model, std::string_view part) {
  return std::ranges::count_if(model.labels(), [&](const auto& label) { return label.contains(part); });
}

}  // namespace

TEST_CASE("gpu model: attention of one token that makes its own heads gives the logits of two launches") {
  // With matrix instructions and without; contexts of two workers, of which one stores nothing; a sliding window;
  // values that their matmul stores (Q6_K beside Q4_K); blocks of fewer waves than rows.
  const auto& [name, target, kv, tune, bound] =
      GENERATE(Case{"conformance/qwen3-f16.gguf", kWave32, DType::kF16, "worker_tokens=16", 1e-9},
               Case{"conformance/qwen3-f16.gguf", kWave64, DType::kQ8_0, "head_tiles=0,worker_tokens=16", 1e-9},
               Case{"conformance/qwen3-f16.gguf", kWave32, DType::kQ4_0, "head_tiles=0,worker_tokens=16", 1e-9},
               Case{"conformance/qwen3-f16.gguf", {"gfx942", 64}, DType::kFp8, "head_tiles=0,worker_tokens=16", 1e-9},
               Case{"conformance/gemma3-q4_k_m.gguf", kWave32, DType::kF16, "head_tiles=0,attention_waves=2", 1e-4});
  CAPTURE(name, target.name, tune, dtype_name(kv));
  const auto path = reference_file(name);
  if (path.empty()) return;
  const TinyModel model(read_image(path));
  const auto ids = random_ids(40, 60, 7);
  const auto options = [&](std::string_view more) {
    return codegen::CompileOptions{.context = 64, .kv_type = kv, .tune = std::string(tune) + std::string(more)};
  };
  HostGpu one(model, model.portable().graph, target, options(""), Prompts::kShort),
      two(model, model.portable().graph, target, options(",join_heads=0"), Prompts::kShort);
  const auto layers = count_labels(two, "attention");
  CHECK(layers > 0);
  CHECK(count_labels(one, " + attention") == layers);
  CHECK(count_labels(two, " + attention") == 0);
  CHECK(one.labels().size() + static_cast<std::size_t>(layers) == two.labels().size());
  const std::vector<std::int32_t> blocks{1, 0};
  CHECK(nmse(run_alone(*one, ids, 1, blocks), run_alone(*two, ids, 1, blocks)) < bound);
}

}  // namespace forge::tests

// Whole models with each type of KV cache on the GPU executor, every kernel run lane by lane on the host: their logits
// agree with those of the CPU with the same type of cache, for decode, prefill, batches and forked sequences. Types
// that CPUs do not have are compared between the kernels, and with an f16 cache.

#include <algorithm>

#include <catch2/catch.hpp>

#include "tests/e2e/family_models.h"
#include "tests/e2e/tiny_model.h"
#include "tests/gpu_host/host_gpu.h"

namespace forge::tests {
namespace kv_types {

/// The model with a cache of that type.
HostGpu with_cache(const TinyModel& model, DType type, const HostTarget& target, std::int64_t batch = 2,
                   std::string tune = {}) {
  return {model, model.portable().graph, target, {.batch_max = batch, .kv_type = type, .tune = std::move(tune)}};
}
HostGpu with_q8_0(const TinyModel& model, const HostTarget& target, std::int64_t batch = 2, std::string tune = {}) {
  return with_cache(model, DType::kQ8_0, target, batch, std::move(tune));
}
/// A type that CPUs do not have. It moves the logits from those with an f16 cache, in NMSE, `least` to `most` times as
/// far as q8_0 does.
struct Type {
  DType dtype;
  double least, most;
  HostTarget targets[2];
};
constexpr Type kGpuTypes[] = {{DType::kQ4_0, 80, 800, {kWave32, kWave64}},  // (127 / 8)^2 = 252 for elements
                              {DType::kFp8, 5, 100, {{"gfx1201", 32}, {"gfx942", 64}}}};

const TinyShape kShape{.width = 128, .heads = 4, .kv_heads = 2, .head_dim = 32};

std::vector<float> on_cpu(const TinyModel& model, const std::vector<std::int32_t>& ids, DType type,
                          const std::vector<std::int32_t>& blocks = {0, 1, 2}) {
  return run_alone(*model.open(1, 4, {}, target_of_floats(), type), ids, 64, blocks);
}

/// A prompt's partial block is copied for a fork: the copy gives what its original gives, bit for bit, and both give
/// what the whole sequence alone does by `alone`, within the bound of the fork's own kernels: codes of activations
/// differ where a sum lies between two.
template <class Alone>
void check_copied_block(runtime::Executor& gpu, const TinyModel& model, Alone&& alone) {
  const auto vocab = static_cast<std::size_t>(model.file().vocab);
  const auto prompt = random_ids(45, model.file().vocab, 21);  // one full block and a partial one
  const std::int32_t same[] = {1, 1}, ids[] = {1, 2};
  const auto twice = after_copied_block(gpu, prompt, same);
  CHECK(std::ranges::equal(std::span(twice).first(vocab), std::span(twice).last(vocab)));
  const auto out = after_copied_block(gpu, prompt, ids);
  std::vector<float> expected;
  for (const auto id : ids) {
    auto longer = prompt;
    longer.push_back(id);
    const auto whole = alone(longer);
    expected.insert(expected.end(), whole.end() - static_cast<std::ptrdiff_t>(vocab), whole.end());
  }
  CHECK(nmse(out, expected) < 2e-5);
}

}  // namespace kv_types

TEST_CASE("gpu model: a q8_0 cache gives the CPU's logits with the same cache") {
  using namespace kv_types;
  const TinyModel model(kShape);
  const auto ids = random_ids(75, model.file().vocab, 11);
  const auto expected = on_cpu(model, ids, DType::kQ8_0), exact = on_cpu(model, ids, DType::kF16);
  const std::vector<std::int32_t> blocks{5, 2, 7};
  for (const auto& target : {kWave32, kWave64}) {
    CAPTURE(target.name);
    auto rows = with_q8_0(model, target, 1, kByRows), tiles = with_q8_0(model, target, 1, kByTiles);
    const auto one_by_one = run_alone(*rows, ids, 1, blocks);
    // The bound between two caches of this type is far below what the type costs.
    INFO("nmse to the CPU " << nmse(one_by_one, expected) << ", of the type " << nmse(expected, exact));
    CHECK(nmse(one_by_one, expected) < 2e-5);
    CHECK(nmse(one_by_one, exact) > 2e-5);
    CHECK(nmse(run_alone(*rows, ids, 64, blocks), one_by_one) < 2e-5);
    CHECK(nmse(run_alone(*tiles, ids, 64, blocks), expected) < 2e-5);
  }
}

TEST_CASE("gpu model: a q8_0 cache's blocks are copied with their scales") {
  using namespace kv_types;
  const TinyModel model(kShape);
  auto gpu = with_q8_0(model, kWave32);
  check_copied_block(*gpu, model, [&](const auto& ids) { return on_cpu(model, ids, DType::kQ8_0); });
}

TEST_CASE("gpu model: families with heads of 32 columns store and read a q8_0 cache: QK norms, windows") {
  using namespace kv_types;
  for (const char* family : {"qwen3", "exaone_moe"}) {
    CAPTURE(family);
    const TinyModel model(FileImage{family_gguf(family_model(family))});
    auto gpu = with_q8_0(model, kWave32, 1);
    const auto logits = run_alone(*gpu, family_tokens(), 64, {1});
    CHECK(nmse(logits, on_cpu(model, family_tokens(), DType::kQ8_0, {0})) < 2e-5);
  }
}

TEST_CASE(
    "gpu model: decode by rows and by tiles of heads, and prefill by tiles, agree about types that CPUs do not have") {
  using namespace kv_types;
  // One layer, whose keys and values depend on the tokens alone, and F32 weights, which no tile multiplies: the caches
  // are the same bits.
  auto shape = kShape;
  shape.layers = 1;
  const TinyModel model(shape);
  const auto ids = random_ids(75, model.file().vocab, 11);
  const auto exact = on_cpu(model, ids, DType::kF16);
  const double unit = nmse(on_cpu(model, ids, DType::kQ8_0), exact);
  const std::vector<std::int32_t> blocks{5, 2, 7};
  for (const auto& type : kGpuTypes)
    for (const auto& target : type.targets) {
      CAPTURE(target.name, dtype_name(type.dtype));
      auto rows = with_cache(model, type.dtype, target, 1, kByRows),
           tiles = with_cache(model, type.dtype, target, 1, kByTiles);
      CHECK((!rows.kernels().contains("attention_heads_") && tiles.kernels().contains("attention_heads_")));
      CHECK(tiles.kernels().contains("attention_tiles_"));
      const auto one_by_one = run_alone(*rows, ids, 1, blocks);
      const double factor = nmse(one_by_one, exact) / unit;
      INFO("the type costs " << factor << " times what q8_0 does, " << unit);
      CHECK((factor > type.least && factor < type.most));
      CHECK(nmse(run_alone(*rows, ids, 64, blocks), one_by_one) < 1e-9);
      CHECK(nmse(run_alone(*tiles, ids, 1, blocks), one_by_one) < 2e-5);
      CHECK(nmse(run_alone(*tiles, ids, 64, blocks), one_by_one) < 2e-5);
    }
}

TEST_CASE("gpu model: a large key in each head costs a q4_0 cache little, since its keys are transformed") {
  using namespace kv_types;
  auto shape = kShape;
  shape.biases = true;
  shape.key_outlier = 12;
  const TinyModel model(shape);
  const auto ids = random_ids(75, model.file().vocab, 11);
  const auto exact = on_cpu(model, ids, DType::kF16);
  for (const auto& target : {kWave32, kWave64})
    for (const char* tune : {kByRows, kByTiles}) {
      CAPTURE(target.name, tune);
      auto gpu = with_cache(model, DType::kQ4_0, target, 1, tune);
      CHECK(nmse(run_alone(*gpu, ids, 64, {5, 2, 7}), exact) < 0.17);  // 0.12; 0.29 with keys as they are
    }
}

TEST_CASE("gpu model: blocks of types that CPUs do not have are copied whole") {
  using namespace kv_types;
  const TinyModel model(kShape);
  for (const auto& type : kGpuTypes) {
    CAPTURE(dtype_name(type.dtype));
    auto gpu = with_cache(model, type.dtype, type.targets[0], 2, kByRows),
         alone = with_cache(model, type.dtype, type.targets[0], 1, kByRows);
    check_copied_block(*gpu, model, [&](const auto& ids) { return run_alone(*alone, ids, 64, {0, 1}); });
  }
}

TEST_CASE("gpu model: families store and read types that CPUs do not have: QK norms, windows") {
  using namespace kv_types;
  const TinyModel qwen3(FileImage{family_gguf(family_model("qwen3"))}),
      windows(FileImage{family_gguf(family_model("exaone_moe"))});
  const auto exact = on_cpu(qwen3, family_tokens(), DType::kF16, {0});
  const double unit = nmse(on_cpu(qwen3, family_tokens(), DType::kQ8_0, {0}), exact);
  for (const auto& type : kGpuTypes) {
    CAPTURE(dtype_name(type.dtype));
    auto gpu = with_cache(qwen3, type.dtype, type.targets[0], 1);
    const double factor = nmse(run_alone(*gpu, family_tokens(), 64, {1}), exact) / unit;
    INFO("the type costs " << factor << " times what q8_0 does, " << unit);
    CHECK((factor > type.least && factor < type.most));
    // A choice of experts magnifies what the type costs.
    auto by_rows = with_cache(windows, type.dtype, type.targets[0], 1, kByRows);
    CHECK(nmse(run_alone(*by_rows, family_tokens(), 64, {1}), run_alone(*by_rows, family_tokens(), 1, {1})) < 2e-5);
  }
}

}  // namespace forge::tests

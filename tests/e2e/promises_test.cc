// The executor's guarantees about memory and bytes read, and a proof that the bounds of the other tests are tight
// enough to notice a wrong rotation, epsilon or mask.

#include <catch2/catch.hpp>

#include <numeric>

#include "tests/e2e/tiny_model.h"
#include "tests/runtime/allocation_counter.h"

using namespace forge;
using namespace forge::tests;

namespace {

const std::vector<std::int32_t> kBlocks = {0, 1, 2};

}  // namespace

TEST_CASE("a step of any shape allocates nothing") {
  const TinyModel model({.dtype = DType::kQ4_1});
  for (const std::size_t threads : {1, 2}) {
    const auto executor = model.open(threads);
    const auto ids = random_ids(40, model.file().vocab, 2);
    std::vector<std::int32_t> positions(40), sequence(40, 0), rows(1, 39), length{40};
    std::iota(positions.begin(), positions.end(), 0);
    const auto before = test::allocations();
    executor->forward({.ids = ids,
                       .positions = positions,
                       .sequence = sequence,
                       .rows = rows,
                       .kv_length = length,
                       .block_table = kBlocks,
                       .table_stride = 3});
    for (std::int32_t i = 40; i < 60; ++i) {
      const std::int32_t id[] = {i}, position[] = {i}, zero[] = {0}, now[] = {i + 1};
      executor->forward({.ids = id,
                         .positions = position,
                         .sequence = zero,
                         .rows = zero,
                         .kv_length = now,
                         .block_table = kBlocks,
                         .table_stride = 3});
    }
    CHECK(test::allocations() == before);
  }
}

TEST_CASE("a decode step reads each weight once, by the plan's own count") {
  for (const bool tied : {true, false}) {
    const TinyModel model({.dtype = DType::kQ8_0, .tied = tied});
    const auto executor = model.open(1, 1);
    const auto& decode = executor->variants()[0];
    std::int64_t read = 0;
    for (const auto& step : decode.steps) read += step.weight_bytes;
    INFO("read " << read << " of " << executor->program().weights_bytes);
    CHECK(static_cast<double>(read) <= 1.05 * static_cast<double>(executor->program().weights_bytes));
    CHECK(static_cast<double>(read) >= 0.95 * static_cast<double>(executor->program().weights_bytes));
  }
}

TEST_CASE("a wrong RoPE base, epsilon, softmax scale or mask is noticed") {
  const TinyModel model({.dtype = DType::kF32, .eps = 1e-3F});
  const auto ids = random_ids(60, model.file().vocab, 8);
  const auto logits = run_alone(*model.open(), ids, 64, kBlocks);
  const auto& graph = model.portable().graph;
  CHECK(nmse(logits, model.reference(graph, ids, false)) < 1e-6);
  const auto wrong = [&](const ir::Graph& other) { return nmse(logits, model.reference(other, ids, false)); };
  CHECK(wrong(with_attrs<ir::RopeFreqsAttrs>(graph, ir::Op::kRopeFreqs, [](auto& a) { a.base *= 1.01F; })) > 1e-5);
  CHECK(wrong(with_attrs<ir::NormAttrs>(graph, ir::Op::kRmsNorm, [](auto& a) { a.eps *= 3; })) > 1e-5);
  CHECK(wrong(with_attrs<ir::ScaleAttrs>(graph, ir::Op::kScale, [](auto& a) { a.factor *= 1.02F; })) > 1e-5);
  CHECK(wrong(with_attrs<ir::AttentionAttrs>(graph, ir::Op::kAttention, [](auto& a) { a.window = 59; })) > 1e-6);
}

// Multi-head latent attention (MLA) from the plan to the logits: a KV cache of one latent row per token, matmuls with
// one weight per head, and refusal of inconsistent plans.

#include <catch2/catch.hpp>

#include <algorithm>
#include <numeric>
#include <span>
#include <stdexcept>

#include "tests/e2e/family_models.h"
#include "tests/e2e/tiny_model.h"

using namespace forge;
using namespace forge::tests;

namespace {

TinyModel latent_model() {
  return TinyModel(FileImage{family_gguf(family_model("deepseek_v3"))});
}

plan::TileT& batched_tile(plan::ProgramT& program) {
  for (const auto& step : program.variants.at(0)->steps)
    if (auto* tile = step->body.AsTile(); tile != nullptr && tile->source.AsBatchedMatmulRows() != nullptr)
      return *tile;
  FAIL("no batched matmul");
  throw std::logic_error("no batched matmul");
}

plan::AttentionT& attention(plan::ProgramT& program) {
  for (const auto& step : program.variants.at(0)->steps)
    if (auto* found = step->body.AsAttention(); found != nullptr) return *found;
  FAIL("no attention");
  throw std::logic_error("no attention");
}

/// The program's first step that stores keys and values.
plan::StoreKvT& kv_store(plan::ProgramT& program) {
  for (const auto& step : program.variants.at(0)->steps)
    if (auto* tile = step->body.AsTile(); tile != nullptr)
      for (const auto& section : tile->sections)
        for (const auto& op : section->ops)
          if (auto* store = op->body.AsStoreKv(); store != nullptr) return *store;
  FAIL("no KV store");
  throw std::logic_error("no KV store");
}

}  // namespace

TEST_CASE("latent attention: a Q8_0 cache gives the logits of an F16 one within its rounding") {
  const auto model = latent_model();
  const auto ids = family_tokens();
  std::vector<std::int32_t> blocks(2);
  std::iota(blocks.begin(), blocks.end(), 0);
  const auto exact = run_alone(*model.open(1, 1), ids, 64, blocks);
  const auto executor = model.open(1, 1, {}, codegen::host_target(), DType::kQ8_0);
  const auto rounded = run_alone(*executor, ids, 64, blocks);
  const std::size_t vocab = exact.size() / ids.size();
  std::vector<double> errors;  // per row; a row is far off if rounding makes the router select other experts
  for (std::size_t row = 0; row < ids.size(); ++row)
    errors.push_back(
        nmse(std::span(rounded).subspan(row * vocab, vocab), std::span(exact).subspan(row * vocab, vocab)));
  std::ranges::sort(errors);
  INFO("nmse of rows: " << errors[0] << " to " << errors.back());
  CHECK(rounded != exact);
  CHECK(errors[errors.size() / 2] < 1e-3);
  CHECK(errors[errors.size() - 3] < 5e-3);
  CHECK(run_alone(*executor, ids, 1, blocks) == rounded);
  CHECK(executor->program().kv_groups.at(0).block_bytes() ==
        34 * 32);  // 32 tokens of 32 columns and one f16 scale each
}

TEST_CASE("latent attention: a plan with inconsistent numbers is refused") {
  const auto model = latent_model();
  CHECK(opening(model, [](auto&) {}).empty());
  const auto says = [&](auto edit, const char* why) {
    const auto line = opening(model, edit);
    INFO(line);
    CHECK(line.find(why) != std::string::npos);
  };
  const auto source = [](plan::ProgramT& program) { return batched_tile(program).source.AsBatchedMatmulRows(); };
  for (const std::int32_t batches : {-1, 0, 1 << 20})
    says([&](auto& p) { source(p)->batches = batches; }, "out of range");
  says([&](auto& p) { source(p)->batches = 5; }, "equal batches");
  says([&](auto& p) { source(p)->batches = 96; }, "spans two batches");
  says([&](auto& p) { source(p)->x = 60'000; }, "an operand is missing");
  for (const std::int64_t k : {std::int64_t{-1}, std::int64_t{0}, std::int64_t{1} << 41})
    says([&](auto& p) { source(p)->k = k; }, "out of range");
  says([&](auto& p) { source(p)->k = 1 << 20; }, "rows of x overlap");
  says([&](auto& p) { batched_tile(p).sections[0]->end += 16; }, "spans two batches");
  says([&](auto& p) { kv_store(p).part = plan::KvPart::Values; }, "keys and values share rows");
  says([&](auto& p) { attention(p).value_dim = 16; }, "heads differ from its KV group's");
  says([&](auto& p) { attention(p).head_dim = 24; }, "heads differ from its KV group's");
  const auto with_group = [&](std::int32_t head_dim, std::int32_t value_dim, std::int64_t block_bytes, DType type,
                              bool shared_row) {
    return [=](plan::ProgramT& p) {
      const auto& g = p.kv_groups[0];
      p.kv_groups[0] = plan::KvGroup(g.layers(), 1, head_dim, value_dim, g.block_tokens(), 0, block_bytes,
                                     static_cast<std::uint8_t>(type), shared_row);
    };
  };
  CHECK(opening(model, with_group(32, 24, 2048, DType::kF16, true)).empty());
  says(with_group(32, 33, 2048, DType::kF16, true), "KV geometry is broken");
  says(with_group(32, 24, 4096, DType::kF16, true), "KV geometry is broken");
  says(with_group(32, 24, 2048, DType::kF16, false), "KV geometry is broken");
  says(with_group(32, 24, 2048, DType::kF32, true), "KV geometry is broken");
  says(with_group(32, 0, 2048, DType::kF16, true), "KV geometry is broken");
  says([](auto& p) { p.recurrent_groups.emplace_back(1, 63); }, "recurrent state is broken");
}

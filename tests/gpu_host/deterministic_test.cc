// Programs compiled with --deterministic: a sequence's logits are the same bits alone and beside others, however its
// prompt is cut into steps, and whether its first block was computed for another sequence.

#include <algorithm>
#include <bit>
#include <catch2/catch.hpp>

#include "tests/e2e/family_models.h"
#include "tests/gpu_host/host_gpu.h"
#include "tests/support/skip.h"

namespace forge::tests {
namespace {

using Ids = std::vector<std::int32_t>;

/// What a sequence has in a step: tokens begin .. end - 1 of `ids`. The sequence's number is its slot of recurrent
/// state.
struct Part {
  const Ids& ids;
  std::vector<std::int32_t> blocks;
  std::size_t begin = 0, end = 0;
};

/// One step of these parts of sequences 0, 1, ... Returns the logits of all tokens of sequence 0; the others have a row
/// for their last token.
std::vector<float> step(runtime::Executor& executor, const std::vector<Part>& parts) {
  Ids ids, positions, sequence, rows, lengths, table, read, write;
  for (std::size_t s = 0; s < parts.size(); ++s) {
    const auto& part = parts[s];
    for (auto at = part.begin; at < part.end; ++at) {
      if (s == 0 || at + 1 == part.end) rows.push_back(static_cast<std::int32_t>(ids.size()));
      ids.push_back(part.ids[at]);
      positions.push_back(static_cast<std::int32_t>(at));
      sequence.push_back(static_cast<std::int32_t>(s));
    }
    lengths.push_back(static_cast<std::int32_t>(part.end));
    read.push_back(part.begin == 0 ? -1 : static_cast<std::int32_t>(s));
    write.push_back(static_cast<std::int32_t>(s));
  }
  for (std::size_t group = 0; group < executor.kv_pool_sizes().size(); ++group)
    for (const auto& part : parts) table.insert(table.end(), part.blocks.begin(), part.blocks.end());
  const std::size_t states = executor.state_slots() > 0 ? parts.size() : 0;
  const auto logits = executor.forward({.ids = ids,
                                        .positions = positions,
                                        .sequence = sequence,
                                        .rows = rows,
                                        .kv_length = lengths,
                                        .block_table = table,
                                        .table_stride = parts[0].blocks.size(),
                                        .state_read = std::span(read).first(states),
                                        .state_write = std::span(write).first(states)});
  const auto own = (parts[0].end - parts[0].begin) * executor.vocab();
  return {logits.begin(), logits.begin() + static_cast<std::ptrdiff_t>(own)};
}

/// The ways to compute a sequence whose logits differ in any bit from those of chunks of 16 tokens.
std::vector<std::string> differences(HostGpu& gpu, std::size_t tokens = 48) {
  REQUIRE(tokens > 32);
  const auto vocab = static_cast<std::int64_t>(gpu->vocab());
  const auto ids = random_ids(tokens, vocab, 7), second = random_ids(9, vocab, 8), third = random_ids(3, vocab, 9);
  const std::vector<std::int32_t> blocks{5, 2};
  const Part beside{second, {4, 6}, 0, 5}, short_one{third, {0, 3}, 0, 1};
  const auto in_chunks = [&](std::size_t chunk) {
    std::vector<float> logits;
    for (std::size_t at = 0; at < tokens; at += chunk) {
      const auto some = step(*gpu, {{ids, blocks, at, std::min(at + chunk, tokens)}});
      logits.insert(logits.end(), some.begin(), some.end());
    }
    return logits;
  };
  const auto expected = in_chunks(16);
  std::vector<std::string> out;
  // The logits of tokens `from` and following.
  const auto compare = [&](const std::string& way, const std::vector<float>& logits, std::size_t from = 0) {
    const auto same = [](float a, float b) {
      return std::bit_cast<std::uint32_t>(a) == std::bit_cast<std::uint32_t>(b);
    };
    if (!std::ranges::equal(logits, std::span(expected).subspan(from * gpu->vocab(), logits.size()), same))
      out.push_back(way);
  };
  for (const std::size_t chunk : {1, 3, 7, 64}) compare(fmt::format("chunks of {}", chunk), in_chunks(chunk));
  compare("beside prompts", step(*gpu, {{ids, blocks, 0, 20}, beside, short_one}));
  compare("beside generated tokens",
          step(*gpu, {{ids, blocks, 20, tokens - 1}, {second, beside.blocks, 5, 6}, {third, short_one.blocks, 1, 2}}),
          20);
  compare(
      "generated beside others",
      step(*gpu, {{ids, blocks, tokens - 1, tokens}, {second, beside.blocks, 6, 7}, {third, short_one.blocks, 2, 3}}),
      tokens - 1);
  if (gpu->state_slots() == 0) compare("reused block", step(*gpu, {{ids, {blocks[0], 7}, 32, tokens}}), 32);
  return out;
}

/// Chunks of few keys, so that several waves and workers share contexts of few tokens.
codegen::CompileOptions options(DType kv_type = DType::kF16) {
  return {.context = 64,
          .batch_max = 4,
          .kv_type = kv_type,
          .tune = "worker_tokens=16,team_tokens=1",
          .deterministic = true};
}

void check_same(const TinyModel& model, const HostTarget& target, DType kv_type = DType::kF16) {
  CAPTURE(target.name, dtype_name(kv_type));
  HostGpu gpu(model, model.portable().graph, target, options(kv_type));
  CHECK(!gpu.tiles());
  CHECK(differences(gpu) == std::vector<std::string>{});
}

void check_families(std::initializer_list<std::pair<const char*, HostTarget>> families) {
  for (const auto& [name, target] : families) {
    CAPTURE(name);
    check_same(TinyModel(FileImage{family_gguf(family_model(name))}), target);
  }
}

void check_reference(const char* name, const HostTarget& target) {
  CAPTURE(name);
  if (const auto path = reference_file(name); !path.empty()) check_same(TinyModel(read_image(path)), target);
}

}  // namespace

TEST_CASE("deterministic: a Llama's logits are the same bits in any step") {
  const TinyShape wide{.dtype = DType::kQ4_K, .width = 256, .ffn = 256, .heads = 4, .kv_heads = 2, .head_dim = 64};
  const TinyModel q4_k(wide), f16({.dtype = DType::kF16, .ffn = 1024, .head_dim = 64}),
      q8_0({.dtype = DType::kQ8_0, .head_dim = 32});
  check_same(f16, kWave32);
  check_same(q8_0, kWave64);
  check_same(q4_k, kWave32, DType::kQ8_0);
}

TEST_CASE("deterministic: without it, bits depend on the step") {
  const TinyModel model({.dtype = DType::kF16, .ffn = 1024, .head_dim = 64});
  auto by_default = options();
  by_default.deterministic = false;
  HostGpu gpu(model, model.portable().graph, kWave32, by_default);
  CHECK(differences(gpu).size() > 3);
  by_default.tune += ",matrix=0";  // the number of workers and of waves of a norm still do
  HostGpu rows(model, model.portable().graph, kWave32, by_default);
  CHECK(!differences(rows).empty());
}

TEST_CASE("deterministic: experts, sliding windows, sinks, norms of whole rows") {
  check_families({{"qwen3moe", kWave32}, {"gpt_oss", kWave64}, {"gemma2", kWave32}, {"gemma3n", kWave64}});
}

TEST_CASE("deterministic: latent and sparse attention") {
  check_families({{"deepseek_v3", kWave32}, {"deepseek32", kWave64}, {"minimax_m3", kWave32}});
}

TEST_CASE("deterministic: recurrent state") {
  check_families({{"falcon_mamba", kWave32}, {"plamo2", kWave64}});
  check_reference("families/qwen3next-f16.gguf", kWave32);
  check_reference("families/rwkv7-q4_0.gguf", kWave64);
}

}  // namespace forge::tests

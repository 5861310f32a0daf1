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

/// What a program is asked for. It is compiled for `batch` sequences; `few`: also for steps of 3 to 16 tokens.
struct Asked {
  DType kv_type = DType::kF16;
  std::int64_t batch = 2, context = 64;
  std::size_t tokens = 50;  ///< of the sequence: a block and more than 16
  bool few = false, deterministic = true;
  std::string tune = {};
};

/// The program has chunks of few keys, so that several waves and workers share contexts of few tokens.
HostGpu compiled(const TinyModel& model, const HostTarget& target, const Asked& asked) {
  return {model,
          model.portable().graph,
          target,
          {.context = asked.context,
           .batch_max = asked.batch,
           .kv_type = asked.kv_type,
           .tune = "worker_tokens=16,team_tokens=1" + asked.tune,
           .deterministic = asked.deterministic},
          asked.few ? Prompts::kAny : Prompts::kLong};
}

/// The ways to compute a sequence whose logits differ in any bit from those of chunks of 17 tokens or more.
std::vector<std::string> differences(HostGpu& gpu, const Asked& asked) {
  const auto vocab = static_cast<std::int64_t>(gpu->vocab());
  const auto tokens = asked.tokens;
  const auto ids = random_ids(tokens, vocab, 7), second = random_ids(9, vocab, 8), third = random_ids(3, vocab, 9);
  std::vector<std::int32_t> blocks, of_second, of_third, reused;
  for (auto block = static_cast<std::int32_t>(tokens / 32); block >= 0; --block) {
    blocks.push_back(2 * block + 1);
    of_second.push_back(2 * block);
    of_third.push_back(block + 4);
    reused.push_back(blocks.size() == 1 ? blocks[0] : of_second.back());
  }
  const auto in_chunks = [&](std::size_t chunk) {
    std::vector<float> logits;
    for (std::size_t at = 0; at < tokens; at += chunk) {
      const auto some = step(*gpu, {{ids, blocks, at, std::min(at + chunk, tokens)}});
      logits.insert(logits.end(), some.begin(), some.end());
    }
    return logits;
  };
  const auto expected = in_chunks(tokens / 2);
  std::vector<std::string> out;
  // The logits of tokens `from` and following.
  const auto compare = [&](const std::string& way, const std::vector<float>& logits, std::size_t from = 0) {
    const auto same = [](float a, float b) {
      return std::bit_cast<std::uint32_t>(a) == std::bit_cast<std::uint32_t>(b);
    };
    REQUIRE(!logits.empty());
    if (!std::ranges::equal(logits, std::span(expected).subspan(from * gpu->vocab(), logits.size()), same))
      out.push_back(way);
  };
  compare("one by one", in_chunks(1));
  if (tokens <= 64) compare("whole", in_chunks(64));
  if (asked.few)
    for (const std::size_t chunk : {3, 7, 16}) compare(fmt::format("chunks of {}", chunk), in_chunks(chunk));
  // Tokens begin .. end - 1 beside others; the second sequence has read `before` tokens.
  const auto beside = [&](std::size_t begin, std::size_t end, std::size_t before, std::size_t more) {
    std::vector<Part> parts{{ids, blocks, begin, end}, {second, of_second, before, before + more}};
    if (asked.batch > 2) parts.push_back({third, of_third, before > 0 ? before - 4 : 0, before > 0 ? before - 3 : 1});
    return step(*gpu, parts);
  };
  compare("beside a prompt", beside(0, 20, 0, 5));
  compare("beside generated tokens", beside(20, tokens - 1, 5, 1), 20);
  compare("generated beside others", beside(tokens - 1, tokens, 6, 1), tokens - 1);
  if (gpu->state_slots() == 0) {
    compare("reused block", step(*gpu, {{ids, reused, 32, tokens}}), 32);
  }
  return out;
}

void check_same(const TinyModel& model, const HostTarget& target, const Asked& asked = {}) {
  CAPTURE(target.name, dtype_name(asked.kv_type));
  auto gpu = compiled(model, target, asked);
  CHECK(!gpu.tiles());
  CHECK(differences(gpu, asked) == std::vector<std::string>{});
}

void check_same_of_family(const char* name, const HostTarget& target, const Asked& asked = {}) {
  CAPTURE(name);
  check_same(TinyModel(FileImage{family_gguf(family_model(name))}), target, asked);
}

void check_same_of_reference(const char* name, const HostTarget& target) {
  CAPTURE(name);
  if (const auto path = reference_file(name); !path.empty()) check_same(TinyModel(read_image(path)), target);
}

}  // namespace

TEST_CASE("deterministic: a Llama's logits are the same bits in any step") {
  const TinyModel q8_0({.dtype = DType::kQ8_0, .layers = 1, .head_dim = 32});
  check_same(q8_0, kWave64, {.few = true});
}

TEST_CASE("deterministic: without it, bits depend on the step") {
  const TinyModel model({.dtype = DType::kQ8_0, .layers = 1, .head_dim = 32});
  Asked asked{.deterministic = false};
  auto tiles = compiled(model, kWave64, asked);
  CHECK(!differences(tiles, asked).empty());
}

TEST_CASE("deterministic: experts, sliding windows, sinks") {
  check_same_of_family("gpt_oss", kWave64);
}

// Each compiles many kernels.
TEST_CASE("deterministic: other weights, caches and numbers of sequences", "[.nightly]") {
  const TinyShape wide{
      .dtype = DType::kQ4_K, .layers = 1, .width = 256, .ffn = 256, .heads = 4, .kv_heads = 2, .head_dim = 64};
  const TinyModel q4_k(wide), f16({.dtype = DType::kF16, .layers = 1, .ffn = 1024, .head_dim = 64});
  check_same(f16, kWave32, {.batch = 4, .few = true});
  check_same(q4_k, kWave32, {.kv_type = DType::kQ8_0});
  Asked asked{.few = true, .deterministic = false};
  asked.tune = ",matrix=0";  // the numbers of workers of a context and of waves of a row still make a difference
  auto rows = compiled(f16, kWave32, asked);
  CHECK(!differences(rows, asked).empty());
}

TEST_CASE("deterministic: norms of whole rows", "[.nightly]") {
  check_same_of_family("gemma3n", kWave32);
}

// A second worker shares latent rows from position 64 on.
TEST_CASE("deterministic: latent and sparse attention", "[.nightly]") {
  check_same_of_family("deepseek_v3", kWave32, {.context = 128, .tokens = 72});
  check_same_of_family("deepseek32", kWave64);
}

TEST_CASE("deterministic: recurrent state", "[.nightly]") {
  check_same_of_family("falcon_mamba", kWave32);
  check_same_of_reference("families/qwen3next-f16.gguf", kWave64);
  check_same_of_reference("families/rwkv7-q4_0.gguf", kWave32);
}

}  // namespace forge::tests

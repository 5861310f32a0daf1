// Whole models on the GPU executor, every kernel run lane by lane on the host. Logits agree with the reference
// interpreter, for decode, prefill and batches, and tokens sampled on the device equal the host's.

#include <algorithm>
#include <catch2/catch.hpp>
#include <memory>

#include "codegen/gpu/targets.h"
#include "passes/pass.h"
#include "runtime/engine/engine_core.h"
#include "session/generate.h"
#include "tests/e2e/elementwise_graphs.h"
#include "tests/e2e/family_models.h"
#include "tests/gpu_host/host_gpu.h"
#include "tests/support/skip.h"

namespace forge::tests {
namespace {

double bound_of(DType dtype) {
  return is_float(dtype) ? 1e-6 : 2e-3;
}

void check_model(const TinyShape& shape, const HostTarget& target) {
  CAPTURE(dtype_name(shape.dtype), target.name);
  const TinyModel model(shape);
  const auto ids = random_ids(37, shape.vocab, 7);
  const auto expected = model.reference(model.portable().graph, ids, false);
  const std::vector<std::int32_t> blocks{5, 2};
  HostGpu rows(model, target, 1, kByRows, Prompts::kLong);
  CHECK(!rows.tiles());
  const auto whole = run_alone(*rows, ids, 64, blocks), one_by_one = run_alone(*rows, ids, 1, blocks);
  CHECK(nmse(whole, expected) < bound_of(shape.dtype));
  CHECK(nmse(one_by_one, expected) < bound_of(shape.dtype));
  CHECK(nmse(one_by_one, whole) < 1e-8);
  HostGpu tiles(model, target, 1, kByTiles, Prompts::kLong);
  CHECK(tiles.tiles());
  CHECK(nmse(run_alone(*tiles, ids, 64, blocks), expected) < bound_of(shape.dtype));
}

/// Logits of the family's small model, whole and token by token, against NumPy's. steps_agree: NMSE between the two.
void check_family(const char* name, const HostTarget& target, double steps_agree = 1e-8) {
  CAPTURE(name, target.name);
  const auto& family = family_model(name);
  const TinyModel model(FileImage{family_gguf(family)});
  HostGpu gpu(model, target, 1, kByRows, Prompts::kShort);
  const std::vector<std::int32_t> blocks{5};
  const auto whole = run_alone(*gpu, family_tokens(), 64, blocks);
  CHECK(nmse(kept_rows(whole), family_logits_of_f16_cache(family)) < bound_of(DType::kF32));
  CHECK(nmse(run_alone(*gpu, family_tokens(), 1, blocks), whole) < steps_agree);
}

std::int32_t largest(std::span<const float> logits) {
  return static_cast<std::int32_t>(std::ranges::max_element(logits) - logits.begin());
}

/// `count` tokens after `id`, sampled greedily on the host from the logits of forward().
std::vector<std::int32_t> greedy_by_host(runtime::Executor& executor, std::int32_t id, int count,
                                         std::span<const std::int32_t> blocks) {
  std::vector<std::int32_t> out;
  for (std::int32_t position = 0; position < count; ++position) {
    const std::int32_t zero = 0, length = position + 1;
    const auto logits = executor.forward({.ids = std::span(&id, 1),
                                          .positions = std::span(&position, 1),
                                          .sequence = std::span(&zero, 1),
                                          .rows = std::span(&zero, 1),
                                          .kv_length = std::span(&length, 1),
                                          .block_table = blocks,
                                          .table_stride = blocks.size()});
    id = largest(logits);
    out.push_back(id);
  }
  return out;
}

}  // namespace

TEST_CASE("gpu model: tokens sampled on the device equal those sampled on the host") {
  const TinyModel model({.dtype = DType::kQ8_0});
  for (const auto& target : {kWave32, kWave64}) {
    CAPTURE(target.name);
    HostGpu gpu(model, target, 2);
    constexpr int kSteps = 40;
    const std::vector<std::int32_t> blocks{6, 1, 3, 4};  // two blocks of each sequence
    const std::vector<std::int32_t> first{11, 60}, positions{0, 0};
    std::vector<std::vector<std::int32_t>> expected;
    for (std::size_t s = 0; s < 2; ++s)
      expected.push_back(greedy_by_host(*gpu, first[s], kSteps, std::span(blocks).subspan(2 * s, 2)));
    std::vector<runtime::Sampler> samplers;
    for (int s = 0; s < 2; ++s) samplers.emplace_back(gpu->vocab(), runtime::SamplerParams{});
    const runtime::Sampler* const of_rows[] = {&samplers[0], &samplers[1]};
    auto* loop = gpu->decode_loop();
    REQUIRE(loop != nullptr);
    loop->start({.ids = first,
                 .positions = positions,
                 .samplers = of_rows,
                 .block_table = blocks,
                 .table_stride = 2,
                 .steps_max = kSteps});
    std::vector<std::vector<std::int32_t>> got(2);
    for (int step = 0; step < kSteps; ++step) {
      if (loop->in_flight() == loop->in_flight_max()) loop->take();
      loop->submit();
      const auto tokens = loop->take();
      for (std::size_t s = 0; s < 2; ++s) got[s].push_back(tokens[s]);
    }
    loop->stop();
    CHECK(got == expected);
  }
}

TEST_CASE("gpu model: recurrent state: the device's loop gives the tokens of single steps, also behind a stop") {
  const auto path = reference_file("families/mamba-f16.gguf");
  if (path.empty()) return;
  const TinyModel model(read_image(path));
  HostGpu gpu(model, kWave32, 1, {}, Prompts::kShort);
  const auto answers = [&](const runtime::SamplerParams& params) {
    session::Sequences sequences(*gpu, 128, 1);
    std::vector<std::int32_t> tokens = {5, 9, 2, 6};
    for (const std::size_t stop : {5, 4, 6}) {
      const auto held = static_cast<std::size_t>(sequences.length(0));
      const auto out =
          session::generate(sequences, gpu->vocab(), tokens, {.tokens_max = 20, .sampler = params, .held = held},
                            [&, count = std::size_t{0}](std::int32_t) mutable -> std::optional<session::Finish> {
                              return ++count == stop ? std::optional(session::Finish::kStop) : std::nullopt;
                            });
      tokens.insert(tokens.end(), out.tokens.begin(), out.tokens.end());
      tokens.push_back(3);
    }
    return tokens;
  };
  // A bias makes the host sample.
  CHECK(answers({.temperature = 1, .seed = 2}) == answers({.temperature = 1, .seed = 2, .logit_bias = {{0, 0.0F}}}));
}

TEST_CASE("gpu model: weights stored as parts of larger tensors in a second file give the same logits") {
  for (const TinyShape& shape : {TinyShape{.dtype = DType::kQ8_0, .biases = true},
                                 TinyShape{.dtype = DType::kQ4_0, .experts = 4, .experts_used = 2}}) {
    const TinyModel model(shape);
    const auto ids = random_ids(9, shape.vocab, 5);
    HostGpu whole(model, kWave32, 1, kByRows, Prompts::kShort),
        parts(model, model.portable().graph, kWave32, {.tune = kByRows}, Prompts::kShort, true);
    CHECK(run_alone(*parts, ids, 64, {5, 2}) == run_alone(*whole, ids, 64, {5, 2}));
  }
}

TEST_CASE("gpu model: skipping any optional pass keeps the logits") {
  const TinyModel model({.dtype = DType::kQ8_0});
  const auto ids = random_ids(21, model.file().vocab, 6);
  const std::vector<std::int32_t> blocks{5, 2};
  std::vector<std::vector<std::string>> skips{{}};  // no pass, each single pass, all passes
  for (const auto& pass : passes::pipeline_passes())
    if (pass.optional) skips.push_back({std::string(pass.name)});
  for (std::size_t i = 1, count = skips.size(); i < count; ++i) skips.front().push_back(skips[i].front());
  for (const char* tune : {kByRows, kByTiles}) {
    HostGpu full(model, kWave32, 1, tune, Prompts::kLong);
    const auto prompt = run_alone(*full, ids, 64, blocks);
    for (const auto& skip : skips) {
      CAPTURE(tune, skip);
      HostGpu gpu(model, kWave32, 1, tune, Prompts::kLong, skip);
      CHECK(nmse(run_alone(*gpu, ids, 64, blocks), prompt) < 1e-3);
      CHECK(nmse(run_alone(*gpu, ids, 1, blocks), prompt) < 1e-3);
    }
  }
}

TEST_CASE("gpu model: every attention kernel and split gives the same result") {
  using Catch::Contains;
  // F16 weights, since their activations are not rounded to int8, which would amplify every difference.
  const TinyModel model({.dtype = DType::kF16, .heads = 2, .kv_heads = 1, .head_dim = 32});
  const auto prompt = random_ids(90, model.file().vocab, 6);
  const std::vector<std::int32_t> few(prompt.begin(), prompt.begin() + 40), blocks{5, 2, 0, 4, 1};
  const std::string tune = "matrix=1,worker_tokens=32";  // a second worker from position 32 on
  for (const auto& target : {kWave32, kWave64}) {
    CAPTURE(target.name);
    HostGpu left(model, target, 1, tune, Prompts::kLong);
    const auto of_prompt = run_alone(*left, prompt, 64, blocks), of_few = run_alone(*left, few, 1, blocks);
    const auto check = [&](const char* attention, const std::string& prompts, const char* decoding) {
      CAPTURE(attention);
      HostGpu asked(model, target, 1, tune, Prompts::kLong, {}, attention);
      CHECK_THAT(asked.reasons(), Contains("prefill512: " + prompts + ", as requested\n"));
      CHECK_THAT(asked.reasons(), Contains(std::string("decode1: ") + decoding + ", as requested\n"));
      CHECK(nmse(run_alone(*asked, prompt, 64, blocks), of_prompt) < 1e-5);
      CHECK(nmse(run_alone(*asked, few, 1, blocks), of_few) < 1e-5);
    };
    check("rows,split", "1 blocks share the context of a row", "8 blocks share the context of a row");
    check("tiles,whole", fmt::format("a prompt's queries in tiles of {}", target.wave == 32 ? 64 : 32),
          "1 blocks share the context of a row");
  }
}

namespace {

/// Sequences of different lengths share one step, so every kernel sees partly filled tiles, padding rows and several
/// block tables at once. Each must get the logits that it gets alone, within an NMSE of `bound`. more: tokens that each
/// sequence has more than the one before.
void check_ragged_batch(HostGpu& gpu, std::size_t sequences, std::size_t more, double bound) {
  CAPTURE(sequences);
  constexpr std::size_t kStride = 2;
  std::vector<std::vector<std::int32_t>> ids, blocks;
  std::vector<float> expected;
  for (std::size_t s = 0; s < sequences; ++s) {  // the batch feeds the last token of each
    const auto base = static_cast<std::int32_t>(4 * s);
    ids.push_back(random_ids(1 + more * s, 90, static_cast<unsigned>(s)));
    blocks.push_back({base + 3, base + 1});
    const auto alone = run_alone(*gpu, ids[s], 64, {base + 2, base});
    expected.insert(expected.end(), alone.end() - static_cast<std::ptrdiff_t>(gpu->vocab()), alone.end());
    auto before = ids[s];
    before.pop_back();
    if (!before.empty()) run_alone(*gpu, before, 5, blocks[s]);
  }
  std::vector<std::int32_t> last, positions, numbers, lengths, table;
  for (std::size_t s = 0; s < sequences; ++s) {
    last.push_back(ids[s].back());
    positions.push_back(static_cast<std::int32_t>(ids[s].size()) - 1);
    lengths.push_back(static_cast<std::int32_t>(ids[s].size()));
    numbers.push_back(static_cast<std::int32_t>(s));
    table.insert(table.end(), blocks[s].begin(), blocks[s].end());
  }
  const auto got = gpu->forward({.ids = last,
                                 .positions = positions,
                                 .sequence = numbers,
                                 .rows = numbers,
                                 .kv_length = lengths,
                                 .block_table = table,
                                 .table_stride = kStride});
  REQUIRE(got.size() == expected.size());
  CHECK(nmse(got, expected) < bound);
}

}  // namespace

TEST_CASE("gpu model: a ragged batch gives each sequence the results it gets alone") {
  const TinyModel model({.dtype = DType::kQ4_0});
  HostGpu gpu(model, kWave32, 8, kByRows);
  check_ragged_batch(gpu, 7, 6, 1e-8);
}

// Steps of 2, 4 and 8 tokens by matrix instructions, which have more columns than that; alone, a sequence's last token
// is one of a prompt of 16 tokens or a step of its own.
TEST_CASE("gpu model: few sequences that share a step by matrix instructions get the results they get alone") {
  const TinyShape wide{.dtype = DType::kF16, .width = 128, .ffn = 128, .heads = 4, .kv_heads = 2, .head_dim = 32};
  auto experts = wide;
  experts.experts = 5;
  experts.experts_used = 2;
  for (const auto& [shape, target] : {std::pair(wide, kWave64), std::pair(experts, kWave32)}) {
    CAPTURE(target.name, shape.experts);
    const TinyModel model(shape);
    HostGpu gpu(model, target, 8, "matrix_tokens=2", Prompts::kShort);
    const bool slots = shape.experts > 0;
    for (const char* tokens : {"_t2_", "_t4_", "_t8_"}) {
      CAPTURE(tokens, gpu.kernels());
      CHECK(gpu.kernels().contains(fmt::format("\ntiles_f16_128x128{}", tokens)));
      CHECK(gpu.kernels().contains("matmul_f16_128x128_t1_"));
    }
    CHECK(gpu.kernels().contains("expert_tiles_") == slots);
    for (const std::size_t sequences : {2, 3, 5, 8}) check_ragged_batch(gpu, sequences, 2, 1e-6);
  }
}

// The same with matrix instructions: prompts of different lengths share tiles of one step.
TEST_CASE("gpu model: prompts that share a step by tiles give the results of the reference") {
  const TinyModel model({.dtype = DType::kF16});
  HostGpu gpu(model, kWave64, 8, kByTiles, Prompts::kLong);
  REQUIRE(gpu.tiles());
  std::vector<std::int32_t> ids, positions, sequence, rows, lengths, table;
  std::vector<float> expected;
  for (const std::int32_t s : {0, 1, 2, 3}) {  // 1, 8, 15 and 22 tokens
    const auto own = random_ids(1 + 7 * static_cast<std::size_t>(s), model.file().vocab, static_cast<unsigned>(s));
    const auto logits = model.reference(model.portable().graph, own, false);
    expected.insert(expected.end(), logits.end() - static_cast<std::ptrdiff_t>(gpu->vocab()), logits.end());
    for (std::size_t i = 0; i < own.size(); ++i) positions.push_back(static_cast<std::int32_t>(i));
    sequence.resize(positions.size(), s);
    ids.insert(ids.end(), own.begin(), own.end());
    rows.push_back(static_cast<std::int32_t>(ids.size()) - 1);
    lengths.push_back(static_cast<std::int32_t>(own.size()));
    table.push_back(3 - s);
  }
  const auto got = gpu->forward({.ids = ids,
                                 .positions = positions,
                                 .sequence = sequence,
                                 .rows = rows,
                                 .kv_length = lengths,
                                 .block_table = table,
                                 .table_stride = 1});
  REQUIRE(got.size() == expected.size());
  CHECK(nmse(got, expected) < bound_of(DType::kF16));
}

// By rows, since a token that another kernel computes may win or lose by a rounding.
TEST_CASE("gpu model: concurrent requests of an engine get the tokens they get alone") {
  const TinyModel model({.dtype = DType::kQ4_0});
  HostGpu gpu(model, kWave32, 8, kByRows);
  constexpr std::size_t kRequests = 5, kTokens = 7;
  const auto run = [&](std::span<const std::size_t> numbers) {
    engine::Time now{};
    engine::EngineCore core(*gpu, {}, [&] { return now += std::chrono::milliseconds(1); });
    std::vector<std::shared_ptr<engine::Stream>> streams;
    for (const auto number : numbers) {
      engine::Request request;
      request.prompt = random_ids(2 + 5 * number, 90, static_cast<unsigned>(number));
      request.max_tokens = kTokens + number % 2;
      if (number == 3) request.sampling = {.temperature = 0.7F, .top_k = 20, .top_p = 0.9F, .seed = 5};
      auto prepared = core.prepare(std::move(request));
      REQUIRE(prepared.has_value());
      streams.push_back(engine::EngineCore::stream_of(*prepared));
      REQUIRE(core.submit(*std::move(prepared)).has_value());
      if (number == 1) core.step();  // the other requests join it
    }
    for (int steps = 0; steps < 200 && core.open() > 0; ++steps) core.step();
    CHECK(core.metrics().steps_ahead > 0);
    std::vector<std::vector<std::int32_t>> tokens;
    for (const auto& stream : streams) {
      tokens.emplace_back();
      while (const auto event = stream->next({}))
        if (event->token >= 0) tokens.back().push_back(event->token);
    }
    return tokens;
  };
  const std::vector<std::size_t> all{0, 1, 2, 3, 4};
  const auto together = run(all);
  REQUIRE(together.size() == kRequests);
  for (const auto number : all) {
    CAPTURE(number);
    CHECK(together[number].size() == kTokens + number % 2);
    CHECK(run(std::span(&number, 1)).front() == together[number]);
  }
  CHECK(gpu->device_allocations() == 5);
}

TEST_CASE(
    "gpu model: families with LayerNorm, head norms, post-norm, soft-caps, windows, fused tensors, "
    "position-scaled queries, ungated FFNs") {
  // The programs' context is longer than phi3's original context, so its long RoPE factors apply.
  for (const auto& [name, target] : {std::pair("gemma2", kWave32),        std::pair("phi3_long", kWave64),
                                     std::pair("starcoder2", kWave64),    std::pair("stablelm2_12b", kWave32),
                                     std::pair("hunyuan_dense", kWave64), std::pair("exaone4", kWave32),
                                     std::pair("mistral3", kWave64),      std::pair("gptneox", kWave32),
                                     std::pair("nemotron", kWave64),      std::pair("qwen3moe", kWave32),
                                     std::pair("qwen2moe", kWave64),      std::pair("granitemoe_shared", kWave32),
                                     std::pair("deepseek", kWave64),      std::pair("bailingmoe2", kWave32),
                                     std::pair("glm4moe_air", kWave64),   std::pair("gpt_oss", kWave32),
                                     std::pair("afmoe", kWave64),         std::pair("smallthinker", kWave32),
                                     std::pair("dbrx", kWave64),          std::pair("grovemoe", kWave32),
                                     std::pair("deci", kWave64),          std::pair("arctic", kWave64),
                                     std::pair("cohere2moe", kWave32)})
    check_family(name, target);
}

TEST_CASE("gpu model: latent and sparse attention, ALiBi, functions of whole rows") {
  for (const auto& [name, target] :
       {std::pair("deepseek_v3", kWave32), std::pair("mistral4", kWave64), std::pair("bloom", kWave32),
        std::pair("mpt", kWave64), std::pair("baichuan_13b", kWave64), std::pair("deepseek32", kWave64),
        std::pair("glm_dsa", kWave32), std::pair("minimax_m3", kWave64), std::pair("deepseek_v2_lite", kWave32)})
    check_family(name, target);
  // Sums of whole rows have another order in steps of few tokens, so some roundings of its f16 cache differ.
  check_family("gemma3n", kWave32, 1e-7);
}

TEST_CASE("gpu model: encoders: ALiBi to both sides, norms of whole rows of q and k") {
  for (const auto& [name, target] : {std::pair("jina_bert", kWave32), std::pair("jina_bert_code", kWave64)}) {
    CAPTURE(name, target.name);
    const auto& family = family_model(name);
    const TinyModel model(FileImage{family_gguf(family)});
    HostGpu gpu(model, target, 1, kByRows);
    const auto rows = kept_rows(hidden_rows_of(*gpu, family_tokens()));
    CHECK(nmse(rows, family_logits(family)) < bound_of(DType::kF32));
  }
}

TEST_CASE("gpu model: a factor for each expert's gate, up and down") {
  for (const auto& target : {kWave32, kWave64}) check_family("qwen3moe_scaled", target);
}

// The last layer's FFN and the head have activations of 8 bits; all matmuls before a router have 16.
TEST_CASE("gpu model: quantised weights do not change the choice of experts") {
  const TinyModel model({.dtype = DType::kQ4_0, .experts = 5, .experts_used = 2});
  const auto ids = random_ids(37, model.file().vocab, 7);
  const auto expected = model.reference(model.portable().graph, ids, false);
  for (const auto& target : {kWave32, kWave64})
    for (const char* tune : {kByRows, kByTiles}) {
      CAPTURE(target.name, tune);
      HostGpu gpu(model, target, 1, tune);
      CHECK(nmse(run_alone(*gpu, ids, 64, {5, 2}), expected) < 2e-4);
    }
}

TEST_CASE("gpu model: one tensor per expert, as in old files, gives the same bits as one tensor for all") {
  for (const auto dtype : {DType::kF32, DType::kQ4_1}) {
    TinyShape shape{.dtype = dtype, .experts = 5, .experts_used = 2};
    const TinyModel merged(shape);
    shape.scattered = true;
    const TinyModel scattered(shape);
    const auto ids = random_ids(19, merged.file().vocab, 9);
    HostGpu one(merged, kWave32, 1, kByRows, Prompts::kLong), many(scattered, kWave32, 1, kByRows, Prompts::kLong);
    CHECK(run_alone(*many, ids, 64, {5, 2}) == run_alone(*one, ids, 64, {5, 2}));
  }
}

TEST_CASE("gpu model: every elementwise function after the output head") {
  const TinyModel model({.dtype = DType::kF32});
  const auto graph = with_all_functions(model.portable().graph);
  const auto ids = random_ids(20, 90, 3);
  HostGpu gpu(model, graph, kWave32, {.tune = kByRows}, Prompts::kLong);
  CHECK(nmse(run_alone(*gpu, ids, 64, {5}), model.reference(graph, ids, false)) < bound_of(DType::kF32));
}

TEST_CASE("gpu model: reference logits with planes-layout weights and an embedding of the same type") {
  const TinyShape wide{.width = 256, .ffn = 512, .heads = 4, .kv_heads = 2, .head_dim = 64};
  for (const auto& [dtype, target] : {std::pair(DType::kQ4_K, kWave32), std::pair(DType::kQ6_K, kWave64),
                                      std::pair(DType::kIQ4_XS, kWave32), std::pair(DType::kQ3_K, kWave64)}) {
    auto shape = wide;
    shape.dtype = dtype;
    check_model(shape, target);
  }
}

TEST_CASE("gpu model: reference logits with waves of 32") {
  check_model({.dtype = DType::kQ4_0}, kWave32);
  check_model({.dtype = DType::kF16, .heads = 3, .kv_heads = 1, .tied = false, .biases = true}, kWave32);
}

TEST_CASE("gpu model: reference logits with waves of 64") {
  check_model({.dtype = DType::kQ8_0, .rope_freqs = true}, kWave64);
  check_model({.dtype = DType::kQ4_1, .heads = 2, .head_dim = 64, .rope_scaling = "yarn"}, kWave64);
}

}  // namespace forge::tests

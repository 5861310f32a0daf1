// Batch invariance of the engine on real (tiny) models: a request's tokens and log-probabilities are bit-identical for
// any batch, chunking, prefix reuse or preemption.

#include "runtime/engine/engine_core.h"

#include <algorithm>
#include <catch2/catch.hpp>

#include "passes/schedule/output_hidden_rows.h"
#include "tests/e2e/family_models.h"

using namespace forge;
using namespace forge::tests;
using engine::EngineCore;
using engine::EngineOptions;

namespace {

struct Result {
  std::vector<std::int32_t> tokens;
  std::vector<float> logprobs;
  bool operator==(const Result&) const = default;
};

std::vector<std::shared_ptr<engine::Stream>> submit_all(EngineCore& core,
                                                        const std::vector<engine::Request>& requests) {
  std::vector<std::shared_ptr<engine::Stream>> streams;
  for (const auto& request : requests) {
    auto prepared = core.prepare(request);
    REQUIRE(prepared.has_value());
    streams.push_back(EngineCore::stream_of(*prepared));
    REQUIRE(core.submit(*std::move(prepared)).has_value());
  }
  return streams;
}

/// Results of each request's samples when all requests are submitted at once.
std::vector<std::vector<Result>> serve(runtime::Executor& executor, const std::vector<engine::Request>& requests,
                                       const EngineOptions& options, engine::EngineMetrics* metrics = nullptr,
                                       std::size_t* most = nullptr) {
  engine::Time now{};
  EngineCore core(executor, options, [&] { return now += std::chrono::milliseconds(1); });
  const auto streams = submit_all(core, requests);
  while (core.step()) {
    core.scheduler().audit();
    if (most != nullptr) *most = std::max(*most, core.scheduler().running());
  }
  if (metrics != nullptr) *metrics = core.metrics();
  std::vector<std::vector<Result>> results;
  for (std::size_t i = 0; i < streams.size(); ++i) {
    results.emplace_back(requests[i].samples);
    while (const auto event = streams[i]->next({})) {
      auto& result = results[i][event->sample];
      result.tokens.push_back(event->token);
      result.logprobs.push_back(event->chosen.logprob);
      for (const auto& [token, logprob] : event->top_logprobs) result.logprobs.push_back(logprob);
    }
  }
  return results;
}

/// Requests with shared prompt prefixes, greedy and sampled, with one and several samples: 12 requests have 18 samples
/// in total, 22 have 32.
std::vector<engine::Request> mixed_requests(std::int64_t vocab, unsigned count = 12) {
  std::vector<engine::Request> requests;
  const auto system = random_ids(150, vocab, 5);  // longer than two blocks of the KV pool
  for (unsigned i = 0; i < count; ++i) {
    engine::Request request{.prompt = {}, .max_tokens = 44 + i % 5, .logprobs = true, .top_logprobs = 2};
    if (i % 4 != 3) request.prompt.assign(system.begin(), system.begin() + 126 + i % 12 * 2);
    for (const auto id : random_ids(1 + i % 12 * 3, vocab, 50 + i % 5)) request.prompt.push_back(id);
    if (i % 2 == 1) request.sampling = {.temperature = 0.9F, .top_p = 0.95F, .repeat_penalty = 1.2F, .seed = i};
    if (i % 5 == 1) request.samples = 3;
    requests.push_back(std::move(request));
  }
  return requests;
}

std::unique_ptr<runtime::CpuExecutor> open(const TinyModel& model, std::int64_t batch, std::int64_t kv_blocks,
                                           bool hidden = false) {
  std::shared_ptr<const plan::ProgramT> program =
      codegen::compile_program(model.portable().graph, model.file(), codegen::host_target(),
                               {.context = model.portable().info.context, .batch_max = batch, .hidden = hidden});
  runtime::SpanWeightSource source("tiny", model.bytes());
  return std::make_unique<runtime::CpuExecutor>(std::move(program), source,
                                                runtime::ExecutorOptions{.threads = 2, .kv_blocks = kv_blocks});
}

/// The reference: the results of each request run alone on an empty engine.
std::vector<std::vector<Result>> serve_alone(const TinyModel& model, const std::vector<engine::Request>& requests) {
  const auto executor = open(model, 4, 0);
  std::vector<std::vector<Result>> alone;
  for (auto request : requests)
    alone.push_back(serve(*executor, {std::move(request)}, {.reuse_prefixes = false}).front());
  return alone;
}

}  // namespace

TEST_CASE("tokens and log-probabilities are the same alone and in any batch, chunking or prefix reuse") {
  for (const auto dtype : {DType::kQ4_1, DType::kF16}) {
    const TinyModel model({.dtype = dtype, .context = 256});
    const auto requests = mixed_requests(model.file().vocab);
    const auto alone = serve_alone(model, requests);

    const auto large = open(model, 32, 0), small = open(model, 6, 12);
    engine::EngineMetrics metrics;
    CHECK(serve(*large, requests, {.reuse_prefixes = false}) == alone);
    CHECK(serve(*large, requests, {}) == alone);
    CHECK(serve(*large, requests, {.step_tokens = 32, .sequences = 3}, &metrics) == alone);
    CHECK(metrics.prefix_hits > 100);
    CHECK(serve(*small, requests, {.step_tokens = 7}, &metrics) == alone);
    INFO("preemptions " << metrics.preemptions << ", evictions " << metrics.evictions);
    CHECK(metrics.preemptions > 0);
    CHECK(metrics.kv_blocks_free == 12);
  }
}

TEST_CASE("a batch of 32 samples gives each of them the tokens and log-probabilities of a single run") {
  const TinyModel model({.dtype = DType::kQ8_0, .context = 256});
  const auto requests = mixed_requests(model.file().vocab, 22);
  const auto alone_executor = open(model, 4, 0);
  std::vector<std::vector<Result>> alone;
  for (auto request : requests)
    alone.push_back(serve(*alone_executor, {std::move(request)}, {.reuse_prefixes = false}).front());
  const auto together = open(model, 32, 0);
  std::size_t most = 0;
  CHECK(serve(*together, requests, {}, nullptr, &most) == alone);
  CHECK(most == 32);
}

/// The hidden rows that requests get when all are submitted at once, together with token requests.
std::vector<std::vector<float>> rows_of(runtime::Executor& executor, const std::vector<engine::Request>& requests,
                                        const EngineOptions& options) {
  engine::Time now{};
  EngineCore core(executor, options, [&] { return now += std::chrono::milliseconds(1); });
  const auto streams = submit_all(core, requests);
  while (core.step()) core.scheduler().audit();
  std::vector<std::vector<float>> rows;
  for (const auto& stream : streams)
    while (auto event = stream->next({}))
      if (!event->row.empty()) rows.push_back(std::move(event->row));
  return rows;
}

TEST_CASE("hidden rows are the head's input, and are the same in any batch") {
  const FamilyJson gemma2 = family_model("gemma2");  // has a scale and a soft-cap after its head
  for (const TinyModel& model :
       {TinyModel({.dtype = DType::kQ4_1, .context = 256}),
        TinyModel({.dtype = DType::kF32, .context = 256, .tied = false}), TinyModel(FileImage{family_gguf(gemma2)})}) {
    const auto width = static_cast<std::size_t>(model.portable().info.width);
    const auto executor = open(model, 8, 0, true), plain = open(model, 8, 0);
    REQUIRE(executor->hidden_width() == width);
    CHECK(plain->hidden_width() == 0);
    CHECK(executor->memory_requirements().weights == plain->memory_requirements().weights);
    std::vector<engine::Request> requests;
    for (unsigned i = 0; i < 9; ++i) {
      engine::Request request{.prompt = random_ids(5 + 6 * i, model.file().vocab, i < 4 ? 3 : 4 + i)};
      request.wants = i % 3 == 0   ? engine::OutputKind::kTokens
                      : i % 3 == 1 ? engine::OutputKind::kMeanRow
                                   : engine::OutputKind::kLastRow;
      if (request.wants == engine::OutputKind::kTokens) request.max_tokens = 9;
      requests.push_back(std::move(request));
    }
    std::vector<std::vector<float>> alone;
    for (const auto& request : requests) {
      if (request.wants == engine::OutputKind::kTokens) continue;
      alone.push_back(rows_of(*executor, {request}, {.reuse_prefixes = false}).at(0));
      const auto all = model.reference(passes::output_hidden_rows(model.portable().graph), request.prompt, false);
      std::vector<float> row(width);
      const bool mean = request.wants == engine::OutputKind::kMeanRow;
      for (std::size_t t = mean ? 0 : request.prompt.size() - 1; t < request.prompt.size(); ++t)
        for (std::size_t c = 0; c < width; ++c)
          row[c] += all[t * width + c] / (mean ? static_cast<float>(request.prompt.size()) : 1);
      CHECK(nmse(alone.back(), row) < 3e-3);
    }
    CHECK(rows_of(*executor, requests, {}) == alone);
    CHECK(rows_of(*executor, requests, {.step_tokens = 8, .prompt_tokens = 4}) == alone);
    // A program that also gives hidden rows gives the same logits as one that does not.
    const engine::Request tokens{.prompt = requests[0].prompt, .max_tokens = 9, .logprobs = true};
    CHECK(serve(*executor, {tokens}, {}) == serve(*plain, {tokens}, {}));
  }
}

/// Runs a family's model, with these keys changed, alone, in batches with reused prefixes, and on a pool so small that
/// requests are preempted.
void check_batch_invariance(const char* name, const FamilyJson& keys) {
  INFO(name);
  FamilyJson json = family_model(name);
  json.merge_patch({{"keys", keys}});
  json.merge_patch({{"keys", {{"context_length", 256}}}});
  const TinyModel model(FileImage{family_gguf(json)});
  const auto requests = mixed_requests(model.file().vocab);
  const auto alone = serve_alone(model, requests);
  const auto large = open(model, 32, 0), small = open(model, 6, 12);
  engine::EngineMetrics metrics;
  CHECK(serve(*large, requests, {.step_tokens = 32, .sequences = 3}, &metrics) == alone);
  CHECK(metrics.prefix_hits > 100);
  CHECK(serve(*small, requests, {.step_tokens = 7}, &metrics) == alone);
  CHECK((metrics.preemptions > 0 && metrics.kv_blocks_free == 12));
}

TEST_CASE("batch invariance with sliding windows, whose blocks are released during the run") {
  check_batch_invariance("gemma2", {{"attention.sliding_window", 40}});
  check_batch_invariance("gpt_oss", {{"attention.sliding_window", 33}});
}

TEST_CASE("batch invariance of sparse attention, whose index keys are cached, shared and released as the others") {
  check_batch_invariance("deepseek32", {{"attention.indexer.top_k", 24}});
  check_batch_invariance("minimax_m3", {{"attention.indexer.top_k", 4}, {"attention.indexer.block_size", 16}});
}

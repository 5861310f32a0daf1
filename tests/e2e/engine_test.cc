// The engine on real (tiny) models: what a request gets does not depend on its batch, its chunks, reused prefixes or
// preemptions, bit for bit.

#include "runtime/engine/engine_core.h"

#include <catch2/catch.hpp>

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

/// Results of each request's samples, all requests submitted at once.
std::vector<std::vector<Result>> serve(runtime::Executor& executor, const std::vector<engine::Request>& requests,
                                       const EngineOptions& options, engine::EngineMetrics* metrics = nullptr) {
  engine::Time now{};
  EngineCore core(executor, options, [&] { return now += std::chrono::milliseconds(1); });
  std::vector<std::shared_ptr<engine::Stream>> streams;
  for (const auto& request : requests) {
    auto prepared = core.prepare(request);
    REQUIRE(prepared.has_value());
    streams.push_back(EngineCore::stream_of(*prepared));
    REQUIRE(core.submit(*std::move(prepared)).has_value());
  }
  while (core.step()) core.scheduler().audit();
  if (metrics != nullptr) *metrics = core.metrics();
  std::vector<std::vector<Result>> results;
  for (std::size_t i = 0; i < streams.size(); ++i) {
    results.emplace_back(requests[i].samples);
    while (const auto event = streams[i]->next({})) {
      auto& result = results[i][event->sample];
      result.tokens.push_back(event->token);
      result.logprobs.push_back(event->chosen.logprob);
      for (const auto& [token, logprob] : event->likeliest) result.logprobs.push_back(logprob);
    }
  }
  return results;
}

/// Requests with prompts that share beginnings, greedy and drawn, one and several samples.
std::vector<engine::Request> mixed_requests(std::int64_t vocab) {
  std::vector<engine::Request> requests;
  const auto system = random_ids(150, vocab, 5);  // more than two blocks of the KV pool
  for (unsigned i = 0; i < 12; ++i) {
    engine::Request request{.prompt = {}, .max_tokens = 44 + i % 5, .logprobs = true, .likeliest = 2};
    if (i % 4 != 3) request.prompt.assign(system.begin(), system.begin() + 126 + i * 2);
    for (const auto id : random_ids(1 + i * 3, vocab, 50 + i % 5)) request.prompt.push_back(id);
    if (i % 2 == 1) request.sampling = {.temperature = 0.9F, .top_p = 0.95F, .repeat_penalty = 1.2F, .seed = i};
    if (i % 5 == 1) request.samples = 3;
    requests.push_back(std::move(request));
  }
  return requests;
}

std::unique_ptr<runtime::CpuExecutor> open(const TinyModel& model, std::int64_t batch, std::int64_t kv_blocks) {
  std::shared_ptr<const plan::ProgramT> program =
      codegen::compile_program(model.portable().graph, model.file(), codegen::host_target(),
                               {.context = model.portable().info.context, .batch_max = batch});
  runtime::SpanWeightSource source("tiny", model.bytes(), runtime::SpanWeightSource::Backing::kHeap);
  return std::make_unique<runtime::CpuExecutor>(std::move(program), source,
                                                runtime::ExecutorOptions{.threads = 2, .kv_blocks = kv_blocks});
}

/// What each request gets when nobody is beside it and nothing was before it.
std::vector<std::vector<Result>> serve_alone(const TinyModel& model, const std::vector<engine::Request>& requests) {
  const auto executor = open(model, 4, 0);
  std::vector<std::vector<Result>> alone;
  for (auto request : requests)
    alone.push_back(serve(*executor, {std::move(request)}, {.reuse_prefixes = false}).front());
  return alone;
}

}  // namespace

TEST_CASE("a request's tokens and log-probabilities are the same alone and in any batch, chunking or prefix reuse") {
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

TEST_CASE("the same where layers have sliding windows, which give their blocks back on the way") {
  for (const auto& [name, window] : {std::pair("gemma2", 40), std::pair("gpt_oss", 33)}) {
    FamilyJson json = family_model(name);
    json.merge_patch({{"keys", {{"attention.sliding_window", window}, {"context_length", 256}}}});
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
}

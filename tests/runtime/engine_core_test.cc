// The engine's core on a fake device with a simulated clock: how requests finish, which usage and log-probabilities
// they report, which requests are refused, and how device failures are handled.

#include "runtime/engine/engine_core.h"

#include <catch2/catch.hpp>
#include <cmath>
#include <vector>

#include "support/error.h"
#include "tests/runtime/engine_bench.h"

namespace forge::engine {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using test::FakeExecutor;
using test::FakeShape;
using Fault = FakeExecutor::Fault;

const std::vector<std::int32_t> kPrompt = {3, 1, 4, 1, 5, 9, 2, 6, 5, 3, 5};

struct CoreBench : test::EngineBench {
  explicit CoreBench(const EngineOptions& options = {}, const FakeShape& shape = {}) : EngineBench(shape, options) {}

  void run() {
    for (int i = 0; i < 10'000 && !core.idle(); ++i)
      if (!core.step()) now = std::max(now, core.next_event());
    REQUIRE(core.idle());
    const auto metrics = core.metrics();
    CHECK((metrics.kv_blocks_free == metrics.kv_blocks && core.open() == 0));
  }
};

struct Taken {
  std::vector<std::int32_t> tokens;
  std::vector<StreamEvent> events;
  FinishReason finish = FinishReason::kNone;
  std::string error;
};

Taken take(Stream& stream, std::uint32_t sample = 0) {
  Taken taken;
  while (auto event = stream.next(Time::zero())) {
    if (event->sample != sample) continue;
    if (event->token >= 0) taken.tokens.push_back(event->token);
    if (event->finish != FinishReason::kNone) taken.finish = event->finish;
    taken.error += event->error;
    taken.events.push_back(*std::move(event));
  }
  return taken;
}

TEST_CASE("a request reports its tokens, its finish reason and its usage") {
  CoreBench bench;
  const auto stream = bench.submit({.prompt = kPrompt, .max_tokens = 6});
  bench.now += milliseconds(7);
  bench.run();
  const auto taken = take(*stream);
  CHECK(taken.tokens == bench.executor.alone(kPrompt, {}, 6));
  CHECK((taken.finish == FinishReason::kLength && stream->finished()));
  const auto usage = stream->usage();
  CHECK((usage.prompt_tokens == 11 && usage.generated_tokens == 6 && usage.cached_tokens == 0));
  CHECK(usage.started - usage.submitted == milliseconds(7));

  const auto again = bench.submit({.prompt = kPrompt, .max_tokens = 6});
  bench.run();
  CHECK(take(*again).tokens == taken.tokens);
  CHECK(again->usage().cached_tokens == 10);
  const auto metrics = bench.core.metrics();
  CHECK((metrics.cached_tokens == 10 && metrics.generated_tokens == 12 && metrics.prompt_tokens == 22));
  CHECK(metrics.finished[static_cast<std::size_t>(FinishReason::kLength)] == 2);
  CHECK(metrics.fed_tokens == 11 + 5 + 1 + 5);
}

TEST_CASE("requests share a prompt prefix only if their extra hash is equal") {
  for (const bool together : {false, true}) {  // together: the second request waits for the first one's prefix
    CoreBench bench;
    const auto expected = bench.executor.alone(kPrompt, {}, 3);
    std::vector<std::shared_ptr<Stream>> streams;
    for (const std::uint64_t extra : {0, 0, 1, 2, 1}) {
      streams.push_back(bench.submit({.prompt = kPrompt, .extra_hash = extra, .max_tokens = 3}));
      if (!together) bench.run();
    }
    bench.run();
    std::vector<bool> shares;
    for (const auto& stream : streams) {
      CHECK(take(*stream).tokens == expected);
      shares.push_back(stream->usage().cached_tokens > 0);
    }
    CHECK(shares == std::vector<bool>{false, true, false, false, true});
  }
}

TEST_CASE("without max_tokens a request may fill the context, and a stop token ends it earlier") {
  CoreBench bench;
  const auto expected = bench.executor.alone(kPrompt, {}, 37);
  const auto whole = bench.submit({.prompt = kPrompt});
  bench.run();
  CHECK(take(*whole).tokens == expected);

  std::size_t first = 3;  // index at which the stop token first occurs
  while (std::find(expected.begin(), expected.begin() + static_cast<std::ptrdiff_t>(first), expected[first]) !=
         expected.begin() + static_cast<std::ptrdiff_t>(first))
    ++first;
  const auto by_token = bench.submit({.prompt = kPrompt, .stop_tokens = {expected[first]}});
  const auto by_call =
      bench.submit({.prompt = kPrompt,
                    .stop = [&, seen = std::size_t{0}](std::uint32_t, std::int32_t) mutable { return ++seen == 4; }});
  bench.run();
  auto taken = take(*by_token);
  CHECK((taken.finish == FinishReason::kStop && taken.tokens.size() == first));
  CHECK(by_token->usage().generated_tokens == first + 1);
  taken = take(*by_call);
  CHECK((taken.finish == FinishReason::kStop && taken.tokens.size() == 4));
}

TEST_CASE("sample i of a request equals a single-sample request with the seed plus i") {
  CoreBench bench;
  const runtime::SamplerParams sampling{.temperature = 1, .repeat_penalty = 1.3F, .seed = 40};
  const auto stream = bench.submit({.prompt = kPrompt, .sampling = sampling, .max_tokens = 9, .samples = 3});
  bench.run();
  std::vector<std::vector<std::int32_t>> tokens(3);
  while (const auto event = stream->next(Time::zero())) tokens[event->sample].push_back(event->token);
  for (std::size_t s = 0; s < 3; ++s) {
    auto params = sampling;
    params.seed += s;
    CHECK(tokens[s] == bench.executor.alone(kPrompt, params, 9));
  }
  CHECK(tokens[0] != tokens[1]);
}

TEST_CASE("log-probabilities come from the raw logits, most likely first, independent of the sampling parameters") {
  CoreBench bench;
  const auto stream = bench.submit({.prompt = kPrompt,
                                    .sampling = {.temperature = 0.5F, .seed = 3, .logit_bias = {{2, 100.0F}}},
                                    .max_tokens = 1,
                                    .logprobs = true,
                                    .top_logprobs = 5});
  bench.run();
  const auto taken = take(*stream);
  REQUIRE(taken.tokens == std::vector<std::int32_t>{2});
  const auto logits = bench.executor.logits_of(kPrompt);
  double sum = 0;
  for (const auto logit : logits) sum += std::exp(static_cast<double>(logit));
  const auto expected = [&](std::int32_t id) {
    return static_cast<double>(logits[static_cast<std::size_t>(id)]) - std::log(sum);
  };
  const auto& event = taken.events.front();
  CHECK((event.chosen.token == 2 && std::abs(static_cast<double>(event.chosen.logprob) - expected(2)) < 1e-6));
  REQUIRE(event.top_logprobs.size() == 5);
  const auto top = std::max_element(logits.begin(), logits.end()) - logits.begin();
  CHECK(event.top_logprobs[0].token == top);
  for (std::size_t i = 0; i < 5; ++i) {
    const auto& [token, logprob] = event.top_logprobs[i];
    CHECK(std::abs(static_cast<double>(logprob) - expected(token)) < 1e-6);
    if (i > 0) CHECK(event.top_logprobs[i - 1].logprob >= logprob);
  }
}

TEST_CASE("a request whose bias forbids every token, or whose stop callback throws, fails alone") {
  CoreBench bench;
  Request forbidden{.prompt = kPrompt, .max_tokens = 4};
  for (std::int32_t id = 0; id < 16; ++id) forbidden.sampling.logit_bias.push_back({id, -INFINITY});
  const auto bad = bench.submit(std::move(forbidden)), good = bench.submit({.prompt = kPrompt, .max_tokens = 4}),
             throws =
                 bench.submit({.prompt = kPrompt, .max_tokens = 4, .stop = [](std::uint32_t, std::int32_t) -> bool {
                                 throw std::runtime_error("no");
                               }});
  bench.run();
  CHECK(take(*bad).finish == FinishReason::kError);
  CHECK(take(*throws).finish == FinishReason::kError);
  CHECK(take(*good).tokens == bench.executor.alone(kPrompt, {}, 4));
}

TEST_CASE("NaN or infinite logits end a request with an error, on the host sampler and on the device sampler") {
  for (const bool chooses : {false, true})
    for (const std::int32_t from : {0, 7, 20}) {
      INFO("device chooses " << chooses << ", NaN from " << from);
      CoreBench bench({}, {.chooses = chooses});
      bench.executor.no_numbers_from = from;
      const auto bad = bench.submit({.prompt = kPrompt, .max_tokens = 30});
      bench.run();
      const auto taken = take(*bad);
      CHECK(taken.finish == FinishReason::kError);
      CHECK(taken.error.find("NaN or -infinity") != std::string::npos);
      const auto before = std::max<std::int64_t>(from - std::ssize(kPrompt) + 1, 0);
      CHECK(std::ssize(taken.tokens) == before);
      bench.executor.no_numbers_from = INT32_MAX;
      const auto good = bench.submit({.prompt = kPrompt, .max_tokens = 4});
      bench.run();
      CHECK(take(*good).tokens == bench.executor.alone(kPrompt, {}, 4));
    }
}

TEST_CASE("requests that can never run are refused with a reason before they are queued") {
  CoreBench bench;
  const auto kind = [&](Request request) {
    const auto prepared = bench.core.prepare(std::move(request));
    REQUIRE_FALSE(prepared.has_value());
    CHECK_FALSE(prepared.error().message.empty());
    return prepared.error().kind;
  };
  CHECK(kind({}) == RefusalKind::kInvalid);
  CHECK(kind({.prompt = {16}}) == RefusalKind::kInvalid);
  CHECK(kind({.prompt = {-1}}) == RefusalKind::kInvalid);
  CHECK(kind({.prompt = {1}, .stop_tokens = {99}}) == RefusalKind::kInvalid);
  CHECK(kind({.prompt = {1}, .sampling = {.temperature = -1}}) == RefusalKind::kInvalid);
  CHECK(kind({.prompt = {1}, .logprobs = true, .top_logprobs = 65}) == RefusalKind::kInvalid);
  CHECK(kind({.prompt = std::vector<std::int32_t>(48)}) == RefusalKind::kTooLong);
  CHECK(kind({.prompt = {1}, .samples = 5}) == RefusalKind::kNoRoom);
  CHECK_THROWS_AS(CoreBench({.sequences = 5}), Error);
  CHECK_THROWS_AS(CoreBench({.step_tokens = 17}), Error);
}

TEST_CASE("deadlines end waiting requests and running requests") {
  CoreBench bench({.sequences = 1});
  const auto runs = bench.submit({.prompt = kPrompt, .max_tokens = 30, .timeout = milliseconds(5)});
  const auto waits = bench.submit({.prompt = kPrompt, .max_tokens = 30, .timeout = milliseconds(3)});
  for (int i = 0; i < 6; ++i, bench.now += milliseconds(1)) bench.core.step();
  CHECK((runs->finish_reason(0) == FinishReason::kDeadline && waits->finish_reason(0) == FinishReason::kDeadline));
  CHECK(take(*runs).tokens.size() == 5);
  bench.run();
}

TEST_CASE("a recoverable failure is retried with exponential backoff, up to the limit") {
  CoreBench bench({.retries = 2, .backoff = milliseconds(10), .failures_unhealthy = 5});
  const auto stream = bench.submit({.prompt = kPrompt, .max_tokens = 4});
  bench.core.step();
  bench.executor.next_fault = Fault::kRecoverable;
  CHECK(bench.core.step());
  CHECK(bench.core.health() == Health::kDegraded);
  CHECK_FALSE(bench.core.step());
  CHECK(bench.core.next_event() == bench.now + milliseconds(10));
  bench.now += milliseconds(10);
  bench.executor.next_fault = Fault::kRecoverable;
  CHECK(bench.core.step());
  CHECK(bench.core.next_event() == bench.now + milliseconds(20));
  bench.run();
  CHECK(take(*stream).tokens == bench.executor.alone(kPrompt, {}, 4));
  CHECK(stream->usage().retries == 2);

  const auto fails = bench.submit({.prompt = kPrompt, .max_tokens = 4});
  for (int i = 0; i < 3;
       ++i, bench.now = std::max(bench.now, std::min(bench.core.next_event(), bench.now + seconds(1)))) {
    bench.executor.next_fault = Fault::kRecoverable;
    CHECK(bench.core.step());
  }
  const auto taken = take(*fails);
  CHECK(taken.finish == FinishReason::kError);
  CHECK(taken.error.find("hiccuped") != std::string::npos);
  bench.run();
}

TEST_CASE(
    "a fatal failure fails the step's requests only; waiting requests go on, and good steps restore the health state") {
  for (const auto fault : {Fault::kFatal, Fault::kForeign}) {
    CoreBench bench({.sequences = 2, .failures_unhealthy = 2, .steps_healthy = 4, .probation = seconds(5)});
    const auto a = bench.submit({.prompt = kPrompt, .max_tokens = 4}), b = bench.submit({.prompt = {9, 9, 9, 9, 9}});
    const auto c = bench.submit({.prompt = kPrompt, .max_tokens = 6}), d = bench.submit({.prompt = kPrompt});
    bench.executor.next_fault = fault;
    bench.core.step();
    CHECK((a->finish_reason(0) == FinishReason::kError && b->finish_reason(0) == FinishReason::kError));
    CHECK((!c->finished() && bench.core.health() == Health::kDegraded));
    bench.core.end_all(FinishReason::kCancelled, {});
    CHECK(d->finish_reason(0) == FinishReason::kCancelled);
    const auto e = bench.submit({.prompt = kPrompt, .max_tokens = 4});
    bench.executor.next_fault = fault;
    bench.core.step();
    CHECK((e->finished() && bench.core.health() == Health::kUnhealthy));
    bench.now += seconds(5);
    CHECK(bench.core.health() == Health::kDegraded);
    const auto f = bench.submit({.prompt = kPrompt, .max_tokens = 8});
    bench.run();
    CHECK(take(*f).tokens == bench.executor.alone(kPrompt, {}, 8));
    CHECK(bench.core.health() == Health::kHealthy);
  }
}

}  // namespace
}  // namespace forge::engine

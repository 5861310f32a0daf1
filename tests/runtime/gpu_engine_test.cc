// The engine on the GPU executor and the null driver: batched requests get the tokens of single requests, tokens are
// sampled on the device, decode steps are submitted ahead of the host, no step allocates, and device failures become
// errors of the affected requests.

#include <catch2/catch.hpp>

#include <algorithm>
#include <cmath>
#include <optional>

#include "runtime/engine/engine_core.h"
#include "tests/runtime/gpu_model.h"

namespace forge {
namespace {

using engine::EngineCore;
using engine::FinishReason;
using engine::Request;
using test::GpuModel;

/// An engine core on a null device; the test runs each step.
class Served {
 public:
  explicit Served(const test::GpuModelOptions& options = {}, engine::EngineOptions engine = {})
      : model(options), driver(model.driver()), executor(model.open(driver, {.threads = 1})) {
    core.emplace(*executor, engine, [this] { return now; });
  }

  struct Open {
    std::shared_ptr<engine::Stream> stream;
    std::vector<std::int32_t> tokens;
    std::vector<float> logprobs;
    std::string error;
    FinishReason finish = FinishReason::kNone;
  };
  Open submit(Request request) {
    auto prepared = core->prepare(std::move(request));
    REQUIRE(prepared.has_value());
    Open open{.stream = EngineCore::stream_of(*prepared)};
    REQUIRE(core->submit(*std::move(prepared)).has_value());
    return open;
  }
  /// Runs steps until all requests have finished, at most `steps` of them.
  void run(int steps = 2000) {
    for (; steps > 0 && core->open() > 0; --steps) {
      now += std::chrono::milliseconds(1);
      core->step();
      core->scheduler().audit();
    }
    CHECK(core->open() == 0);
  }
  static void listen(Open& open) {
    while (const auto event = open.stream->next({})) {
      if (event->token >= 0) open.tokens.push_back(event->token);
      if (event->chosen.token >= 0) open.logprobs.push_back(event->chosen.logprob);
      if (!event->error.empty()) open.error = event->error;
      if (event->finish != FinishReason::kNone) open.finish = event->finish;
    }
  }

  GpuModel model;
  driver::Driver driver;
  std::unique_ptr<runtime::GpuExecutor> executor;
  engine::Time now = std::chrono::seconds(1);
  std::optional<EngineCore> core;
};

std::vector<std::int32_t> greedy(const GpuModel& model, std::vector<std::int32_t> ids, std::size_t count) {
  const auto begin = static_cast<std::ptrdiff_t>(ids.size());
  for (std::size_t i = 0; i < count; ++i) ids.push_back(model.next(ids));
  return {ids.begin() + begin, ids.end()};
}

/// Prompts of 1, 6, 11, ... tokens that share their prefixes.
std::vector<std::int32_t> prompt_of(std::size_t number) {
  std::vector<std::int32_t> ids;
  for (std::size_t i = 0; i < 1 + 5 * number % 23; ++i)
    ids.push_back(static_cast<std::int32_t>((i < 4 ? i : i * (number + 3)) % test::kVocab));
  return ids;
}

Request request_of(std::size_t number, std::size_t tokens) {
  Request request;
  request.prompt = prompt_of(number);
  request.max_tokens = tokens;
  return request;
}

}  // namespace

TEST_CASE("batched requests on a GPU get the tokens that the model gives each of them alone") {
  for (const bool deferred : {false, true})
    for (const bool prefill_samples : {false, true}) {
      CAPTURE(deferred, prefill_samples);
      Served served({.driver = {.deferred = deferred}, .prefill_samples = prefill_samples});
      const auto device = served.driver.device_allocations().total, pinned = served.driver.pinned_allocations().total;
      std::vector<Served::Open> open;
      for (std::size_t i = 0; i < 9; ++i) {
        open.push_back(served.submit(request_of(i, 3 + 4 * i)));
        for (std::size_t step = 0; step < 2 * i; ++step) served.core->step();  // joins a running batch
      }
      served.run();
      for (std::size_t i = 0; i < open.size(); ++i) {
        Served::listen(open[i]);
        CAPTURE(i, open[i].error);
        CHECK(open[i].tokens == greedy(served.model, prompt_of(i), 3 + 4 * i));
        CHECK(open[i].finish == FinishReason::kLength);
      }
      const auto metrics = served.core->metrics();
      CHECK(metrics.steps_ahead > metrics.steps / 2);
      CHECK(metrics.prefix_hits > 0);
      CHECK(metrics.kv_blocks_free == metrics.kv_blocks);
      CHECK(metrics.device_allocations == device);
      CHECK(served.driver.device_allocations().total == device);
      CHECK(served.driver.pinned_allocations().total == pinned);
      CHECK((prefill_samples ||
             served.model.seen->wrong_lengths == 0));  // rows of a prefill variant have no length of their own
      // Logits are copied to the host only if the prefill variant cannot sample on the device.
      CHECK((served.model.control->calls("copy_to_host") == 0) == prefill_samples);
    }
}

TEST_CASE("a row whose logits the host needs shares a step with rows that the device samples") {
  Served served({.prefill_samples = true});
  auto told = request_of(2, 12), pressed = request_of(3, 12);
  told.logprobs = true;
  pressed.sampling.logit_bias = {{.token = 5, .bias = 1000}};
  auto parted = request_of(1, 6);
  parted.samples = 2;
  std::vector<Served::Open> open;
  for (const auto& request : {told, request_of(4, 12), pressed, parted, request_of(5, 7)})
    open.push_back(served.submit(request));
  served.run();
  for (auto& one : open) Served::listen(one);
  const auto expected = greedy(served.model, prompt_of(2), 12);
  CHECK(open[0].tokens == expected);
  REQUIRE(open[0].logprobs.size() == 12);
  auto ids = prompt_of(2);
  for (std::size_t i = 0; i < expected.size(); ++i) {
    const auto logits = served.model.logits(ids);
    double sum = 0;
    for (const float logit : logits) sum += std::exp(static_cast<double>(logit));
    CHECK(open[0].logprobs[i] == Approx(logits[static_cast<std::size_t>(expected[i])] - std::log(sum)).margin(1e-4));
    ids.push_back(expected[i]);
  }
  CHECK(open[1].tokens == greedy(served.model, prompt_of(4), 12));
  CHECK(open[2].tokens == std::vector<std::int32_t>(12, 5));
  auto both = greedy(served.model, prompt_of(1), 6);
  std::ranges::sort(open[3].tokens);
  both.insert(both.end(), both.begin(), both.end());
  std::ranges::sort(both);
  CHECK(open[3].tokens == both);
  CHECK(open[4].tokens == greedy(served.model, prompt_of(5), 7));
}

TEST_CASE("the random number sequence continues across steps, with any number of steps in flight") {
  std::vector<std::vector<std::int32_t>> tokens;
  for (const std::size_t ahead : {1, 5, 64}) {
    Served served({.prefill_samples = true}, {.steps_ahead = ahead});
    auto request = request_of(2, 30);
    request.sampling = {.temperature = 1, .top_k = 3, .seed = 11};
    auto open = served.submit(request);
    auto other = served.submit(request_of(3, 9));
    served.run();
    Served::listen(open);
    Served::listen(other);
    CHECK((served.core->metrics().steps_ahead > 0) == (ahead > 1));
    CHECK(other.tokens == greedy(served.model, prompt_of(3), 9));
    tokens.push_back(open.tokens);
  }
  CHECK(tokens[0].size() == 30);
  CHECK(tokens[0] == tokens[1]);
  CHECK(tokens[0] == tokens[2]);
}

TEST_CASE("a cancel or a deadline while steps are in flight releases everything, and other requests go on") {
  Served served({.prefill_samples = true});
  auto gone = served.submit(request_of(2, 40)), stays = served.submit(request_of(3, 40));
  auto late = request_of(4, 20);
  late.timeout = std::chrono::milliseconds(4);
  for (int i = 0; i < 8; ++i) served.core->step();
  CHECK(served.core->metrics().steps_ahead > 0);
  gone.stream->abandon();
  served.core->end_abandoned();
  auto expired = served.submit(late);
  served.run();
  for (auto* one : {&gone, &stays, &expired}) Served::listen(*one);
  CHECK(gone.finish == FinishReason::kCancelled);
  CHECK(stays.tokens == greedy(served.model, prompt_of(3), 40));
  CHECK(expired.finish == FinishReason::kDeadline);
  const auto expected = greedy(served.model, prompt_of(4), 20);
  CHECK(std::ranges::equal(expired.tokens, std::span(expected).first(expired.tokens.size())));
  CHECK(served.core->metrics().kv_blocks_free == served.core->metrics().kv_blocks);
}

TEST_CASE("an arrival, or a finish that frees a slot, waits only for the steps in flight") {
  constexpr int kSoon = 2 + runtime::GpuExecutor::kInFlightMax;
  Served served({.prefill_samples = true});
  const auto step = [&](int steps) {
    for (; steps > 0; --steps) served.core->step();
  };
  auto longest = served.submit(request_of(2, 45));
  step(5);
  const auto expected = greedy(served.model, prompt_of(3), 20);
  auto stops = request_of(3, 30);
  stops.stop_tokens = {expected[12]};
  auto second = served.submit(stops);
  step(kSoon);
  Served::listen(second);
  CHECK_FALSE(second.tokens.empty());
  auto third = served.submit(request_of(4, 9));  // must wait: only two sequences run at once
  for (int i = 0; i < 20 && second.finish == FinishReason::kNone; ++i) {
    step(1);
    Served::listen(second);
    Served::listen(third);
    CHECK(third.tokens.empty());
  }
  CHECK(second.finish == FinishReason::kStop);
  step(kSoon);
  Served::listen(third);
  CHECK_FALSE(third.tokens.empty());
  Served::listen(longest);
  CHECK(longest.finish == FinishReason::kNone);  // it ran all the time
  served.run();
}

TEST_CASE("a failure of any driver call ends requests with a one-line error, and the engine works afterwards") {
  Served calm({.prefill_samples = true});
  const auto opened = calm.model.control->counts().calls;
  auto first = calm.submit(request_of(2, 9)), second = calm.submit(request_of(3, 9));
  calm.run();
  const auto calls = calm.model.control->counts().calls - opened;
  REQUIRE(calls > 20);
  for (std::uint64_t nth = 1; nth <= calls; ++nth) {
    CAPTURE(nth);
    Served served({.prefill_samples = true});
    served.model.control->fail_call(nth);
    std::vector<Served::Open> open;
    for (const std::size_t number : {2, 3}) open.push_back(served.submit(request_of(number, 9)));
    served.run();
    for (std::size_t i = 0; i < 2; ++i) {
      Served::listen(open[i]);
      const auto expected = greedy(served.model, prompt_of(2 + i), 9);
      CHECK(std::ranges::equal(open[i].tokens, std::span(expected).first(open[i].tokens.size())));
      CHECK((open[i].finish == FinishReason::kLength || open[i].finish == FinishReason::kError));
      CHECK((open[i].finish == FinishReason::kError) == open[i].error.starts_with("error[device]"));
      CHECK(open[i].error.find('\n') == std::string::npos);
    }
    auto after = served.submit(request_of(4, 5));
    served.run();
    Served::listen(after);
    CHECK(after.tokens == greedy(served.model, prompt_of(4), 5));
    CHECK(served.core->metrics().kv_blocks_free == served.core->metrics().kv_blocks);
  }
}

TEST_CASE("a lost device fails every request, and the engine becomes unhealthy") {
  Served served({.prefill_samples = true});
  auto running = served.submit(request_of(2, 40));
  for (int i = 0; i < 6; ++i) served.core->step();
  served.model.control->lose_device();
  std::vector<Served::Open> later;
  for (std::size_t i = 0; i < 4; ++i) later.push_back(served.submit(request_of(i, 4)));
  served.run();
  Served::listen(running);
  CHECK(running.finish == FinishReason::kError);
  CHECK(running.error.starts_with("error[device]"));
  for (auto& one : later) {
    Served::listen(one);
    CHECK(one.finish == FinishReason::kError);
  }
  CHECK(served.core->health() == engine::Health::kUnhealthy);
  CHECK(served.core->metrics().kv_blocks_free == served.core->metrics().kv_blocks);
}

TEST_CASE("a variant with more tokens than sequences is not used for decode loops, although it samples") {
  const GpuModel model;
  model.program->variants[1]->bounds = plan::Bounds(2, 2, 1, 16);
  const auto driver = model.driver();
  const auto executor = model.open(driver);
  CHECK(executor->decode_loop()->sequences_max() == 1);
}

TEST_CASE("a decode step that samples no token is a device error") {
  const GpuModel model;
  const auto driver = model.driver();
  const auto executor = model.open(driver);
  const runtime::Sampler sampler(test::kVocab, {});
  const auto table = test::of_both_groups(test::first_blocks());
  const auto choose = [&] {
    const std::int32_t ids[] = {1}, zero[] = {0}, length[] = {1};
    const runtime::Sampler* const samplers[] = {&sampler};
    return executor->decode_loop()
        ->forward_and_sample({.ids = ids,
                              .positions = zero,
                              .sequence = zero,
                              .rows = zero,
                              .kv_length = length,
                              .block_table = table,
                              .table_stride = table.size() / 2},
                             samplers)
        .tokens[0];
  };
  CHECK(choose() == model.next({1}));
  model.control->set_kernel("sample", [](const driver::NullLaunch&) {});
  CHECK(test::error_line([&] { (void)choose(); }, ErrorCode::kDevice).find("does not exist") != std::string::npos);
}

}  // namespace forge

// The engine with its own thread: concurrent clients, clients that disconnect, a step that hangs, and shutdown. The
// tests synchronise on events and never on elapsed time, so they do not depend on the machine's speed.

#include "runtime/engine/engine.h"

#include <catch2/catch.hpp>
#include <functional>
#include <latch>
#include <stdexcept>
#include <thread>
#include <vector>

#include "tests/runtime/fake_executor.h"

namespace forge::engine {
namespace {

using std::chrono::hours;
using std::chrono::milliseconds;
using test::FakeExecutor;

constexpr EngineOptions kNoWatchdog{.watchdog = Time::zero()};

std::vector<std::int32_t> prompt_of(std::size_t client) {
  std::vector<std::int32_t> prompt(4 + client % 20);
  for (std::size_t i = 0; i < prompt.size(); ++i) prompt[i] = static_cast<std::int32_t>((i * (client % 3 + 1)) % 16);
  return prompt;
}

std::vector<std::int32_t> all_tokens(RequestHandle& handle) {
  std::vector<std::int32_t> tokens;
  while (const auto event = handle.next(hours(1)))
    if (event->token >= 0) tokens.push_back(event->token);
  return tokens;
}

void wait_until(const std::function<bool()>& holds) {
  while (!holds()) std::this_thread::sleep_for(milliseconds(1));
}

TEST_CASE("concurrent clients each get the tokens of a request that runs alone, and all blocks are released") {
  const FakeExecutor reference({});
  const bool chooses = GENERATE(false, true);
  Engine engine(std::make_unique<FakeExecutor>(test::FakeShape{.chooses = chooses}), kNoWatchdog);
  constexpr std::size_t kThreads = 4, kRequests = 50;
  std::atomic<std::size_t> right{0}, gone{0};
  {
    std::vector<std::jthread> clients;
    for (std::size_t t = 0; t < kThreads; ++t)
      clients.emplace_back([&, t] {
        for (std::size_t i = 0; i < kRequests; ++i) {
          const std::size_t client = t * kRequests + i;
          const runtime::SamplerParams sampling{.temperature = 0.8F, .seed = client};
          auto handle = engine.submit({.prompt = prompt_of(client), .sampling = sampling, .max_tokens = 10});
          if (!handle) continue;
          if (client % 3 == 0) {  // reads one token, then disconnects
            (void)handle->next(hours(1));
            ++gone;
          } else if (all_tokens(*handle) == reference.alone(prompt_of(client), sampling, 10)) {
            ++right;
          }
        }
      });
  }
  CHECK(gone == 67);
  CHECK(right == kThreads * kRequests - 67);
  wait_until([&] { return engine.status().open == 0; });
  const auto status = engine.status();
  CHECK((status.metrics.kv_blocks_free == status.metrics.kv_blocks && status.metrics.running == 0));
  CHECK(status.metrics.submitted == kThreads * kRequests);
  CHECK((status.metrics.steps_ahead > 0) == chooses);
  CHECK(status.health == Health::kHealthy);
}

/// An engine on a fake device that blocks in step number `step` until the test releases it.
struct Blocked {
  explicit Blocked(const EngineOptions& options, const test::FakeShape& shape = {}, std::uint64_t step = 1) {
    auto fake = std::make_unique<FakeExecutor>(shape);
    executor = fake.get();
    executor->in_step = [this, step] {
      if (executor->steps != step) return;
      entered.count_down();
      release.wait();
    };
    engine.emplace(std::move(fake), options);
  }
  FakeExecutor* executor = nullptr;
  std::latch entered{1}, release{1};
  std::optional<Engine> engine;
};

TEST_CASE("a full queue refuses requests with its numbers, and accepts again once it has room") {
  Blocked blocked({.queue = 2, .watchdog = Time::zero()});
  auto& engine = *blocked.engine;
  auto first = engine.submit({.prompt = {1, 2, 3}, .max_tokens = 3});
  blocked.entered.wait();
  auto second = engine.submit({.prompt = {1, 2, 3}, .max_tokens = 3});
  auto third = engine.submit({.prompt = {1, 2, 3}, .max_tokens = 3});
  const auto refused = engine.submit({.prompt = {1, 2, 3}});
  REQUIRE_FALSE(refused.has_value());
  CHECK((refused.error().kind == RefusalKind::kQueueFull && refused.error().limit == 2 && refused.error().asked == 3));
  blocked.release.count_down();
  CHECK(all_tokens(*first).size() == 3);
  CHECK(all_tokens(*third) == all_tokens(*second));
  CHECK(engine.submit({.prompt = {1}, .max_tokens = 1}).has_value());
}

TEST_CASE("a step that hangs fails every request at once; when it returns, the engine serves again") {
  Blocked blocked({.watchdog = milliseconds(20)});
  auto& engine = *blocked.engine;
  auto runs = engine.submit({.prompt = {1, 2, 3}, .max_tokens = 3});
  blocked.entered.wait();
  auto waits = engine.submit({.prompt = {4, 5}, .max_tokens = 3});
  for (auto* handle : {&*runs, &*waits}) {
    const auto event = handle->next(hours(1));
    REQUIRE(event.has_value());
    CHECK((event->finish == FinishReason::kError && event->error.find("too long") != std::string::npos));
  }
  CHECK(engine.status().health == Health::kUnhealthy);
  const auto refused = engine.submit({.prompt = {1}});
  REQUIRE_FALSE(refused.has_value());
  CHECK((refused.error().kind == RefusalKind::kUnhealthy && refused.error().recoverable()));
  blocked.release.count_down();
  wait_until([&] { return engine.status().health == Health::kDegraded; });
  wait_until([&] { return engine.status().open == 0; });
  CHECK(engine.status().metrics.stuck_steps == 1);
}

TEST_CASE("a hanging step of the decode loop is given up like any other") {
  Blocked blocked({.watchdog = milliseconds(20)}, {.chooses = true}, 4);
  auto& engine = *blocked.engine;
  auto runs = engine.submit({.prompt = {1, 2, 3}, .max_tokens = 30});
  blocked.entered.wait();
  std::string error;
  std::size_t tokens = 0;
  while (const auto event = runs->next(hours(1))) {
    tokens += event->token >= 0 ? 1 : 0;
    error += event->error;
  }
  CHECK(error.find("too long") != std::string::npos);
  CHECK(tokens == 3);
  blocked.release.count_down();
  wait_until([&] { return engine.status().open == 0; });
  CHECK(engine.status().metrics.stuck_steps == 1);
  wait_until([&] { return engine.status().health == Health::kDegraded; });
  auto after = engine.submit({.prompt = {1, 2, 3}, .max_tokens = 9});
  REQUIRE(after.has_value());
  CHECK(all_tokens(*after) == FakeExecutor({}).alone(std::vector{1, 2, 3}, {}, 9));
}

TEST_CASE("destroying the engine ends its requests, and stream handles may outlive it") {
  std::optional<Engine> engine(std::in_place, std::make_unique<FakeExecutor>(test::FakeShape{}), kNoWatchdog);
  std::atomic<int> heard{0};
  auto handle = engine->submit({.prompt = {1, 2}, .max_tokens = 2, .on_event = [&] { ++heard; }});
  CHECK(all_tokens(*handle).size() == 2);
  wait_until([&] { return heard == 2; });
  engine->close();
  const auto refused = engine->submit({.prompt = {1}});
  CHECK((!refused.has_value() && refused.error().kind == RefusalKind::kUnhealthy));
  engine.reset();

  Blocked blocked(kNoWatchdog);
  auto open = blocked.engine->submit({.prompt = {1, 2}, .max_tokens = 30});
  blocked.entered.wait();
  std::jthread ends([&] { blocked.engine.reset(); });
  blocked.release.count_down();
  ends.join();
  while (open->next(hours(1))) continue;
  CHECK(open->finished());
  open->cancel();
}

TEST_CASE("an exception in the engine's own thread ends every request with an error instead of hanging") {
  std::atomic<int> calls{0};  // outlives the engine, which calls the hook once more when it ends
  Engine engine(std::make_unique<FakeExecutor>(test::FakeShape{}), kNoWatchdog);
  auto handle = engine.submit({.prompt = {1, 2}, .max_tokens = 9, .on_event = [&] {
                                 if (++calls == 2) throw std::runtime_error("a bug");
                               }});
  while (handle->next(hours(1))) continue;
  CHECK(handle->finish_reason() == FinishReason::kError);
  CHECK(engine.status().health == Health::kUnhealthy);
  CHECK_FALSE(engine.submit({.prompt = {1}}).has_value());
}

}  // namespace
}  // namespace forge::engine

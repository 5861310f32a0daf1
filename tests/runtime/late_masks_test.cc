// Masks that take long: they are computed side by side, are no part of the device's steps, and hold up nobody for ever.

#include <atomic>
#include <barrier>
#include <catch2/catch.hpp>
#include <latch>
#include <thread>

#include "runtime/engine/engine.h"
#include "runtime/mask_thread.h"
#include "runtime/thread_pool.h"
#include "tests/runtime/fake_executor.h"
#include "tests/runtime/scripted_constraint.h"

namespace forge::engine {
namespace {

using std::chrono::hours;
using std::chrono::milliseconds;
using test::FakeExecutor;
using Tokens = std::vector<std::int32_t>;

/// Where a constraint waits, behind its third token.
enum class Waits : std::uint8_t { kMask, kAccept };

struct Gate {
  std::latch entered{1}, release{1};
};

class WaitingConstraint final : public runtime::TokenConstraint {
 public:
  WaitingConstraint(std::shared_ptr<Gate> gate, Waits where) : gate_(std::move(gate)), where_(where) {}
  std::span<const std::uint32_t> mask() override {
    wait_at(Waits::kMask);
    return {};
  }
  bool accept(std::int32_t) override {
    wait_at(Waits::kAccept);
    ++tokens_;
    return true;
  }
  void roll_back(std::size_t tokens) override { tokens_ -= tokens; }
  Tokens forced(std::size_t) override { return {}; }
  bool ended() override { return false; }

 private:
  void wait_at(Waits where) {
    if (where != where_ || tokens_ != 3) return;
    gate_->entered.count_down();
    gate_->release.wait();
    where_ = static_cast<Waits>(9);
  }
  std::shared_ptr<Gate> gate_;
  Waits where_;
  std::size_t tokens_ = 0;
};

Request slow(const std::shared_ptr<Gate>& gate, Waits where = Waits::kMask) {
  return {.prompt = {1, 2, 3}, .max_tokens = 20, .constraint = [=] {
            return std::make_unique<WaitingConstraint>(gate, where);
          }};
}

struct Told {
  Tokens tokens;
  FinishReason finish = FinishReason::kNone;
  std::string error;
};
Told told_by(RequestHandle& handle) {
  Told heard;
  while (const auto event = handle.next(hours(1))) {
    if (event->token >= 0) heard.tokens.push_back(event->token);
    if (event->finish != FinishReason::kNone) heard.finish = event->finish;
    heard.error += event->error;
  }
  return heard;
}

}  // namespace

TEST_CASE("a request whose mask is too late, is cancelled or expires ends alone, and the others go on") {
  const bool chooses = GENERATE(false, true);
  enum class Way : std::uint8_t { kLate, kCancelled, kExpired };
  for (const auto way : {Way::kLate, Way::kCancelled, Way::kExpired}) {
    CAPTURE(chooses, static_cast<int>(way));
    const auto gate = std::make_shared<Gate>();
    EngineOptions options{.watchdog = hours(1), .mask_time = hours(1)};
    if (way == Way::kLate) options.mask_time = milliseconds(1000);
    Engine engine(std::make_unique<FakeExecutor>(test::FakeShape{.chooses = chooses}), options);
    auto request = slow(gate);
    if (way == Way::kExpired) request.timeout = milliseconds(200);
    auto waits = engine.submit(std::move(request));
    auto good = engine.submit({.prompt = {4, 5, 6}, .max_tokens = 20, .constraint = test::made_of({})});
    auto free = engine.submit({.prompt = {7, 8}, .max_tokens = 20});
    gate->entered.wait();
    if (way == Way::kCancelled) waits->cancel();
    const auto heard = told_by(*waits);
    if (way == Way::kLate)
      CHECK(heard.error == "error[memory]: the constraint is too complex: the mask of one token took too long");
    else
      CHECK(heard.finish == (way == Way::kCancelled ? FinishReason::kCancelled : FinishReason::kDeadline));
    CHECK(heard.tokens.size() == 3);
    // The thread of the mask is still lost here, and other masks are computed all the same.
    CHECK(told_by(*good).tokens.size() == 20);
    CHECK(told_by(*free).tokens == FakeExecutor({}).alone(std::vector{7, 8}, {}, 20));
    auto next = engine.submit({.prompt = {4, 5, 6}, .max_tokens = 20, .constraint = test::made_of({})});
    CHECK(told_by(*next).tokens.size() == 20);
    CHECK(engine.status().health == Health::kHealthy);
    CHECK((engine.status().metrics.stuck_steps == 0 && engine.status().metrics.failed_steps == 0));
    gate->release.count_down();
  }
}

TEST_CASE("the watchdog does not take a slow mask for a device that hangs") {
  const bool chooses = GENERATE(false, true);
  CAPTURE(chooses);
  const auto gate = std::make_shared<Gate>();
  Engine engine(std::make_unique<FakeExecutor>(test::FakeShape{.chooses = chooses}),
                {.watchdog = milliseconds(1000), .mask_time = hours(1)});
  auto waits = engine.submit(slow(gate));
  gate->entered.wait();
  std::this_thread::sleep_for(milliseconds(1600));  // the watchdog looks four times in its limit
  CHECK(engine.status().health == Health::kHealthy);
  gate->release.count_down();
  const auto heard = told_by(*waits);
  CHECK((heard.finish == FinishReason::kLength && heard.tokens.size() == 20));
  CHECK(engine.status().metrics.stuck_steps == 0);
}

TEST_CASE("a constraint that hangs while it takes a token is seen, and is not the device's fault") {
  const auto gate = std::make_shared<Gate>();
  Engine engine(std::make_unique<FakeExecutor>(test::FakeShape{}), {.watchdog = milliseconds(50)});
  auto waits = engine.submit(slow(gate, Waits::kAccept));
  gate->entered.wait();
  const auto heard = told_by(*waits);
  CHECK(heard.error == "error[internal]: the tokens of a step took too long; a constraint hangs");
  CHECK(engine.status().health == Health::kUnhealthy);
  gate->release.count_down();
  while (engine.status().open > 0 || engine.status().health == Health::kUnhealthy)
    std::this_thread::sleep_for(milliseconds(1));
  auto next = engine.submit({.prompt = {1, 2, 3}, .max_tokens = 9});
  REQUIRE(next.has_value());
  CHECK(told_by(*next).tokens == FakeExecutor({}).alone(std::vector{1, 2, 3}, {}, 9));
}

namespace {

/// Its mask is there when another one is being computed.
struct Together final : runtime::TokenConstraint {
  explicit Together(std::barrier<>& meets) : meets_(meets) {}
  std::span<const std::uint32_t> mask() override {
    meets_.arrive_and_wait();
    return {};
  }
  bool accept(std::int32_t) override { return true; }
  void roll_back(std::size_t) override {}
  Tokens forced(std::size_t) override { return {}; }
  bool ended() override { return false; }
  std::barrier<>& meets_;
};

}  // namespace

namespace {

/// Counts its masks.
struct Counting final : runtime::TokenConstraint {
  explicit Counting(std::atomic<int>& masks) : masks_(masks) {}
  std::span<const std::uint32_t> mask() override {
    ++masks_;
    masks_.notify_all();
    return {};
  }
  bool accept(std::int32_t) override { return true; }
  void roll_back(std::size_t) override {}
  Tokens forced(std::size_t) override { return {}; }
  bool ended() override { return false; }
  std::atomic<int>& masks_;
};

}  // namespace

TEST_CASE("masks are computed beside steps of a device or a part of the CPUs, and after steps that need every CPU") {
  const bool chooses = GENERATE(false, true), all = GENERATE(false, true);
  CAPTURE(chooses, all);
  std::atomic<int> masks = 0, steps = 0, early = 0;
  auto executor = std::make_unique<FakeExecutor>(
      test::FakeShape{.threads = all ? runtime::ThreadPool::default_threads() : 0, .chooses = chooses});
  executor->in_step = [&] {
    const int before = steps++;  // every step has one mask
    if (chooses || !all) return masks.wait(before);
    std::this_thread::sleep_for(milliseconds(5));
    early += masks != before;
  };
  Engine engine(std::move(executor), {.steps_ahead = 1});
  auto handle = engine.submit(
      {.prompt = {1, 2, 3}, .max_tokens = 10, .constraint = [&] { return std::make_unique<Counting>(masks); }});
  CHECK(told_by(*handle).tokens.size() == 10);
  CHECK((steps == 10 && masks == 10));
  CHECK(early == 0);
}

TEST_CASE("masks of several rows are computed side by side, and memory that runs out is said") {
  std::barrier meets(2);
  std::vector<std::shared_ptr<runtime::Constrained>> rows;
  for (int i = 0; i < 2; ++i) {
    rows.push_back(std::make_shared<runtime::Constrained>());
    rows.back()->constraint = std::make_shared<Together>(meets);
  }
  runtime::MaskThreads masks(2);
  for (int i = 0; i < 100; ++i) {
    masks.begin(rows);
    masks.wait();
    CHECK((!masks.is_late(*rows[0]) && !masks.is_late(*rows[1])));
  }
  runtime::Constrained full;
  struct Full final : runtime::TokenConstraint {
    std::span<const std::uint32_t> mask() override { throw std::bad_alloc(); }
    bool accept(std::int32_t) override { return true; }
    void roll_back(std::size_t) override {}
    Tokens forced(std::size_t) override { return {}; }
    bool ended() override { return false; }
  };
  full.constraint = std::make_shared<Full>();
  runtime::compute_mask(full);
  REQUIRE(full.error.has_value());
  CHECK(full.error->code() == ErrorCode::kMemory);
}

}  // namespace forge::engine

// The engine in a simulated world: 200,000 steps with new requests, cancels, preemptions, deadlines and device errors.
// No block is owned twice or lost, no request starves, and every sample gets the tokens of the same request run alone.
// planted_bugs_test.cc proves that this simulation finds bugs.

#include <catch2/catch.hpp>
#include <random>

#include "tests/runtime/engine_world.h"
#include "tests/runtime/script_search.h"

namespace forge::test {
namespace {

Op random_op(std::mt19937_64& random) {
  const auto number = [&] { return static_cast<std::uint32_t>(random() % 1000); };
  const auto pick = random() % 100;
  const auto kind = pick < 25   ? Op::Kind::kSubmit
                    : pick < 30 ? Op::Kind::kCancel
                    : pick < 92 ? Op::Kind::kStep
                    : pick < 94 ? Op::Kind::kFault
                    : pick < 98 ? Op::Kind::kWait
                                : Op::Kind::kAbandon;
  return {.kind = kind, .a = number(), .b = number(), .c = number(), .d = number()};
}

TEST_CASE(
    "200,000 steps: no block is lost or owned twice, no request starves, all samples equal those of single runs") {
  std::uint64_t steps = 0, compared = 0;
  engine::EngineMetrics total;
  std::uint64_t state_steps_ahead = 0;
  for (std::uint64_t seed = 1; steps < 200'000; ++seed) {
    CAPTURE(seed, steps);
    std::mt19937_64 random(seed);
    FakeShape shape{.step_tokens = 8 + seed % 3 * 8, .sequences = 2 + seed % 7, .block_tokens = 1 + seed % 5};
    shape.blocks = shape.context / shape.block_tokens + 2 + seed % 10;
    shape.window = seed % 2 * (1 + seed % 13);
    shape.chooses = seed % 4 < 2;
    if (steps >= 100'000) shape.state_slots = shape.sequences + seed % 3 * 3;  // the second half has recurrent state
    shape.kv = shape.state_slots == 0 || shape.window > 0 || seed % 5 > 0;
    EngineWorld world(shape);
    while (world.steps() < 5'000) world.apply(random_op(random));
    world.finish();
    steps += world.steps();
    compared += world.compared();
    const auto metrics = world.metrics();
    total.preemptions += metrics.preemptions;
    total.retries += metrics.retries;
    total.prefix_hits += metrics.prefix_hits;
    total.evictions += metrics.evictions;
    total.failed_steps += metrics.failed_steps;
    total.steps_ahead += metrics.steps_ahead;
    if (shape.state_slots > 0) state_steps_ahead += metrics.steps_ahead;
    total.states_kept += metrics.states_kept;
    total.state_hits += metrics.state_hits;
    total.state_evictions += metrics.state_evictions;
    for (std::size_t i = 0; i < total.finished.size(); ++i) total.finished[i] += metrics.finished[i];
  }
  INFO(compared << " samples compared; " << total.preemptions << " preemptions, " << total.retries << " retries, "
                << total.failed_steps << " failed steps, " << total.prefix_hits << " reused tokens, " << total.evictions
                << " evictions, " << total.steps_ahead << " steps ahead, " << state_steps_ahead
                << " of them with recurrent state; " << total.states_kept << " states kept, " << total.state_hits
                << " reused, " << total.state_evictions << " evicted");
  // The run must have exercised what it is for.
  CHECK(compared > 5'000);
  CHECK(total.preemptions > 500);
  CHECK(total.retries > 500);
  CHECK(total.prefix_hits > 10'000);
  CHECK(total.evictions > 10'000);
  CHECK(total.steps_ahead > 10'000);
  CHECK(state_steps_ahead > 1'000);
  CHECK(total.states_kept > 10'000);
  CHECK(total.state_hits > 1'000);
  CHECK(total.state_evictions > 10'000);
  for (const auto reason : {engine::FinishReason::kLength, engine::FinishReason::kCancelled,
                            engine::FinishReason::kDeadline, engine::FinishReason::kError})
    CHECK(total.finished[static_cast<std::size_t>(reason)] > 50);
}

TEST_CASE("random scripts of operations break no invariant") {
  const auto found = search_scripts();
  INFO(found.report);
  CHECK_FALSE(found.failed);
}

}  // namespace
}  // namespace forge::test

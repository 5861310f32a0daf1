// The engine in a simulated world: 100,000 steps with joins, cancels, preemptions, deadlines and device errors. No
// block is owned twice or lost, nobody starves, and every sample gets what it gets alone. Bugs planted into the
// scheduler are found, and made small.

#include <rapidcheck.h>

#include <catch2/catch.hpp>
#include <random>
#include <sstream>
#include <vector>

#include "tests/runtime/engine_world.h"

namespace rc {

template <>
struct Arbitrary<forge::test::Op> {
  static Gen<forge::test::Op> arbitrary() {
    using Kind = forge::test::Op::Kind;
    const auto number = gen::inRange<std::uint32_t>(0, 1000);
    return gen::build<forge::test::Op>(
        gen::set(&forge::test::Op::kind, gen::weightedElement<Kind>({{6, Kind::kSubmit},
                                                                     {2, Kind::kCancel},
                                                                     {10, Kind::kStep},
                                                                     {1, Kind::kFault},
                                                                     {1, Kind::kWait},
                                                                     {1, Kind::kAbandon}})),
        gen::set(&forge::test::Op::a, number), gen::set(&forge::test::Op::b, number),
        gen::set(&forge::test::Op::c, number), gen::set(&forge::test::Op::d, number));
  }
};

}  // namespace rc

namespace forge::test {
namespace {

using engine::PlantedBug;

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

TEST_CASE("100,000 steps: nothing is lost, nothing is owned twice, nobody starves, all get what they get alone") {
  std::uint64_t steps = 0, compared = 0;
  engine::EngineMetrics total;
  for (std::uint64_t seed = 1; steps < 100'000; ++seed) {
    CAPTURE(seed, steps);
    std::mt19937_64 random(seed);
    FakeShape shape{.step_tokens = 8 + seed % 3 * 8, .sequences = 2 + seed % 7, .block_tokens = 1 + seed % 5};
    shape.blocks = shape.context / shape.block_tokens + 2 + seed % 10;
    shape.window = seed % 2 * (1 + seed % 13);
    shape.chooses = seed % 4 < 2;
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
    for (std::size_t i = 0; i < total.finished.size(); ++i) total.finished[i] += metrics.finished[i];
  }
  INFO(compared << " samples compared; " << total.preemptions << " preemptions, " << total.retries << " retries, "
                << total.failed_steps << " failed steps, " << total.prefix_hits << " reused tokens, " << total.evictions
                << " evictions, " << total.steps_ahead << " steps ahead");
  // It saw what it is for.
  CHECK(compared > 5'000);
  CHECK(total.preemptions > 500);
  CHECK(total.retries > 500);
  CHECK(total.prefix_hits > 10'000);
  CHECK(total.evictions > 10'000);
  CHECK(total.steps_ahead > 10'000);
  for (const auto reason : {engine::FinishReason::kLength, engine::FinishReason::kCancelled,
                            engine::FinishReason::kDeadline, engine::FinishReason::kError})
    CHECK(total.finished[static_cast<std::size_t>(reason)] > 50);
}

using Script = std::vector<Op>;

/// The invariant that the script breaks; empty: none.
std::string broken_by(const Script& script, PlantedBug planted) {
  EngineWorld world({.sequences = 3, .blocks = 16, .window = script.size() % 3 * 5, .chooses = script.size() % 2 == 0},
                    planted);
  try {
    for (const auto& op : script) world.apply(op);
    world.finish();
  } catch (const std::exception& error) {
    return error.what();
  }
  return {};
}

/// What is found in scripts of operations, and the smallest one that still shows it.
struct Found {
  bool failed = false;
  Script smallest;
  std::string what;
  std::string report;  ///< RapidCheck's: the smallest script, operation by operation
};

Found search(PlantedBug planted) {
  Found found;
  const auto property = [&](const Script& script) {
    const auto what = broken_by(script, planted);
    if (what.empty()) return;
    found = {.failed = true, .smallest = script, .what = what};  // the last failure is the smallest
    RC_FAIL(what);
  };
  rc::detail::TestParams params;
  params.seed = 20'26;
  params.maxSuccess = 2000;
  params.maxSize = 150;
  const auto result = rc::detail::checkTestable(property, rc::detail::TestMetadata{}, params);
  std::ostringstream text;
  rc::detail::printResultMessage(result, text);
  found.report = text.str();
  REQUIRE(found.failed == !result.is<rc::detail::SuccessResult>());
  return found;
}

TEST_CASE("random scripts of operations break no invariant") {
  const auto found = search(PlantedBug::kNone);
  INFO(found.report);
  CHECK_FALSE(found.failed);
}

TEST_CASE("planted bugs are found, and the script that shows one is made small") {
  struct Plant {
    PlantedBug bug;
    const char* what;
  };
  for (const auto& [bug, what] :
       {Plant{PlantedBug::kLeakOnCancel, "KV-007"}, Plant{PlantedBug::kDoubleReleaseOnPreemption, "KV-0"},
        Plant{PlantedBug::kStarvingPriority, "SIM-001"}}) {
    const auto found = search(bug);
    INFO("bug " << static_cast<int>(bug) << ": " << found.what << ", shown by " << found.smallest.size()
                << " operations\n"
                << found.report);
    REQUIRE(found.failed);
    CHECK(found.what.find(what) != std::string::npos);
    CHECK(found.smallest.size() <= 10);
    CHECK(broken_by(found.smallest, PlantedBug::kNone).empty());  // it is the bug that breaks it
  }
}

}  // namespace
}  // namespace forge::test

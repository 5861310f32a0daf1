// The scheduler, step by step: steps that return hidden rows, for embeddings, and the whole prompts of encoders.

#include "runtime/engine/scheduler.h"

#include <catch2/catch.hpp>
#include <vector>

#include "tests/runtime/scheduler_bench.h"

namespace forge::engine {
namespace {

TEST_CASE("steps give logits or hidden rows, and alternate if both are wanted") {
  SchedulerBench bench({.limits = {.step_tokens = 16, .sequences = 4, .queue = 8}});
  const auto rows = [&](const std::vector<std::int32_t>& prompt, OutputKind wants) {
    return bench.scheduler.submit({.prompt = prompt, .wants = wants}, bench.now).value();
  };
  const auto a = bench.submit(rising(4), 20);
  bench.step();
  const auto mean = rows(rising(20, 100), OutputKind::kMeanRow), last = rows(rising(6, 200), OutputKind::kLastRow);
  const auto& plan = bench.scheduler.plan(bench.now);
  REQUIRE((plan.hidden && plan.parts.size() == 2));
  CHECK((plan.parts[0].rows == 15 && plan.parts[0].ids.size() == 15 && plan.parts[1].rows == 0));
  const auto given = bench.scheduler.complete();
  REQUIRE(given.size() == 1);
  CHECK((given[0].key.request == mean && given[0].count == 15 && given[0].position == 0 && !given[0].last));
  CHECK(bench.step() == SchedulerBench::Fed{{{a, 0}, 1}});
  bench.scheduler.plan(bench.now);
  const auto rest = bench.scheduler.complete();
  REQUIRE(rest.size() == 2);
  CHECK((rest[0].row == 0 && rest[0].count == 5 && rest[0].position == 15 && rest[0].last));
  CHECK((rest[1].key.request == last && rest[1].row == 5 && rest[1].count == 1 && rest[1].last));
  for (const auto id : {mean, last}) bench.scheduler.finish({id, 0});
  bench.finish_all();
  // Cached tokens suffice for a last row; a mean row needs every token.
  const auto again = rows(rising(20, 100), OutputKind::kLastRow), whole = rows(rising(16, 100), OutputKind::kMeanRow);
  CHECK(bench.step() == SchedulerBench::Fed{{{again, 0}, 4}, {{whole, 0}, 12}});
  bench.finish_all();
  CHECK_FALSE(
      bench.scheduler.submit({.prompt = rising(4), .max_tokens = 1, .wants = OutputKind::kLastRow}, {}).has_value());
}

TEST_CASE("the first row is that of the first token, and the request ends with it") {
  SchedulerBench bench({.limits = {.step_tokens = 16, .sequences = 4, .queue = 8}});
  const auto rows = [&](std::size_t tokens, OutputKind wants) {
    return bench.scheduler.submit({.prompt = rising(tokens), .wants = wants}, bench.now).value();
  };
  for (int i = 0; i < 2; ++i) {  // the second time the whole prompt is in the prefix cache
    const auto first = rows(20, OutputKind::kFirstRow);
    const auto& plan = bench.scheduler.plan(bench.now);
    REQUIRE(plan.parts.size() == 1);
    CHECK((plan.parts[0].ids.size() == 16 && plan.parts[0].rows == 1 && plan.parts[0].first_row == 0));
    const auto given = bench.scheduler.complete();
    REQUIRE(given.size() == 1);
    CHECK((given[0].key.request == first && given[0].position == 0 && given[0].count == 1 && given[0].last));
    bench.scheduler.finish({first, 0});
    if (i == 0) {
      rows(20, OutputKind::kLastRow);
      bench.finish_all();
    }
  }
}

TEST_CASE("whole prompts: each is fed in one step, in order of rank, as many as fit") {
  SchedulerBench bench({.limits = {.step_tokens = 16,
                                   .prompt_tokens = 8,
                                   .sequences = 4,
                                   .queue = 8,
                                   .reuse_prefixes = false,
                                   .whole_prompts = true}});
  const auto rows = [&](std::size_t tokens, OutputKind wants) {
    return bench.scheduler.submit({.prompt = rising(tokens), .wants = wants}, bench.now).value();
  };
  const auto a = rows(16, OutputKind::kMeanRow), b = rows(9, OutputKind::kFirstRow), c = rows(9, OutputKind::kLastRow),
             d = rows(7, OutputKind::kMeanRow), e = rows(2, OutputKind::kMeanRow);
  CHECK(bench.step() == SchedulerBench::Fed{{{a, 0}, 16}});
  bench.scheduler.finish({a, 0});
  const auto& plan = bench.scheduler.plan(bench.now);
  REQUIRE(plan.parts.size() == 2);  // c does not fit; d, behind it, does
  CHECK((plan.parts[0].key.request == b && plan.parts[0].ids.size() == 9 && plan.parts[0].rows == 1));
  CHECK((plan.parts[1].key.request == d && plan.parts[1].ids.size() == 7 && plan.parts[1].rows == 7));
  const auto given = bench.scheduler.complete();
  REQUIRE(given.size() == 2);
  CHECK((given[0].row == 0 && given[0].position == 0 && given[0].last && given[1].row == 1 && given[1].count == 7));
  for (const auto id : {b, d}) bench.scheduler.finish({id, 0});
  CHECK(bench.step() == SchedulerBench::Fed{{{c, 0}, 9}, {{e, 0}, 2}});
  for (const auto id : {c, e}) bench.scheduler.finish({id, 0});
  const auto refused = bench.scheduler.submit({.prompt = rising(17), .wants = OutputKind::kMeanRow}, bench.now);
  REQUIRE_FALSE(refused.has_value());
  CHECK((refused.error().kind == RefusalKind::kTooLong && refused.error().asked == 17 && refused.error().limit == 16));
}

}  // namespace
}  // namespace forge::engine

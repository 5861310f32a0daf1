#pragma once
// A scheduler with a model in place of the device, for the tests of the scheduler.

#include <catch2/catch.hpp>
#include <functional>
#include <map>
#include <numeric>
#include <utility>
#include <vector>

#include "runtime/engine/scheduler.h"

namespace forge::engine {

/// `count` ids from `first` on.
inline std::vector<std::int32_t> rising(std::size_t count, std::int32_t first = 0) {
  std::vector<std::int32_t> ids(count);
  std::iota(ids.begin(), ids.end(), first);
  return ids;
}

struct SchedulerBenchOptions {
  std::size_t blocks = 64, block_tokens = 4, context = 64;
  SchedulerLimits limits = {.step_tokens = 16, .sequences = 4, .queue = 8};
};

/// A scheduler with a model in place of the device: every step succeeds and every sampled token is 7.
struct SchedulerBench {
  explicit SchedulerBench(const SchedulerBenchOptions& options = {})
      : pool({.blocks = options.blocks,
              .block_tokens = options.block_tokens,
              .sequences_max = options.limits.sequences,
              .tokens_max = options.context}),
        scheduler(pool, options.limits) {}

  runtime::KvBlockPool pool;
  Scheduler scheduler;
  Time now{};

  RequestId submit(const std::vector<std::int32_t>& prompt, std::size_t max_tokens = 8, int priority = 0,
                   std::size_t samples = 1) {
    const auto id =
        scheduler.submit({.prompt = prompt, .max_tokens = max_tokens, .samples = samples, .priority = priority}, now);
    REQUIRE(id.has_value());
    return *id;
  }
  /// Number of tokens that each sequence fed in a step.
  using Fed = std::map<std::pair<RequestId, std::uint32_t>, std::size_t>;
  Fed step(const std::function<void(const StepPlan&)>& look = {}) {
    Fed fed;
    const auto& plan = scheduler.plan(now);
    if (look) look(plan);
    for (const auto& part : plan.parts) fed[{part.key.request, part.key.sample}] = part.ids.size();
    scheduler.audit();
    if (!scheduler.in_flight()) return fed;
    const bool hidden = plan.hidden;
    for (const auto& given : scheduler.complete())
      if (hidden ? given.last : scheduler.push(given.key, 7)) scheduler.finish(given.key);
    scheduler.audit();
    return fed;
  }
  [[nodiscard]] bool runs(RequestId request) const {
    for (const auto& state : scheduler.states())
      if (state.key.request == request && state.running) return true;
    return false;
  }
  void finish_all() {
    for (int i = 0; i < 1000 && !scheduler.idle(); ++i) step();
    CHECK(scheduler.idle());
    CHECK(pool.blocks_free() == pool.limits().blocks);
  }
};

}  // namespace forge::engine

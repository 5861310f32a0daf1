// The scheduler, step by step: how prefill chunks and decode tokens share a step, admission order, preemption, prefix
// sharing, and the reservation of decode loop steps.

#include "runtime/engine/scheduler.h"

#include <catch2/catch.hpp>
#include <map>
#include <vector>

#include "support/error.h"
#include "tests/runtime/allocation_counter.h"
#include "tests/runtime/scheduler_bench.h"

namespace forge::engine {
namespace {

using runtime::KvBlockPool;
using std::chrono::seconds;

TEST_CASE("a step mixes decode tokens with prompt chunks, and a long prompt leaves one token for each later sequence") {
  SchedulerBench bench;
  const auto a = bench.submit(rising(4));
  CHECK(bench.step() == SchedulerBench::Fed{{{a, 0}, 4}});
  const auto b = bench.submit(rising(40, 100)), c = bench.submit(rising(20, 200));
  CHECK(bench.step() == SchedulerBench::Fed{{{a, 0}, 1}, {{b, 0}, 14}, {{c, 0}, 1}});
  CHECK(bench.step() == SchedulerBench::Fed{{{a, 0}, 1}, {{b, 0}, 14}, {{c, 0}, 1}});
  CHECK(bench.step() == SchedulerBench::Fed{{{a, 0}, 1}, {{b, 0}, 12}, {{c, 0}, 3}});
  CHECK(bench.step() == SchedulerBench::Fed{{{a, 0}, 1}, {{b, 0}, 1}, {{c, 0}, 14}});
  bench.finish_all();
}

TEST_CASE("requests that can never run are refused with the numbers, requests beyond the queue with the queue's") {
  SchedulerBench bench({.blocks = 8, .context = 64, .limits = {.step_tokens = 8, .sequences = 2, .queue = 2}});
  const auto refusal = [&](std::size_t prompt, std::size_t tokens, std::size_t samples = 1, int priority = 0) {
    const auto ids = rising(prompt);
    const auto result =
        bench.scheduler.submit({.prompt = ids, .max_tokens = tokens, .samples = samples, .priority = priority}, Time{});
    REQUIRE_FALSE(result.has_value());
    CHECK_FALSE(result.error().message.empty());
    return result.error();
  };
  CHECK(refusal(0, 1).kind == RefusalKind::kInvalid);
  CHECK(refusal(1, 0).kind == RefusalKind::kInvalid);
  CHECK(refusal(1, 1, 0).kind == RefusalKind::kInvalid);
  CHECK(refusal(1, 1, 1, 17).kind == RefusalKind::kInvalid);
  const auto room = refusal(20, 13);
  CHECK((room.kind == RefusalKind::kNoRoom && room.asked == 9 && room.limit == 8 && !room.recoverable()));
  const auto samples = refusal(1, 1, 3);
  CHECK((samples.kind == RefusalKind::kNoRoom && samples.asked == 3 && samples.limit == 2));
  for (const std::size_t tokens : {std::size_t{5}, ~std::size_t{0}}) {
    const auto length = refusal(60, tokens);
    CHECK((length.kind == RefusalKind::kTooLong && length.limit == 64));
  }
  CHECK(refusal(60, 5).message == "60 prompt tokens and 5 more do not fit into the context of 64");
  bench.submit(rising(4));
  bench.submit(rising(4));
  const auto full = refusal(4, 1);
  CHECK((full.kind == RefusalKind::kQueueFull && full.asked == 3 && full.limit == 2 && full.recoverable()));
  bench.step();
  bench.submit(rising(4));
  bench.finish_all();
}

TEST_CASE("first in, first admitted: a small request does not overtake a large one that does not fit yet") {
  SchedulerBench bench({.blocks = 10, .context = 40});
  const auto a = bench.submit(rising(16), 16);  // needs 8 blocks at its end
  bench.step();
  const auto large = bench.submit(rising(24, 100), 4), small = bench.submit(rising(2, 200), 2);
  bench.step();
  CHECK((bench.runs(a) && !bench.runs(large) && !bench.runs(small)));
  CHECK(bench.scheduler.counts().preemptions == 0);
  bench.finish_all();
}

TEST_CASE("without a free block the worst-ranked sequence is preempted, and restarts from its cached prefix") {
  SchedulerBench bench({.blocks = 8, .context = 32, .limits = {.step_tokens = 16, .sequences = 3, .queue = 8}});
  const auto a = bench.submit(rising(10), 18), b = bench.submit(rising(10, 100), 18);
  int preempted_at = -1;
  for (int i = 0; i < 12; ++i) {
    bench.step();
    if (preempted_at < 0 && !bench.runs(b)) preempted_at = i;
    CHECK(bench.runs(a));
  }
  CHECK(preempted_at > 3);
  CHECK(bench.scheduler.counts().preemptions == 1);
  bench.finish_all();
  CHECK(bench.scheduler.counts().prefix_hits > 0);
}

TEST_CASE("a priority is a head start in waiting time, and preempts sequences of worse rank") {
  SchedulerBench bench({.limits = {.step_tokens = 16, .sequences = 1, .queue = 8, .aging = seconds(10)}});
  const auto low = bench.submit(rising(4), 30);
  bench.step();
  bench.now = seconds(5);
  const auto equal = bench.submit(rising(4, 50), 30);
  bench.step();
  CHECK(bench.runs(low));
  const auto high = bench.submit(rising(4, 100), 4, 1);
  bench.step();
  CHECK((bench.runs(high) && !bench.runs(low)));
  CHECK(bench.scheduler.counts().preemptions == 1);
  bench.now = seconds(60);
  const auto late = bench.submit(rising(4, 200), 4, 5);  // a head start of 50 s, but `low` arrived 60 s earlier
  for (int i = 0; i < 10; ++i) bench.step();
  CHECK((bench.runs(low) && !bench.runs(late) && !bench.runs(equal)));
  bench.finish_all();
}

TEST_CASE("no sequence is preempted if the waiting request would still not fit") {
  SchedulerBench bench({.blocks = 12, .context = 48, .limits = {.step_tokens = 40, .sequences = 3, .queue = 8}});
  const auto first = bench.submit(rising(28), 4, 2);
  const auto low = bench.submit(rising(4, 50), 8);
  bench.step();
  const auto high =
      bench.submit(rising(24, 100), 4, 1);  // ranks before `low` and after `first`, which holds the blocks
  bench.step();
  CHECK((bench.runs(first) && bench.runs(low) && !bench.runs(high)));
  CHECK(bench.scheduler.counts().preemptions == 0);
  bench.finish_all();
}

TEST_CASE("samples share all blocks of the prompt, and copy the last one when they diverge") {
  SchedulerBench bench;
  const auto request = bench.submit(rising(10), 8, 0, 3);
  CHECK(bench.step() == SchedulerBench::Fed{{{request, 0}, 10}});
  CHECK(bench.pool.blocks_free() == 64 - 3);
  const auto& plan = bench.scheduler.plan(bench.now);
  CHECK((plan.parts.size() == 3 && plan.copies.size() == 2));
  CHECK(plan.parts[0].kv->blocks()[1] == plan.parts[2].kv->blocks()[1]);
  CHECK(plan.parts[0].kv->blocks()[2] != plan.parts[1].kv->blocks()[2]);
  CHECK(bench.pool.blocks_free() == 64 - 5);
  const auto wanted = bench.scheduler.complete();
  REQUIRE(wanted.size() == 3);
  for (std::uint32_t s = 0; s < 3; ++s) CHECK((wanted[s].key == SequenceKey{request, s} && wanted[s].row == s));
  for (const auto& given : std::vector(wanted.begin(), wanted.end())) bench.scheduler.push(given.key, 5);
  bench.scheduler.finish({request, 1});
  bench.scheduler.audit();
  CHECK(bench.scheduler.running() == 2);
  CHECK(bench.scheduler.cancel(request));
  CHECK((bench.scheduler.idle() && bench.pool.blocks_free() == 64));
}

TEST_CASE("a cached prompt is fed from its first difference on, at least its last token") {
  SchedulerBench bench;
  bench.submit(rising(16));
  bench.finish_all();
  const auto again = bench.submit(rising(16));
  CHECK(bench.step() == SchedulerBench::Fed{{{again, 0}, 4}});  // the last block is fed again: logits need a token
  CHECK(bench.scheduler.reused_tokens({again, 0}) == 12);
  auto other = rising(16);
  other[9] = 99;
  const auto third = bench.submit(other);
  CHECK(bench.step()[{third, 0}] == 8);
  bench.finish_all();
  CHECK(bench.scheduler.counts().prefix_hits == 20);

  SchedulerBench plain({.limits = {.step_tokens = 16, .sequences = 4, .queue = 8, .reuse_prefixes = false}});
  plain.submit(rising(16));
  plain.finish_all();
  const auto fresh = plain.submit(rising(16));
  CHECK(plain.step() == SchedulerBench::Fed{{{fresh, 0}, 16}});
}

TEST_CASE("tokens of a long prompt are marked as prompt in every step, also after a preemption; others are not") {
  constexpr std::size_t kLong = 128;
  SchedulerBench bench({.blocks = 100,
                        .context = 4 * kLong,
                        .limits = {.step_tokens = 50, .long_prompt = kLong, .sequences = 3, .queue = 8}});
  std::map<RequestId, std::vector<bool>> fed;  // per position: fed as part of a prompt
  const auto look = [&](const StepPlan& plan) {
    for (const auto& part : plan.parts) {
      auto& seen = fed[part.key.request];
      seen.resize(std::max(seen.size(), part.position + part.ids.size()));
      for (std::size_t i = 0; i < part.ids.size(); ++i) seen[part.position + i] = i < part.prompt;
    }
  };
  const auto kinds = [](std::size_t prompt, std::size_t others) {
    std::vector<bool> out(prompt, true);
    out.resize(prompt + others, false);
    return out;
  };
  const auto first = bench.submit(rising(kLong + 40), kLong), second = bench.submit(rising(kLong, 1000), kLong),
             brief = bench.submit(rising(kLong - 1, 2000), 9);
  for (int i = 0; i < 400 && !bench.scheduler.idle(); ++i) bench.step(look);
  CHECK(bench.scheduler.counts().preemptions > 0);
  CHECK(fed[first] == kinds(kLong + 40, kLong - 1));
  CHECK(fed[second] == kinds(kLong, kLong - 1));
  CHECK(fed[brief] == kinds(0, kLong - 1 + 8));
}

TEST_CASE("the rest of a cached prompt is marked as prompt if it is long enough") {
  constexpr std::size_t kLong = 128;
  SchedulerBench bench({.blocks = 200,
                        .context = 4 * kLong,
                        .limits = {.step_tokens = 4 * kLong, .long_prompt = kLong, .sequences = 3, .queue = 8}});
  const auto kind = [&](std::size_t tokens) {
    const auto id = bench.submit(rising(tokens), 1);
    std::size_t prompt = 0;
    bench.step([&](const StepPlan& plan) { prompt = plan.parts.at(0).prompt; });
    CHECK(bench.scheduler.idle());
    return prompt + 1000 * bench.scheduler.reused_tokens({id, 0});
  };
  CHECK(kind(kLong) == kLong);
  CHECK(kind(kLong + 40) % 1000 == 0);  // all but 40 tokens and the end of a block are cached
  CHECK(kind(2 * kLong + 60) % 1000 >= kLong);
}

TEST_CASE("a target with one matmul kernel for all prompts gets no marks") {
  SchedulerBench bench({.blocks = 200, .context = 512, .limits = {.step_tokens = 512, .sequences = 3, .queue = 8}});
  bench.submit(rising(300), 1);
  std::size_t prompt = 1;
  bench.step([&](const StepPlan& plan) { prompt = plan.parts.at(0).prompt; });
  CHECK(prompt == 0);
}

TEST_CASE("prompts share a step up to a limit, so that time to first token stays short") {
  SchedulerBench bench({.limits = {.step_tokens = 16, .prompt_tokens = 8, .sequences = 4, .queue = 8}});
  const auto a = bench.submit(rising(6)), b = bench.submit(rising(6, 50)), c = bench.submit(rising(6, 100));
  CHECK(bench.step() == SchedulerBench::Fed{{{a, 0}, 6}, {{b, 0}, 2}, {{c, 0}, 1}});
  CHECK(bench.step() == SchedulerBench::Fed{{{a, 0}, 1}, {{b, 0}, 4}, {{c, 0}, 4}});
  bench.finish_all();
  const auto alone = bench.submit(rising(20, 200));  // a single prompt may use the whole step
  CHECK(bench.step() == SchedulerBench::Fed{{{alone, 0}, 16}});
  bench.finish_all();
}

TEST_CASE("a shared prompt prefix is computed once, also for requests that arrive together") {
  SchedulerBench bench({.limits = {.step_tokens = 16, .sequences = 4, .queue = 8}});
  const auto a = bench.submit(rising(24));
  auto other = rising(24);
  other[13] = 99;
  const auto b = bench.submit(other);
  const auto c = bench.submit(rising(6, 100));
  CHECK(bench.step() == SchedulerBench::Fed{{{a, 0}, 15}, {{c, 0}, 1}});              // b waits for a's prefix
  CHECK(bench.step() == SchedulerBench::Fed{{{a, 0}, 9}, {{b, 0}, 6}, {{c, 0}, 1}});  // 12 of b's tokens were found
  CHECK(bench.scheduler.reused_tokens({b, 0}) == 12);
  bench.finish_all();
  CHECK(bench.scheduler.counts().prefix_hits == 12);

  const auto d = bench.submit(rising(24, 200)), e = bench.submit(rising(24, 200));
  CHECK(bench.step() == SchedulerBench::Fed{{{d, 0}, 16}});
  CHECK(bench.scheduler.cancel(d));  // d is cancelled; its blocks stay cached for e
  CHECK(bench.step() == SchedulerBench::Fed{{{e, 0}, 8}});
  bench.finish_all();
}

TEST_CASE("a request can end at any moment: waiting, running, and while its step is in flight") {
  SchedulerBench bench({.limits = {.step_tokens = 16, .sequences = 2, .queue = 8}});
  const auto a = bench.submit(rising(6)), b = bench.submit(rising(6, 50)), c = bench.submit(rising(6, 100));
  const auto& plan = bench.scheduler.plan(bench.now);
  CHECK(plan.parts.size() == 2);
  CHECK(bench.scheduler.cancel(c));
  CHECK(bench.scheduler.cancel(a));
  CHECK_FALSE(bench.scheduler.cancel(a));
  bench.scheduler.audit();
  const auto wanted = bench.scheduler.complete();
  REQUIRE(wanted.size() == 1);
  CHECK((wanted[0].key.request == b && wanted[0].row == 1));  // row numbers of the step stay valid
  bench.scheduler.push(wanted[0].key, 1);
  CHECK(bench.scheduler.cancel(b));
  bench.scheduler.audit();
  CHECK(bench.pool.blocks_free() == 64);
}

TEST_CASE("deadlines are reported, delayed requests wait, and other requests pass them meanwhile") {
  SchedulerBench bench({.limits = {.step_tokens = 16, .sequences = 1, .queue = 8}});
  const auto ids = rising(4);
  const auto timed =
      bench.scheduler.submit({.prompt = ids, .max_tokens = 4, .deadline = seconds(3)}, bench.now).value();
  CHECK(bench.scheduler.next_event() == seconds(3));
  CHECK(bench.scheduler.expired(seconds(2)).empty());
  REQUIRE(bench.scheduler.expired(seconds(3)).size() == 1);
  CHECK(bench.scheduler.expired(seconds(3))[0] == timed);
  bench.scheduler.cancel(timed);
  const auto a = bench.submit(rising(4, 10));
  bench.scheduler.delay(a, seconds(5));
  CHECK(bench.step().empty());
  CHECK(bench.scheduler.next_event() == seconds(5));
  const auto b = bench.submit(rising(4, 20), 3);
  bench.step();
  CHECK((bench.runs(b) && !bench.runs(a)));
  bench.now = seconds(5);
  bench.step();
  CHECK((bench.runs(a) && !bench.runs(b)));  // a arrived first
  bench.finish_all();
}

TEST_CASE("after a failed step all running sequences restart, and the prefix cache is empty") {
  SchedulerBench bench({.limits = {.step_tokens = 8, .sequences = 4, .queue = 8}});
  const auto a = bench.submit(rising(8)), b = bench.submit(rising(8, 50));
  bench.step();
  bench.scheduler.plan(bench.now);
  const auto aborted = bench.scheduler.abort();
  CHECK(aborted.size() == 2);
  CHECK((bench.scheduler.running() == 0 && bench.scheduler.waiting() == 2));
  CHECK((bench.pool.blocks_idle() == 0 && bench.pool.blocks_free() == 64));
  bench.scheduler.audit();
  CHECK(bench.step() == SchedulerBench::Fed{{{a, 0}, 7}, {{b, 0}, 1}});
  bench.finish_all();
}

TEST_CASE("planning a decode step allocates nothing") {
  SchedulerBench bench({.blocks = 256, .context = 256});
  for (int i = 0; i < 4; ++i) bench.submit(rising(10, 100 * i), 200);
  for (int i = 0; i < 6; ++i) bench.step();
  const auto before = test::allocations();
  for (int i = 0; i < 100; ++i) {
    bench.scheduler.plan(bench.now);
    for (const auto& given : bench.scheduler.complete()) bench.scheduler.push(given.key, i);
  }
  CHECK(test::allocations() == before);
}

TEST_CASE("contradictory limits are refused") {
  KvBlockPool pool({.blocks = 8, .block_tokens = 4, .sequences_max = 2, .tokens_max = 32});
  CHECK_THROWS_AS(Scheduler(pool, {.step_tokens = 8, .sequences = 3, .queue = 1}), Error);
  CHECK_THROWS_AS(Scheduler(pool, {.step_tokens = 1, .sequences = 2, .queue = 1}), Error);
  CHECK_THROWS_AS(Scheduler(pool, {.step_tokens = 8, .sequences = 2, .queue = 1, .aging = Time::zero()}), Error);
}

TEST_CASE("steps are reserved while every sequence decodes, and unused positions are released") {
  SchedulerBench bench({.blocks = 12});
  const auto first = bench.submit(rising(6), 20), second = bench.submit(rising(3, 40), 5);
  const auto decode = [&](std::span<const StepOutput> given) {
    std::vector<RequestId> got;
    for (const auto& one : given) {
      got.push_back(one.key.request);
      if (bench.scheduler.push(one.key, 7)) bench.scheduler.finish(one.key);
    }
    bench.scheduler.audit();
    return got;
  };
  (void)bench.scheduler.plan(bench.now);
  CHECK(bench.scheduler.reserve(8) == 1);  // prompts are still being fed
  CHECK_FALSE(bench.scheduler.reserved());
  decode(bench.scheduler.complete());
  const auto free = bench.pool.blocks_free();
  const auto& plan = bench.scheduler.plan(bench.now);
  REQUIRE(plan.parts.size() == 2);
  CHECK(bench.scheduler.reserve(8) == 4);  // the tokens that the second may still generate
  CHECK(plan.parts[0].kv->tokens() == 10);
  CHECK(plan.parts[0].position == 6);
  CHECK(bench.pool.blocks_free() == free - 2);
  for (int step = 0; step < 2; ++step) {
    CHECK(decode(bench.scheduler.complete()) == std::vector{first, second});
    bench.scheduler.advance();
  }
  CHECK(bench.scheduler.cancel(second));  // while its step is in flight
  bench.scheduler.audit();
  CHECK(decode(bench.scheduler.complete()) == std::vector{first});
  const auto third = bench.submit(rising(22, 9), 4);
  CHECK(bench.scheduler.could_admit(bench.now));
  bench.scheduler.settle();
  bench.scheduler.audit();
  CHECK(bench.pool.blocks_free() == 12 - 3);  // 9 positions of the first
  CHECK(bench.step() == SchedulerBench::Fed{{{first, 0}, 1}, {{third, 0}, 15}});
  CHECK(bench.pool.match(rising(6)).blocks == 1);
}

TEST_CASE("reserving takes no more steps than there are free blocks, and a failed step drops the reservation") {
  SchedulerBench bench({.blocks = 4});
  const auto id = bench.submit(rising(6), 8);
  (void)bench.step();
  (void)bench.scheduler.plan(bench.now);
  CHECK(bench.scheduler.reserve(64) == 7);
  CHECK(bench.scheduler.abort().size() == 1);
  bench.scheduler.audit();
  CHECK(bench.pool.blocks_free() == 4);
  CHECK(bench.step() == SchedulerBench::Fed{{{id, 0}, 7}});

  SchedulerBench narrow({.blocks = 5});
  (void)narrow.submit(rising(2, 30), 14);
  (void)narrow.submit(rising(6), 8);
  CHECK(narrow.step().size() == 2);
  (void)narrow.scheduler.plan(narrow.now);
  CHECK(narrow.scheduler.reserve(64) == 3);  // of the 7 steps that remain
  CHECK(narrow.pool.blocks_free() == 0);
  (void)narrow.scheduler.abort();
  narrow.finish_all();
}

TEST_CASE("a sequence that ends between reserved steps leaves its prefix in the cache") {
  SchedulerBench bench;
  (void)bench.submit(rising(6), 7);
  (void)bench.step();
  (void)bench.scheduler.plan(bench.now);
  REQUIRE(bench.scheduler.reserve(64) == 6);
  for (int step = 0;; ++step) {
    const auto wanted = bench.scheduler.complete();
    if (bench.scheduler.push(wanted.front().key, 7)) {
      bench.scheduler.finish(wanted.front().key);
      break;
    }
    bench.scheduler.advance();
  }
  bench.scheduler.settle();
  bench.scheduler.audit();
  auto ids = rising(6);
  ids.insert(ids.end(), 6, 7);
  CHECK(bench.pool.match(ids).blocks == 3);
  CHECK(bench.pool.blocks_free() == 64);
}

}  // namespace
}  // namespace forge::engine

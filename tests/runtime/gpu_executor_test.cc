// The GPU executor on the null driver: launches and their addresses, the decode loop, memory requirements, and errors
// of failing devices.

#include <algorithm>
#include <catch2/catch.hpp>

#include "runtime/plan/gpu_io.h"
#include "runtime/plan/step.h"
#include "support/error.h"
#include "tests/runtime/allocation_counter.h"
#include "tests/runtime/gpu_model.h"

namespace forge {
namespace {

using runtime::DecodeLoop;
using runtime::GpuExecutor;
using runtime::Sampler;
using runtime::SamplerParams;
using test::error_line;
using test::feed;
using test::GpuModel;

/// The tokens that greedy decoding must give after `prompt`.
std::vector<std::int32_t> expected_tokens(const GpuModel& model, std::vector<std::int32_t> prompt, std::size_t count) {
  const std::size_t begin = prompt.size();
  while (prompt.size() < begin + count) prompt.push_back(model.next(prompt));
  return {prompt.begin() + static_cast<std::ptrdiff_t>(begin), prompt.end()};
}

struct Loop {
  DecodeLoop& loop;
  std::vector<Sampler> samplers;
  std::vector<std::int32_t> table = test::of_both_groups(test::first_blocks());

  explicit Loop(runtime::Executor& executor, SamplerParams params = {})
      : loop(*executor.decode_loop()), samplers(1, Sampler(test::kVocab, std::move(params))) {}
  void start(std::int32_t id, std::size_t position, std::int64_t steps) {
    const std::int32_t ids[] = {id}, positions[] = {static_cast<std::int32_t>(position)};
    const Sampler* const of_rows[] = {samplers.data()};
    loop.start({.ids = ids,
                .positions = positions,
                .samplers = of_rows,
                .block_table = table,
                .table_stride = table.size() / 2,
                .steps_max = steps});
  }
};

const std::vector<std::int32_t> kPrompt = {3, 1, 4, 1, 5, 9, 2, 6, 5, 3, 5};

}  // namespace

TEST_CASE("forward gives the model's logits, in steps of any size, with deferred or immediate execution") {
  for (const bool deferred : {false, true}) {
    const GpuModel model({.driver = {.deferred = deferred}});
    for (const std::size_t chunk : {1, 2, 3, 8}) {
      const auto driver = model.driver();
      const auto executor = model.open(driver);
      INFO("deferred " << deferred << ", chunk " << chunk);
      CHECK(feed(*executor, kPrompt, 0, chunk) == model.logits(kPrompt));
    }
    CHECK(model.control->counts().held() == 0);
  }
}

TEST_CASE("a forward is one graph launch of a variant that was captured when the program was opened") {
  const GpuModel model;
  const auto driver = model.driver();
  const auto executor = model.open(driver);
  CHECK(model.control->counts().graph_execs == 7);  // the two decode variants have three graphs each, prefill has one
  const auto launches = model.control->calls("launch");
  feed(*executor, kPrompt, 0, 4);
  CHECK(model.control->calls("launch") == launches);
  CHECK(model.control->calls("graph_launch") == 3);
  CHECK(model.seen->forwards == 3);
  CHECK(model.seen->overlaps == 3);  // launches with the overlap hint of the plan's flag
  CHECK(std::ranges::equal(model.seen->counts, std::array{3, 1, 1, 0}));
  CHECK(model.seen->padding_position == -1);
}

TEST_CASE("addresses follow the plan: KV groups, layers, K and V, and blocks") {
  const GpuModel model;
  const auto driver = model.driver();
  const auto executor = model.open(driver, {.threads = 1, .kv_blocks = 10});
  feed(*executor, {1});
  CHECK(executor->kv_blocks() == 10);
  CHECK(model.seen->v - model.seen->k == 10 * 32);
  CHECK(executor->memory_requirements().kv == 1280 + 1280);  // [layers 1][blocks 10][128 B], [2][10][64 B]
  CHECK(driver.device_allocations().total == 5);
  CHECK(driver.device_allocations().live_bytes == executor->memory_requirements().total());
  CHECK(executor->program().target == "null");
  CHECK(executor->tokens_max() == 8);
  CHECK(executor->rows_max() == 4);
  CHECK(executor->load_report().bytes == 64 + 64);
}

TEST_CASE("a block copy before a step takes the source block's contents and leaves the source unchanged") {
  const GpuModel model;
  const auto driver = model.driver();
  const auto executor = model.open(driver);
  feed(*executor, {kPrompt.begin(), kPrompt.begin() + 6});  // fills block 0 and the first half of block 1
  const auto step = [&](std::int32_t id, std::int32_t second, std::span<const runtime::BlockCopy> copies) {
    const std::int32_t ids[] = {id}, positions[] = {6}, zero[] = {0}, length[] = {7}, table[] = {0, second, 0, second};
    const auto logits = executor->forward({.ids = ids,
                                           .positions = positions,
                                           .sequence = zero,
                                           .rows = zero,
                                           .kv_length = length,
                                           .block_table = table,
                                           .table_stride = 2,
                                           .copies = copies});
    return std::vector(logits.begin(), logits.end());
  };
  const auto expected = [&](std::int32_t id) {
    std::vector<std::int32_t> ids(kPrompt.begin(), kPrompt.begin() + 6);
    ids.push_back(id);
    return model.logits(ids);
  };
  const runtime::BlockCopy copies[] = {{.from = 1, .to = 7}, {.from = 7, .to = 3}}, wrong[] = {{.from = 1, .to = 9999}};
  CHECK(step(11, 3, copies) == expected(11));
  CHECK(step(12, 1, {}) == expected(12));
  CHECK(step(13, 7, {}) == expected(13));
  CHECK(error_line([&] { step(1, 1, wrong); }, ErrorCode::kInternal).find("RT-008") != std::string::npos);
}

TEST_CASE("the decode loop gives the model's tokens, ahead of the host") {
  for (const bool deferred : {false, true}) {
    const GpuModel model({.driver = {.deferred = deferred}});
    const auto driver = model.driver();
    const auto executor = model.open(driver);
    feed(*executor, {kPrompt.begin(), kPrompt.end() - 1});
    const auto expected = expected_tokens(model, kPrompt, 40);
    Loop loop(*executor);
    const auto syncs = model.control->calls("stream_synchronize");
    const auto launches = model.control->calls("graph_launch");
    loop.start(kPrompt.back(), kPrompt.size() - 1, 40);
    std::vector<std::int32_t> tokens;
    loop.loop.submit();
    while (tokens.size() < 40) {
      if (tokens.size() < 39) loop.loop.submit();
      CHECK(loop.loop.in_flight() == (tokens.size() < 39 ? 2 : 1));
      tokens.push_back(loop.loop.take().front());
      if (deferred) CHECK(model.seen->sampled == tokens.size());  // exactly the steps waited for have run
    }
    loop.loop.stop();
    CHECK(tokens == expected);
    CHECK(model.seen->wrong_lengths == 0);
    CHECK(model.control->calls("stream_synchronize") == syncs);
    CHECK(model.control->calls("graph_launch") == launches + 40);
  }
}

TEST_CASE("the maximum number of steps in flight gives the same tokens, and a stop discards all of them") {
  for (const bool deferred : {false, true}) {
    const GpuModel model({.driver = {.deferred = deferred}});
    const auto driver = model.driver();
    const auto executor = model.open(driver);
    Loop loop(*executor);
    std::vector<std::int32_t> all = {7};
    for (int round = 0; round < 3; ++round) {
      const auto position = all.size() - 1;
      const std::vector<std::int32_t> fed = all;
      loop.start(all.back(), position, 12);
      CHECK(loop.loop.in_flight_max() == GpuExecutor::kInFlightMin);  // the step time is not measured yet
      for (int submitted = 0, taken = 0; taken < 6; ++taken) {
        const auto most = loop.loop.in_flight_max();
        CHECK((GpuExecutor::kInFlightMin <= most && most <= GpuExecutor::kInFlightMax));
        for (; submitted < 12 && loop.loop.in_flight() < most; ++submitted) loop.loop.submit();
        all.push_back(loop.loop.take().front());
      }
      loop.loop.stop();
      CHECK(loop.loop.in_flight() == 0);
      CHECK(std::vector(all.begin() + static_cast<std::ptrdiff_t>(fed.size()), all.end()) ==
            expected_tokens(model, fed, 6));
    }
  }
}

TEST_CASE("the token ring wraps, and more steps than announced are refused") {
  const GpuModel model;
  const auto driver = model.driver();
  const auto executor = model.open(driver);
  Loop loop(*executor);
  loop.start(7, 0, test::kContext);
  std::vector<std::int32_t> tokens;
  for (int i = 0; i < test::kContext; ++i) {
    loop.loop.submit();
    tokens.push_back(loop.loop.take().front());
  }
  CHECK(tokens == expected_tokens(model, {7}, test::kContext));
  CHECK_THAT(error_line([&] { loop.loop.submit(); }, ErrorCode::kInternal), Catch::Contains("RT-014"));
  loop.loop.stop();
  CHECK_THAT(error_line([&] { loop.start(7, 1, test::kContext); }, ErrorCode::kInternal), Catch::Contains("RT-003"));
  loop.table[3] = 1000;
  CHECK_THAT(error_line([&] { loop.start(7, 0, 16); }, ErrorCode::kInternal), Catch::Contains("RT-004"));
  loop.start(7, 0, 12);  // 12 steps use blocks 0 to 2 only
  loop.loop.stop();
}

TEST_CASE("a stopped loop may overrun by a step, which has no effect on later results") {
  for (const bool deferred : {false, true}) {
    const GpuModel model({.driver = {.deferred = deferred}});
    const auto driver = model.driver();
    const auto executor = model.open(driver);
    auto tokens = kPrompt;
    feed(*executor, {tokens.begin(), tokens.end() - 1});
    Loop loop(*executor);
    loop.start(tokens.back(), tokens.size() - 1, 20);
    loop.loop.submit();
    loop.loop.submit();
    tokens.push_back(loop.loop.take().front());
    CHECK_THAT(error_line([&] { feed(*executor, {1}); }, ErrorCode::kInternal), Catch::Contains("RT-011"));
    loop.loop.stop();
    CHECK(loop.loop.in_flight() == 0);
    const std::vector<std::int32_t> other = {8, 8, 8};  // overwrites the overrun step's position
    tokens.insert(tokens.end(), other.begin(), other.end());
    CHECK(feed(*executor, tokens, kPrompt.size()) == model.logits(tokens));
    loop.start(2, tokens.size(), 3);
    loop.loop.submit();
    tokens.push_back(2);
    CHECK(loop.loop.take().front() == model.next(tokens));
    loop.loop.stop();
  }
}

TEST_CASE("two sequences decode together, with their own block tables, positions and samplers") {
  const GpuModel model;
  const auto driver = model.driver();
  const auto executor = model.open(driver);
  const auto tables = test::of_both_groups({0, 2, 4, 6, 8, 10, 1, 3, 5, 7, 9, 11});
  std::vector<Sampler> samplers(2, Sampler(test::kVocab, {}));
  SamplerParams drawn{.temperature = 1, .top_k = 3, .top_p = 0.5F, .min_p = 0.25F};
  drawn.seed = (std::uint64_t{2} << 32) + 5;
  samplers[1] = Sampler(test::kVocab, drawn);
  samplers[1].set_draws(6);
  auto& loop = *executor->decode_loop();
  CHECK(loop.sequences_max() == 2);
  const std::int32_t ids[] = {4, 11}, positions[] = {0, 0};
  const Sampler* const of_rows[] = {&samplers[0], &samplers[1]};
  loop.start({.ids = ids,
              .positions = positions,
              .samplers = of_rows,
              .block_table = tables,
              .table_stride = 6,
              .steps_max = 8});
  std::vector<std::int32_t> first = {4}, second = {11};
  for (int i = 0; i < 8; ++i) {
    loop.submit();
    const auto tokens = loop.take();
    REQUIRE(tokens.size() == 2);
    CHECK(tokens[0] == model.next(first));
    CHECK(tokens[1] == (model.next(second) + 5 + 2 + 6 + i + 3 + 3) % test::kVocab);  // seed, draws, top_k, top_p+min_p
    first.push_back(tokens[0]);
    second.push_back(tokens[1]);
  }
  loop.stop();
}

TEST_CASE("the loop accepts exactly the parameters that its kernels can sample") {
  const GpuModel model;
  const auto driver = model.driver();
  const auto executor = model.open(driver);
  const auto& loop = *executor->decode_loop();
  CHECK(loop.can_sample({}));
  CHECK(loop.can_sample({.temperature = 0.7F, .top_k = 40, .top_p = 0.9F, .min_p = 0.1F}));
  CHECK(loop.can_sample({.typical_p = 0.5F}));  // greedy, so typical_p has no effect
  CHECK_FALSE(loop.can_sample({.temperature = 1, .typical_p = 0.5F}));
  CHECK_FALSE(loop.can_sample({.repeat_penalty = 1.1F}));
  CHECK_FALSE(loop.can_sample({.frequency_penalty = 0.1F}));
  CHECK_FALSE(loop.can_sample({.presence_penalty = -0.1F}));
  CHECK_FALSE(loop.can_sample({.logit_bias = {{1, 2.0F}}}));
  model.program->variants[0]->sample_steps.clear();
  model.program->variants[1]->sample_steps.clear();
  CHECK(model.open(driver)->decode_loop() == nullptr);
}

TEST_CASE("a step allocates nothing, on the device or on the host") {
  const GpuModel model;
  const auto driver = model.driver();
  const auto executor = model.open(driver);
  const auto device = driver.device(0);
  // Allocations that the null driver itself makes for the launch of a step; they are subtracted below.
  driver::Stream stream(device);
  const auto graph = driver::GraphExec::record(stream, "nothing", [] {});
  const auto bare = [&] { graph.launch(stream).check("test"); };
  bare();
  auto before = test::allocations();
  bare();
  const auto of_bare = test::allocations() - before;

  feed(*executor, kPrompt);
  Loop loop(*executor);
  loop.start(1, kPrompt.size(), 50);
  loop.loop.submit();
  loop.loop.submit();
  for (int i = 0; i < 2; ++i) {  // the first steps measure the step time
    (void)loop.loop.take();
    loop.loop.submit();
  }
  const auto device_before = driver.device_allocations().total, pinned_before = driver.pinned_allocations().total;
  before = test::allocations();
  for (int i = 0; i < 40; ++i) {
    (void)loop.loop.take();
    loop.loop.submit();
  }
  CHECK(test::allocations() - before == 40 * of_bare);
  loop.loop.stop();
  feed(*executor, kPrompt);
  CHECK(driver.device_allocations().total == device_before);
  CHECK(driver.pinned_allocations().total == pinned_before);
  CHECK(device_before == 5);
}

TEST_CASE("a failure of any driver call gives a one-line error and leaves no object alive") {
  const auto run = [](const GpuModel& model, const driver::Driver& driver) {
    const auto executor = model.open(driver, {.threads = 1});
    feed(*executor, kPrompt);
    Loop loop(*executor);
    loop.start(1, kPrompt.size(), 4);
    loop.loop.submit();
    loop.loop.submit();
    (void)loop.loop.take();
    loop.loop.stop();
  };
  std::uint64_t calls = 0;
  {
    const GpuModel model;
    const auto driver = model.driver();
    const auto before = model.control->counts().calls;
    run(model, driver);
    calls = model.control->counts().calls - before;
  }
  CHECK(calls > 200);
  int thrown = 0;
  for (const int code : {driver::kNullIllegalState, driver::kNullOutOfMemory, driver::kNullLaunchFailed})
    for (std::uint64_t nth = 1; nth <= calls; ++nth) {
      INFO("call " << nth << " code " << code);
      const GpuModel model;
      const auto driver = model.driver();
      model.control->fail_call(nth, code);
      std::string line;
      try {
        run(model, driver);
      } catch (const Error& error) {
        line = error.line();
        CHECK(error.exit_status() == (code == driver::kNullOutOfMemory ? 5 : 4));
      }
      thrown += line.empty() ? 0 : 1;
      CHECK(line.find('\n') == std::string::npos);
      // Objects whose release failed in a destructor are counted; all others must be gone.
      CHECK(model.control->counts().held() == driver.failed_releases());
    }
  CHECK(thrown > 450);
}

TEST_CASE("a device that is lost during a run fails every later step with exit status 4") {
  const GpuModel model({.driver = {.deferred = true}});  // deferred: the step is still pending when the device is lost
  const auto driver = model.driver();
  auto executor = model.open(driver);
  feed(*executor, kPrompt);
  Loop loop(*executor);
  loop.start(1, kPrompt.size(), 4);
  loop.loop.submit();
  model.control->lose_device();
  const auto line = error_line([&] { (void)loop.loop.take(); }, ErrorCode::kDevice);
  CHECK_THAT(line, Catch::Contains("waiting for a step"));
  CHECK_FALSE(error_line([&] { loop.loop.submit(); }, ErrorCode::kDevice).empty());
  CHECK_FALSE(error_line([&] { loop.loop.stop(); }, ErrorCode::kDevice).empty());
  CHECK_FALSE(error_line([&] { feed(*executor, kPrompt); }, ErrorCode::kDevice).empty());
  executor.reset();
  CHECK(driver.device_allocations().live == 0);
}

TEST_CASE("a program that does not fit memory is refused with the numbers before anything is loaded") {
  const GpuModel model({.large_rows = 1000});
  const auto driver = model.driver();
  model.control->limit_memory(4 << 20);
  const auto line = error_line([&] { (void)model.open(driver); }, ErrorCode::kMemory);
  CHECK_THAT(line, Catch::Contains("7.8 MiB do not fit into the memory of null device 0: weights 3.9"));
  CHECK_THAT(line, Catch::Contains("4.0 of 1024.0 MiB are free"));
  CHECK(model.control->calls("mem_alloc") == 0);
  CHECK(model.control->calls("module_load") == 0);
}

TEST_CASE("a profile times every step and gives the same tokens") {
  const GpuModel model({.driver = {.deferred = true}});
  const auto driver = model.driver();
  const auto executor = model.open(driver, {.threads = 1, .profile = true});
  CHECK(model.control->counts().graph_execs == 0);
  CHECK(feed(*executor, kPrompt, 0, 4) == model.logits(kPrompt));
  Loop loop(*executor);
  CHECK(loop.loop.in_flight_max() == 1);
  loop.start(kPrompt.back(), kPrompt.size() - 1, 4);
  std::vector<std::int32_t> tokens;
  for (int i = 0; i < 4; ++i) {
    loop.loop.submit();
    tokens.push_back(loop.loop.take().front());
  }
  loop.loop.stop();
  CHECK(tokens == expected_tokens(model, kPrompt, 4));
  const auto rows = executor->profile();
  REQUIRE(rows.size() == 8);
  CHECK(rows[0].variant == "decode1");
  CHECK(rows[0].kernel == "store");
  CHECK(rows[2].label == "sample");
  for (const auto i : {0, 2}) CHECK(rows[static_cast<std::size_t>(i)].calls == 4);
  CHECK(rows[2].nanoseconds > 0);
  CHECK(rows[2].weight_bytes == 1000);
  CHECK(rows[3].calls == 0);
  CHECK(rows[6].variant == "prefill8");
  CHECK(rows[6].calls == 3);
}

TEST_CASE("a sampled token outside the vocabulary is a device error") {
  const GpuModel model;
  const auto driver = model.driver();
  const auto executor = model.open(driver);
  model.control->set_kernel("sample", [](const driver::NullLaunch&) {});
  Loop loop(*executor);
  loop.start(1, 0, 2);
  loop.loop.submit();
  CHECK_THAT(error_line([&] { (void)loop.loop.take(); }, ErrorCode::kDevice),
             Catch::Contains("a token that does not exist"));
}

}  // namespace forge

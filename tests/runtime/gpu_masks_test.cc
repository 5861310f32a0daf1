// Masks on the GPU executor and the null driver: constrained rows are sampled on the device, alone and beside free
// ones, outside of a loop and in one.

#include <array>
#include <catch2/catch.hpp>

#include "runtime/engine/engine_core.h"
#include "tests/runtime/gpu_model.h"
#include "tests/runtime/scripted_constraint.h"

namespace forge {
namespace {

using engine::EngineCore;
using test::GpuModel;
using test::Rule;
using Ids = std::vector<std::int32_t>;

/// Greedy tokens under a rule; forced ones are the rule's.
Ids constrained_greedy(const GpuModel& model, const Ids& prompt, const Rule& rule, std::size_t count) {
  Ids all = prompt, tokens;
  const auto add = [&](std::int32_t token) {
    if (tokens.size() == count) return;
    all.push_back(token);
    tokens.push_back(token);
  };
  while (tokens.size() < count) {
    const auto logits = model.logits(all);
    const auto mask = rule.mask(tokens);
    std::int32_t best = -1;
    for (std::int32_t id = 0; id < test::kVocab; ++id)
      if ((mask >> id & 1U) != 0 && (best < 0 || logits[id] > logits[best])) best = id;
    add(best);
    for (const auto token : rule.forced(tokens)) add(token);
  }
  return tokens;
}

struct FixedMasks final : runtime::RowMasks {
  std::array<std::uint32_t, 2> words{};
  std::array<bool, 2> masked{};
  std::size_t asked = 0;
  [[nodiscard]] bool is_masked(std::size_t row) const override { return masked.at(row); }
  std::span<const std::uint32_t> mask(std::size_t row) override {
    ++asked;
    return {&words.at(row), 1};
  }
};

}  // namespace

TEST_CASE("constrained requests share a device's loop with free ones and get the tokens that they get alone") {
  for (const bool deferred : {false, true})
    for (const bool forces : {false, true}) {
      const GpuModel model({.driver = {.deferred = deferred}});
      const auto driver = model.driver();
      const auto executor = model.open(driver, {.threads = 1});
      engine::Time now = std::chrono::seconds(1);
      EngineCore core(*executor, {}, [&] { return now; });
      std::vector<std::shared_ptr<engine::Stream>> streams;
      std::vector<Ids> expected;
      for (std::uint32_t i = 0; i < 6; ++i) {
        const Ids prompt = {static_cast<std::int32_t>(i), 3, 1};
        const Rule rule{.salt = 40 + i, .forces = forces};
        engine::Request request{.prompt = prompt, .max_tokens = 30};
        if (i % 2 == 0) request.constraint = test::made_of(rule);
        expected.push_back(i % 2 == 0 ? constrained_greedy(model, prompt, rule, 30) : Ids{});
        for (Ids all = prompt; i % 2 == 1 && expected.back().size() < 30; all.push_back(expected.back().back()))
          expected.back().push_back(model.next(all));
        auto prepared = core.prepare(std::move(request));
        REQUIRE(prepared.has_value());
        streams.push_back(EngineCore::stream_of(*prepared));
        REQUIRE(core.submit(*std::move(prepared)).has_value());
      }
      for (int steps = 0; steps < 1000 && core.open() > 0; ++steps) {
        now += std::chrono::milliseconds(1);
        core.step();
        core.scheduler().audit();
      }
      for (std::size_t i = 0; i < streams.size(); ++i) {
        Ids tokens;
        while (const auto event = streams[i]->next({})) {
          CHECK(event->error.empty());
          if (event->token >= 0) tokens.push_back(event->token);
        }
        INFO("request " << i << ", deferred " << deferred << ", forces " << forces);
        CHECK(tokens == expected[i]);
      }
      const auto metrics = core.metrics();
      CHECK(metrics.steps_ahead > (forces ? 10U : 60U));
      CHECK(metrics.steps < (forces ? 95U : 110U));
      CHECK(metrics.kv_blocks_free == metrics.kv_blocks);
      CHECK(driver.device_allocations().total == 5);
    }
}

TEST_CASE("a mask holds for its row and its step only, and one that allows nothing gives no token") {
  const GpuModel model;
  const auto driver = model.driver();
  const auto executor = model.open(driver);
  auto& loop = *executor->decode_loop();
  const runtime::Sampler sampler(test::kVocab, {});
  const runtime::Sampler* const samplers[] = {&sampler, &sampler};
  const auto tables = test::of_both_groups({0, 2, 4, 6, 8, 10, 1, 3, 5, 7, 9, 11});
  std::int32_t position = 0;
  Ids first, second;
  const auto step = [&](std::int32_t a, std::int32_t b, runtime::RowMasks* masks) {
    const std::int32_t ids[] = {a, b}, positions[] = {position, position}, rows[] = {0, 1},
                       lengths[] = {position + 1, position + 1};
    ++position;
    first.push_back(a);
    second.push_back(b);
    const auto tokens = loop.forward_and_sample({.ids = ids,
                                                 .positions = positions,
                                                 .sequence = rows,
                                                 .rows = rows,
                                                 .kv_length = lengths,
                                                 .block_table = tables,
                                                 .table_stride = 6},
                                                samplers, masks)
                            .tokens;
    return Ids(tokens.begin(), tokens.end());
  };
  FixedMasks masks;
  masks.words = {1U << 9, 0};
  masks.masked = {true, false};
  const auto launches = [&] { return model.control->calls("graph_launch"); };
  auto before = launches();
  CHECK(step(4, 11, &masks) == Ids{9, model.next({11})});
  CHECK(masks.asked == 1);
  CHECK(launches() == before + 2);  // the masks are asked for and uploaded between forward and sampling
  masks.masked = {false, true};
  const auto none = step(4, 11, &masks);
  CHECK(none == Ids{model.next(first), runtime::kNoFiniteLogits});
  const auto free = step(4, 11, nullptr);  // what was uploaded before is not read
  CHECK(free == Ids{model.next(first), model.next(second)});
  before = launches();
  masks.masked = {false, false};
  (void)step(4, 11, &masks);
  CHECK(launches() == before + 1);
}

TEST_CASE("in a loop with masks a step is sampled before the next one is submitted") {
  const GpuModel model;
  const auto driver = model.driver();
  const auto executor = model.open(driver);
  auto& loop = *executor->decode_loop();
  const runtime::Sampler sampler(test::kVocab, {});
  const runtime::Sampler* const samplers[] = {&sampler};
  const auto table = test::of_both_groups(test::first_blocks());
  FixedMasks masks;
  masks.masked = {true, false};
  const std::int32_t ids[] = {4}, positions[] = {0};
  loop.start({.ids = ids,
              .positions = positions,
              .samplers = samplers,
              .block_table = table,
              .table_stride = table.size() / 2,
              .steps_max = 4,
              .masks = &masks});
  loop.submit();
  CHECK(test::error_line([&] { (void)loop.take(); }, ErrorCode::kInternal).find("RT-015") != std::string::npos);
  CHECK(test::error_line([&] { loop.submit(); }, ErrorCode::kInternal).find("RT-014") != std::string::npos);
  for (std::int32_t token = 1; token < 4; ++token) {
    masks.words[0] = 1U << token;
    loop.sample(masks);
    loop.submit();  // the next forward pass, before its masks are known
    CHECK(test::error_line([&] { loop.sample(masks); }, ErrorCode::kInternal).find("RT-019") != std::string::npos);
    CHECK(loop.take()[0] == token);
  }
  loop.stop();  // with a step that was not sampled
  CHECK(loop.in_flight() == 0);
}

}  // namespace forge

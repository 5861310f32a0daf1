// Recurrent state in the engine, on a fake device that counts tokens: chats, shared prefixes, and states that snapshots
// share.

#include <catch2/catch.hpp>

#include "runtime/engine/engine_core.h"
#include "support/error.h"
#include "tests/runtime/engine_bench.h"

namespace forge::test {
namespace {

using namespace forge::engine;

struct StateBench : EngineBench {
  using EngineBench::EngineBench;

  std::shared_ptr<Stream> submit(const std::vector<std::int32_t>& prompt, std::size_t tokens, std::size_t samples = 1,
                                 std::vector<std::int32_t> stops = {}) {
    Request request{.prompt = prompt, .max_tokens = tokens, .samples = samples, .stop_tokens = std::move(stops)};
    request.sampling.temperature = 0;
    return EngineBench::submit(std::move(request));
  }
  void run() {
    for (int i = 0; i < 10'000 && !core.idle(); ++i) {
      now += std::chrono::milliseconds(1);
      (void)core.step();
      core.scheduler().audit();
    }
    REQUIRE(core.idle());
    const auto metrics = core.metrics();
    CHECK((metrics.kv_blocks_free == metrics.kv_blocks && metrics.state_slots_free == metrics.state_slots));
  }
  std::vector<std::int32_t> take(Stream& stream, std::uint32_t sample = 0) {
    std::vector<std::int32_t> tokens;
    while (const auto event = stream.next(Time::zero()))
      if (event->sample == sample && event->token >= 0) tokens.push_back(event->token);
    return tokens;
  }
};

constexpr FakeShape kShape{.context = 400, .blocks = 320, .state_slots = 12};

TEST_CASE("a chat of 20 turns computes each token of its prompts once") {
  for (const auto& [kv, chooses] : {std::pair(true, false), std::pair(true, true), std::pair(false, true)}) {
    CAPTURE(kv, chooses);
    auto shape = kShape;
    shape.kv = kv;
    shape.chooses = chooses;
    StateBench bench(shape, {.sequences = 2});
    std::vector<std::int32_t> chat;
    std::size_t answered = 0;
    for (std::int32_t turn = 0; turn < 20; ++turn) {
      for (std::int32_t i = 0; i < 11; ++i) chat.push_back((turn * 7 + i * 3) % 16);
      const auto stream = bench.submit(chat, 6);
      bench.run();
      const auto answer = bench.take(*stream);
      CHECK(answer == bench.executor.alone(chat, {.temperature = 0}, 6));
      chat.insert(chat.end(), answer.begin(), answer.end());
      answered += answer.size();
      // The last token of an answer is fed with the next prompt.
      CHECK(bench.executor.fed == chat.size() - 1);
    }
    const auto metrics = bench.core.metrics();
    CHECK((answered == 120 && metrics.fed_tokens == chat.size() - 1 && metrics.state_hits == 19));
    CHECK((metrics.steps_ahead > 0) == chooses);
  }
}

TEST_CASE("a stop leaves the state after its last token, whatever the device has run ahead") {
  auto shape = kShape;
  shape.chooses = true;
  StateBench bench(shape, {.sequences = 2});
  for (std::int32_t round = 0; round < 40; ++round) {
    CAPTURE(round);
    std::vector<std::int32_t> chat = {round % 16, round / 16, 1, 2, 3};
    const auto expected = bench.executor.alone(chat, {.temperature = 0}, 30);
    const auto stop = expected[static_cast<std::size_t>(4 + round % 7)];
    const auto first = std::ranges::find(expected, stop);
    auto stream = bench.submit(chat, 30, 1, {stop});
    bench.run();
    CHECK(bench.take(*stream) == std::vector(expected.begin(), first));
    chat.insert(chat.end(), expected.begin(), first);
    chat.insert(chat.end(), {stop, 7, 8});
    const auto fed = bench.executor.fed;
    stream = bench.submit(chat, 1);
    bench.run();
    CHECK(bench.take(*stream) == bench.executor.alone(chat, {.temperature = 0}, 1));
    CHECK(bench.executor.fed - fed == 3);
  }
  CHECK(bench.core.metrics().steps_ahead > 40);
}

TEST_CASE("an answer that comes back changed costs its own tokens only: the turns before it are kept") {
  StateBench bench(kShape, {.sequences = 2, .turn_ends = {15}});
  std::vector<std::int32_t> prompt = {1, 2, 3, 4, 5, 6, 15, 7, 8};
  auto stream = bench.submit(prompt, 5);
  bench.run();
  const auto fed = bench.executor.fed;
  CHECK(fed == prompt.size() + 4);
  prompt.back() = 9;  // what follows the turn is rendered differently
  prompt.insert(prompt.end(), {10, 11});
  stream = bench.submit(prompt, 1);
  bench.run();
  CHECK(bench.take(*stream) == bench.executor.alone(prompt, {.temperature = 0}, 1));
  CHECK(bench.executor.fed - fed == prompt.size() - 7);
}

TEST_CASE("a regular snapshot is found by a prompt that differs behind it") {
  StateBench bench(kShape, {.sequences = 2, .state_interval = 7});  // rounded up to two blocks of 4
  std::vector<std::int32_t> prompt(30, 3);
  (void)bench.submit(prompt, 1);
  bench.run();
  const auto fed = bench.executor.fed;
  prompt[18] = 4;
  const auto stream = bench.submit(prompt, 1);
  bench.run();
  CHECK(bench.executor.fed - fed == 30 - 16);
  CHECK(bench.take(*stream) == bench.executor.alone(prompt, {.temperature = 0}, 1));
}

TEST_CASE("parallel requests compute their shared prefix once, and samples share a prompt") {
  StateBench bench(kShape, {.sequences = 4});
  std::vector<std::shared_ptr<Stream>> streams;
  std::vector<std::vector<std::int32_t>> prompts;
  for (std::int32_t i = 0; i < 4; ++i) {
    std::vector<std::int32_t> prompt(24, 2);
    prompt.insert(prompt.end(), {i, i + 1, 5});
    prompts.push_back(prompt);
    streams.push_back(bench.submit(prompt, 4));
  }
  bench.run();
  for (std::size_t i = 0; i < streams.size(); ++i)
    CHECK(bench.take(*streams[i]) == bench.executor.alone(prompts[i], {.temperature = 0}, 4));
  CHECK(bench.executor.fed == 24 + 4 * (3 + 3));
  // A later one finds the place where they part.
  const auto fed = bench.executor.fed;
  prompts[0][24] = 9;
  const auto later = bench.submit(prompts[0], 1);
  bench.run();
  CHECK((bench.executor.fed - fed == 3 && bench.take(*later).size() == 1));
  const auto samples = bench.submit(prompts[1], 3, 4);
  bench.run();
  CHECK(bench.take(*samples, 0).size() == 3);
}

TEST_CASE("as many slots as sequences are enough, and no snapshots can be asked for") {
  auto shape = kShape;
  shape.state_slots = 4;
  for (const bool snapshots : {true, false}) {
    StateBench bench(shape, {.state_snapshots = snapshots, .state_interval = 4});
    std::vector<std::vector<std::int32_t>> prompts;
    std::vector<std::shared_ptr<Stream>> streams;
    for (std::int32_t i = 0; i < 12; ++i) {
      prompts.emplace_back(20 + i % 5, i % 3);
      streams.push_back(bench.submit(prompts.back(), 5, i % 4 == 0 ? 3 : 1));
    }
    bench.run();
    for (std::size_t i = 0; i < streams.size(); ++i)
      CHECK(bench.take(*streams[i]) == bench.executor.alone(prompts[i], {.temperature = 0}, 5));
    CHECK((bench.core.metrics().states_kept > 0) == snapshots);
  }
}

}  // namespace
}  // namespace forge::test

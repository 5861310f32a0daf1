// Models with recurrent state on the CPU: chats and batches whose prefixes are reused from snapshots give the same bits
// as runs without, and each token of a prompt is computed once. Needs the reference data (families/).

#include <stdlib.h>

#include <catch2/catch.hpp>
#include <random>

#include "runtime/engine/engine_core.h"
#include "session/conversation.h"
#include "session/memory_limit.h"
#include "session/session.h"
#include "support/error.h"
#include "tests/support/error_of.h"
#include "tests/support/skip.h"
#include "tests/support/temp_dir.h"

namespace forge::session {
namespace {

constexpr const char* kModels[] = {"families/qwen35-q4_0.gguf", "families/mamba-f16.gguf", "families/lfm2-f16.gguf"};

struct StateModel {
  StateModel(const std::filesystem::path& path, std::int64_t sequences, std::optional<std::int64_t> slots) {
    ::setenv("FORGE_CACHE_DIR", folder.file("cache").c_str(), 1);
    session.emplace(Session::Options{.model = {.path = path.native(), .context = 512, .sequences = sequences},
                                     .device = "cpu",
                                     .threads = 1,
                                     .state_slots = slots},
                    stages);
  }
  [[nodiscard]] std::size_t vocab() { return session->executor().vocab(); }
  [[nodiscard]] std::vector<std::int32_t> some_ids(std::size_t count, unsigned seed) {
    std::mt19937 random(seed);
    std::vector<std::int32_t> ids(count);
    for (auto& id : ids) id = static_cast<std::int32_t>(random() % (vocab() - 8));
    return ids;
  }
  tests::TempDir folder;
  Stages stages;
  std::optional<Session> session;
};

/// Tokens and log-probabilities of a request.
struct Answered {
  std::vector<std::int32_t> tokens;
  std::vector<double> logprobs;
  friend bool operator==(const Answered&, const Answered&) = default;
};

struct Served {
  Served(StateModel& model, engine::EngineOptions options)
      : core(model.session->executor(), options, [this] { return now; }) {}

  std::shared_ptr<engine::Stream> submit(const std::vector<std::int32_t>& prompt, std::size_t tokens) {
    engine::Request request{.prompt = prompt, .max_tokens = tokens, .logprobs = true};
    request.sampling = {.temperature = 0.8F, .seed = 5};
    auto prepared = core.prepare(std::move(request));
    REQUIRE(prepared.has_value());
    auto stream = engine::EngineCore::stream_of(*prepared);
    REQUIRE(core.submit(*std::move(prepared)).has_value());
    return stream;
  }
  void run() {
    while (!core.idle()) {
      now += std::chrono::milliseconds(1);
      (void)core.step();
      core.scheduler().audit();
    }
  }
  static Answered take(engine::Stream& stream) {
    Answered out;
    while (const auto event = stream.next(engine::Time::zero())) {
      if (event->token < 0) continue;
      out.tokens.push_back(event->token);
      out.logprobs.push_back(event->chosen.logprob);
    }
    return out;
  }
  Answered ask(const std::vector<std::int32_t>& prompt, std::size_t tokens) {
    const auto stream = submit(prompt, tokens);
    run();
    return take(*stream);
  }

  engine::Time now = std::chrono::seconds(1);
  engine::EngineCore core;
};

}  // namespace

TEST_CASE("a chat of 20 turns with recurrent state: each prompt token once, the same bits as without reuse") {
  for (const auto* name : kModels) {
    CAPTURE(name);
    const auto path = tests::reference_file(name);
    if (path.empty()) return;
    StateModel model(path, 2, 12);
    Served served(model, {.state_interval = 64}), fresh(model, {.reuse_prefixes = false});
    std::vector<std::int32_t> chat;
    for (unsigned turn = 0; turn < 20; ++turn) {
      const auto more = model.some_ids(9 + turn % 5, turn);
      chat.insert(chat.end(), more.begin(), more.end());
      const auto answer = served.ask(chat, 7);
      CHECK(answer == fresh.ask(chat, 7));
      chat.insert(chat.end(), answer.tokens.begin(), answer.tokens.end());
      CHECK(served.core.metrics().fed_tokens == chat.size() - 1);
    }
    CHECK(served.core.metrics().state_hits == 19);
  }
}

TEST_CASE("interleaved sequences and shared prefixes with recurrent state give what each gives alone") {
  for (const auto* name : kModels) {
    CAPTURE(name);
    const auto path = tests::reference_file(name);
    if (path.empty()) return;
    StateModel model(path, 4, 9);
    Served alone(model, {.reuse_prefixes = false}), served(model, {.step_tokens = 32, .prompt_tokens = 16});
    std::vector<std::vector<std::int32_t>> prompts;
    std::vector<Answered> expected;
    for (unsigned i = 0; i < 6; ++i) {
      auto prompt = model.some_ids(70, i < 2 ? 40 + i : 50);  // the last four share a prefix
      const auto own = model.some_ids(3 + i, 90 + i);
      prompt.insert(prompt.end(), own.begin(), own.end());
      expected.push_back(alone.ask(prompt, 12));
      prompts.push_back(std::move(prompt));
    }
    std::vector<std::shared_ptr<engine::Stream>> streams;
    for (const auto& prompt : prompts) streams.push_back(served.submit(prompt, 12));
    served.run();
    for (std::size_t i = 0; i < streams.size(); ++i) CHECK(Served::take(*streams[i]) == expected[i]);
    const auto metrics = served.core.metrics();
    CHECK(metrics.state_hits >= 3);
    CHECK(metrics.cached_tokens >= 3 * 64);
  }
}

TEST_CASE("forge-run's chat with recurrent state prefills only what is new, with the same answers") {
  for (const auto* name : kModels) {
    CAPTURE(name);
    const auto path = tests::reference_file(name);
    if (path.empty()) return;
    StateModel keeps(path, 1, 9), fresh(path, 1, 0);
    Sequences sequences(keeps.session->executor(), 512, 1), others(fresh.session->executor(), 512, 1);
    CHECK((sequences.keeps_states() && !others.keeps_states()));
    std::vector<std::int32_t> chat;
    const auto encode = [&](std::span<const Message>) { return chat; };
    Conversation conversation(sequences, keeps.vocab(), encode, std::nullopt);
    const AnswerSink sink{.take = [](std::int32_t) { return std::nullopt; }, .finish = [] { return std::string("x"); }};
    for (unsigned turn = 0; turn < 20; ++turn) {
      const auto more = keeps.some_ids(8 + turn % 7, turn);
      chat.insert(chat.end(), more.begin(), more.end());
      const GenerateOptions options{.tokens_max = 6, .sampler = {.temperature = 0.7F, .seed = 3}};
      const auto answer = conversation.ask("q", options, sink).generated;
      // All but the new tokens and the last one of the answer before.
      CHECK(answer.held_tokens == (turn == 0 ? 0 : chat.size() - more.size() - 1));
      others.trim(0, 0);
      CHECK(answer.tokens == generate(others, fresh.vocab(), chat, options, sink.take).tokens);
      chat.insert(chat.end(), answer.tokens.begin(), answer.tokens.end());
    }
    // A turn that changes an answer goes on from the prompt before it.
    chat.resize(chat.size() - 6);
    chat.push_back(1);
    CHECK(conversation.ask("q", {.tokens_max = 1}, sink).generated.held_tokens == chat.size() - 1);
  }
}

TEST_CASE("slots of recurrent state by memory, and refusals with the numbers") {
  plan::ProgramT program;
  program.facts = std::make_unique<plan::TargetFactsT>();
  const MemoryLimit limit{.bytes = 1'000'000, .what = "test"};
  CHECK(state_slots_for(program, 1, 4, 99, 64, limit) == 0);
  program.recurrent_groups.emplace_back(2, 4000);
  CHECK(state_slots_for(program, 1, 4, 0, 64, limit) == 4);
  CHECK(state_slots_for(program, 1, 4, 9, 64, limit) == 9);
  CHECK_THROWS_WITH(state_slots_for(program, 1, 4, 3, 64, limit),
                    Catch::Contains("3 slots of recurrent state are too few"));
  CHECK(state_slots_line(program, 6, 4) ==
        "recurrent state: 6 slots of 7.8 KiB, 46.9 KiB; 4 for sequences, 2 for snapshots");
  CHECK((state_interval_for(4096, 64) == 256 && state_interval_for(4096, 8) == 1024 && state_interval_for(99, 7) == 0));
  const runtime::MemoryRequirements need{.weights = 900'000, .recurrent = 400'000};
  CHECK_THROWS_WITH(check_memory(need, 512, 4, limit, 16), Catch::Contains("recurrent state 390.6 KiB"));
  CHECK_THROWS_WITH(check_memory(need, 512, 4, limit, 16), Catch::Contains("give --state-slots 4"));
  CHECK_THROWS_WITH(check_memory(need, 512, 8, limit, 16), Catch::Contains("give --parallel 4"));
}

}  // namespace forge::session

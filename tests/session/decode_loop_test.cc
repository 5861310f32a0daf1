// The session's generation loop on an executor with device sampling: single sequences, stops that discard overrun
// steps, several sequences, and recurrent state.

#include <catch2/catch.hpp>

#include <optional>

#include "session/generate.h"
#include "tests/runtime/fake_executor.h"
#include "tests/runtime/gpu_model.h"

namespace forge::session {
namespace {

const std::vector<std::int32_t> kPrompt = {3, 1, 4, 1, 5, 9, 2, 6, 5, 3};

struct LoopFixture {
  explicit LoopFixture(bool deferred = true) : model({.driver = {.deferred = deferred}}) {}

  [[nodiscard]] std::vector<std::int32_t> expected(std::vector<std::int32_t> tokens, std::size_t count) const {
    const std::size_t begin = tokens.size();
    while (tokens.size() < begin + count) tokens.push_back(model.next(tokens));
    return {tokens.begin() + static_cast<std::ptrdiff_t>(begin), tokens.end()};
  }

  forge::test::GpuModel model;
  driver::Driver driver = model.driver();
  std::unique_ptr<runtime::GpuExecutor> executor = model.open(driver);
  Sequences sequences{*executor, forge::test::kContext, 2};
};

const auto kGoOn = [](std::int32_t) { return std::optional<Finish>(); };

}  // namespace

TEST_CASE("generation on a device gives the model's tokens, all but the first sampled there") {
  LoopFixture f;
  const auto out = generate(f.sequences, forge::test::kVocab, kPrompt, {.tokens_max = 20}, kGoOn);
  CHECK(out.tokens == f.expected(kPrompt, 20));
  CHECK(out.decode_steps == 19);
  CHECK(f.model.seen->sampled == 19);
  CHECK(f.sequences.length(0) == static_cast<std::int64_t>(kPrompt.size()) + 19);
}

TEST_CASE("generation fills the context to its last position") {
  LoopFixture f;
  const auto out = generate(f.sequences, forge::test::kVocab, kPrompt, {}, kGoOn);
  CHECK(out.finish == Finish::kContext);
  CHECK(out.tokens == f.expected(kPrompt, forge::test::kContext - kPrompt.size() + 1));
  CHECK(f.sequences.length(0) == forge::test::kContext);
}

TEST_CASE("a stop discards the steps that overran, and releases their blocks") {
  LoopFixture f;
  const auto out = generate(f.sequences, forge::test::kVocab, kPrompt, {},
                            [count = 0](std::int32_t) mutable -> std::optional<Finish> {
                              if (++count == 5) return Finish::kStop;
                              return std::nullopt;
                            });
  CHECK(out.finish == Finish::kStop);
  CHECK(out.tokens == f.expected(kPrompt, 5));
  // Four tokens were taken; the number of overrun steps depends on the measured step time.
  CHECK(f.model.seen->sampled >= 4 + runtime::GpuExecutor::kInFlightMin - 1);
  CHECK(f.model.seen->sampled <= 4 + runtime::GpuExecutor::kInFlightMax - 1);
  CHECK(f.sequences.length(0) == static_cast<std::int64_t>(kPrompt.size()) + 4);
  // The sequence continues from there, and the other one has room for its whole context.
  auto tokens = kPrompt;
  tokens.insert(tokens.end(), out.tokens.begin(), out.tokens.end());
  const auto logits = f.sequences.prefill(0, std::span(tokens).last(1));
  CHECK(std::vector<float>(logits.begin(), logits.end()) == f.model.logits(tokens));
  std::vector<std::int32_t> whole(forge::test::kContext, 2);
  (void)f.sequences.prefill(1, whole);
}

TEST_CASE("parameters that the device cannot sample are sampled on the host, with the same tokens") {
  LoopFixture f;
  const auto out = generate(f.sequences, forge::test::kVocab, kPrompt,
                            {.tokens_max = 12, .sampler = {.logit_bias = {{0, 0.0F}}}}, kGoOn);
  CHECK(out.tokens == f.expected(kPrompt, 12));
  CHECK(f.model.seen->sampled == 0);
  CHECK(out.decode_steps == 11);
}

TEST_CASE("a single token needs no loop, and a sink that returns at once ends it") {
  LoopFixture f;
  CHECK(generate(f.sequences, forge::test::kVocab, kPrompt, {.tokens_max = 1}, kGoOn).tokens == f.expected(kPrompt, 1));
  CHECK(f.model.seen->sampled == 0);
  f.sequences.trim(0, 0);
  const auto out =
      generate(f.sequences, forge::test::kVocab, kPrompt, {}, [](std::int32_t) { return Finish::kReaderGone; });
  CHECK(out.tokens.size() == 1);
  CHECK(f.model.seen->sampled == 0);
}

TEST_CASE("two sequences of unequal lengths decode together on the device") {
  LoopFixture f(false);
  const std::vector<std::int32_t> first = {7, 7, 1}, second = {9, 8, 7, 6, 5, 4};
  (void)f.sequences.prefill(0, std::span(first).first(first.size() - 1));
  (void)f.sequences.prefill(1, std::span(second).first(second.size() - 1));
  const std::vector<runtime::Sampler> samplers(2, runtime::Sampler(forge::test::kVocab, {}));
  REQUIRE(f.sequences.can_sample(2, samplers[0].params()));
  CHECK_FALSE(f.sequences.can_sample(3, samplers[0].params()));
  const std::int32_t ids[] = {first.back(), second.back()};
  f.sequences.begin(ids, samplers, 10);
  std::vector<std::int32_t> first_out, second_out;
  for (int i = 0; i < 7; ++i) {
    const auto tokens = f.sequences.next();
    first_out.push_back(tokens[0]);
    second_out.push_back(tokens[1]);
  }
  f.sequences.end();
  CHECK(first_out == f.expected(first, 7));
  CHECK(second_out == f.expected(second, 7));
  CHECK(f.sequences.length(0) == 2 + 7);
  CHECK(f.sequences.length(1) == 5 + 7);
}

TEST_CASE("recurrent state: generation goes on from the last token taken, whatever the device has run ahead") {
  constexpr std::int64_t kLength = 400;
  for (const std::size_t slots : {1, 2, 3, 6})
    for (const float temperature : {0.0F, 1.0F}) {
      CAPTURE(slots, temperature);
      forge::test::FakeExecutor executor({.context = kLength, .blocks = 120, .state_slots = slots, .chooses = true});
      Sequences sequences(executor, kLength, 1);
      auto tokens = kPrompt;
      for (std::size_t turn = 0; turn < 12; ++turn) {
        CAPTURE(turn);
        const std::size_t stop = 2 + turn % 5;
        const runtime::SamplerParams params{.temperature = temperature, .seed = turn};
        const auto expected = executor.alone(tokens, params, stop);
        const auto out =
            generate(sequences, executor.vocab(), tokens,
                     {.tokens_max = 30, .sampler = params, .held = static_cast<std::size_t>(sequences.length(0))},
                     [&, count = std::size_t{0}](std::int32_t) mutable -> std::optional<Finish> {
                       return ++count == stop ? std::optional(Finish::kStop) : std::nullopt;
                     });
        CHECK(out.tokens == expected);
        tokens.insert(tokens.end(), out.tokens.begin(), out.tokens.end());
        // All but the last token are in the sequence, and the state is the one after them.
        CHECK(sequences.length(0) == static_cast<std::int64_t>(tokens.size()) - 1);
        tokens.insert(tokens.end(), {1, 2});
      }
      CHECK(executor.loops > 0);
    }
}

}  // namespace forge::session

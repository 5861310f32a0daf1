// Constrained requests on the fake device: they get the tokens that a host without an engine would choose under the
// same constraint, whatever else is in the batch, and end as they should.

#include <bit>
#include <catch2/catch.hpp>
#include <functional>
#include <new>
#include <stdexcept>
#include <thread>
#include <vector>

#include "runtime/engine/engine_core.h"
#include "support/error.h"
#include "tests/runtime/engine_bench.h"
#include "tests/runtime/scripted_constraint.h"

namespace forge::engine {
namespace {

using test::FakeExecutor;
using test::FakeShape;
using test::made_of;
using test::Rule;
using Tokens = std::vector<std::int32_t>;

/// What a request must get: the host samples each token under its mask from the logits of all tokens before it.
Tokens reference(const FakeExecutor& executor, const Tokens& prompt, const runtime::SamplerParams& params,
                 const Rule& rule, std::size_t count) {
  runtime::Sampler sampler(16, params);
  runtime::SamplerScratch scratch(16);
  Tokens all = prompt, tokens;
  for (const auto id : prompt) sampler.accept(id);
  const auto add = [&](std::int32_t token) {
    sampler.accept(token);
    all.push_back(token);
    tokens.push_back(token);
  };
  const auto goes_on = [&] { return tokens.size() < std::min(count, rule.ends_after); };
  while (goes_on()) {
    const auto mask = rule.mask(tokens);
    add(sampler.sample(executor.logits_of(all), scratch, {&mask, 1}));
    for (const auto token : rule.forced(tokens))
      if (goes_on()) {
        if (params.temperature > 0) sampler.set_draws(sampler.draws() + 1);
        add(token);
      }
  }
  return tokens;
}

struct ConstraintBench : test::EngineBench {
  using EngineBench::EngineBench;
  void run() {
    for (int i = 0; i < 10'000 && !core.idle(); ++i) {
      if (each) each();
      if (!core.step()) now = std::max(now, core.next_event());
      core.scheduler().audit();
    }
    REQUIRE(core.idle());
    CHECK(core.metrics().kv_blocks_free == core.metrics().kv_blocks);
  }
  std::function<void()> each;
};

struct Heard {
  std::vector<Tokens> tokens;
  std::vector<FinishReason> finish;
  std::string error;
  std::size_t logprobs = 0;
};
Heard hear(Stream& stream, std::size_t samples = 1) {
  Heard heard{.tokens = std::vector<Tokens>(samples), .finish = std::vector<FinishReason>(samples), .error = {}};
  while (const auto event = stream.next(Time::zero())) {
    if (event->token >= 0) heard.tokens[event->sample].push_back(event->token);
    if (event->finish != FinishReason::kNone) heard.finish[event->sample] = event->finish;
    heard.error += event->error;
    heard.logprobs += event->chosen.token >= 0 ? 1 : 0;
  }
  return heard;
}

const Tokens kAsked = {3, 1, 4, 1, 5, 9, 2, 6};

}  // namespace

TEST_CASE("constrained and free requests of one batch get the tokens that they get alone") {
  FakeShape shape{.step_tokens = 32, .sequences = 16, .blocks = GENERATE(24U, 200U)};  // few: some are preempted
  shape.chooses = GENERATE(false, true);
  shape.state_slots = GENERATE(0U, 24U);
  CAPTURE(shape.blocks, shape.chooses, shape.state_slots);
  ConstraintBench bench(shape, {.retries = 50, .backoff = std::chrono::milliseconds(1)});
  struct Asked {
    std::shared_ptr<Stream> stream;
    std::vector<Tokens> expected;
  };
  std::vector<Asked> asked;
  for (std::uint32_t i = 0; i < 24; ++i) {
    Request request{.prompt = kAsked, .max_tokens = 12 + i % 7};
    request.prompt.push_back(static_cast<std::int32_t>(i % 16));
    request.samples = i % 5 == 4 ? 3 : 1;
    request.sampling = {.temperature = i % 2 == 0 ? 0.0F : 1.0F, .min_p = 0.01F, .seed = i};
    if (i % 8 == 1) request.sampling.repeat_penalty = 1.2F;
    const Rule rule{.salt = i + 1, .ends_after = i % 4 == 3 ? 9U : SIZE_MAX, .forces = i % 4 < 2};
    const bool constrained = i % 3 != 2;
    std::vector<Tokens> expected;
    for (std::uint32_t s = 0; s < request.samples; ++s) {
      auto params = request.sampling;
      params.seed += s;
      expected.push_back(constrained ? reference(bench.executor, request.prompt, params, rule, request.max_tokens)
                                     : bench.executor.alone(request.prompt, params, request.max_tokens));
    }
    if (constrained) request.constraint = made_of(rule);
    asked.push_back({bench.submit(std::move(request)), std::move(expected)});
  }
  // Some steps fail and are repeated.
  bench.each = [&, i = 0]() mutable {
    if (++i % 9 == 5) bench.executor.next_fault = FakeExecutor::Fault::kRecoverable;
  };
  bench.run();
  CHECK(bench.core.metrics().retries > 0);
  CHECK((shape.blocks > 24 || bench.core.metrics().preemptions > 0));
  for (const auto& [stream, expected] : asked) {
    const auto heard = hear(*stream, expected.size());
    CHECK(heard.error.empty());
    CHECK(heard.tokens == expected);
    std::size_t generated = 0;
    for (const auto& tokens : expected) generated += tokens.size();
    CHECK(stream->usage().generated_tokens == generated);
  }
}

TEST_CASE("what a constraint forces costs one step together, and is streamed and counted like any token") {
  const auto forcing = [] {
    Rule rule{.forces = true};
    while (rule.forced({}).size() < 5) ++rule.salt;  // from the first token on: the first is sampled, four follow
    return rule;
  }();
  const Tokens forced = forcing.forced({});
  ConstraintBench bench;
  const auto expected = reference(bench.executor, kAsked, {}, forcing, 20);
  const auto stream = bench.submit({.prompt = kAsked, .max_tokens = 20, .constraint = made_of(forcing)});
  bench.run();
  CHECK(hear(*stream).tokens == std::vector<Tokens>{expected});
  CHECK(stream->usage().generated_tokens == 20);
  CHECK(bench.executor.steps < 20);
  CHECK(bench.executor.fed == kAsked.size() + 19);
}

TEST_CASE("log probabilities, and a bias that is not against it, change nothing of what a constraint forces") {
  FakeShape shape;
  shape.chooses = GENERATE(false, true);
  for (std::uint32_t seed = 0; seed < 24; ++seed) {
    ConstraintBench bench(shape);
    const Rule rule{.salt = seed + 1, .ends_after = seed % 3 == 0 ? 14U : SIZE_MAX, .forces = true};
    const runtime::SamplerParams sampling{.temperature = seed % 4 == 3 ? 0.0F : 1.0F, .seed = seed};
    const auto expected = reference(bench.executor, kAsked, sampling, rule, 20);
    for (const int kind : {0, 1, 2, 3}) {
      CAPTURE(shape.chooses, seed, kind);
      Request request{.prompt = kAsked, .sampling = sampling, .max_tokens = 20, .constraint = made_of(rule)};
      request.logprobs = kind == 1 || kind == 3;
      // Zero: the probabilities are the same, and a bias is there all the same.
      if (kind >= 2) request.sampling.logit_bias = {{.token = 3, .bias = 0}};
      const auto before = bench.executor.steps;
      const auto stream = bench.submit(std::move(request));
      bench.run();
      const auto heard = hear(*stream);
      CHECK(heard.tokens == std::vector<Tokens>{expected});
      CHECK(heard.finish[0] == (rule.ends_after == 14 ? FinishReason::kStop : FinishReason::kLength));
      CHECK(stream->usage().generated_tokens == expected.size());
      CHECK(heard.logprobs == (kind == 1 || kind == 3 ? expected.size() : 0));
      if (kind == 1 || kind == 3) CHECK(bench.executor.steps - before >= expected.size());
    }
  }
}

TEST_CASE("what a bias is against is not forced where the constraint allows another token") {
  Rule rule{.forces = true};
  Tokens forced;
  while (forced.size() < 3 || std::popcount(rule.mask({forced[0]})) < 2 || forced[0] == forced[1])
    ++rule.salt, forced = rule.forced({});
  ConstraintBench bench;
  for (const bool logprobs : {false, true}) {
    Request request{.prompt = kAsked, .max_tokens = 2, .constraint = made_of(rule)};
    request.logprobs = logprobs;
    // The first token is sampled: a bias makes it the forced one. The second is forced, and forbidden.
    request.sampling.logit_bias = {{.token = forced[0], .bias = 1000}, {.token = forced[1], .bias = -1000}};
    const auto stream = bench.submit(std::move(request));
    bench.run();
    const auto heard = hear(*stream);
    REQUIRE((heard.error.empty() && heard.tokens[0].size() == 2));
    CHECK((heard.tokens[0][0] == forced[0] && heard.tokens[0][1] != forced[1]));
  }
}

TEST_CASE("a loop of many sequences is not left for what one of them must write") {
  const auto loops = [](std::uint32_t salt, std::size_t free) {
    ConstraintBench bench({.step_tokens = 32, .sequences = 16, .context = 96, .blocks = 400, .chooses = true});
    const Rule rule{.salt = salt, .forces = true};
    const auto expected = reference(bench.executor, kAsked, {}, rule, 60);
    const auto stream = bench.submit({.prompt = kAsked, .max_tokens = 60, .constraint = made_of(rule)});
    std::vector<std::shared_ptr<Stream>> others;
    for (std::size_t i = 0; i < free; ++i) others.push_back(bench.submit({.prompt = kAsked, .max_tokens = 60}));
    bench.run();
    CHECK(hear(*stream).tokens == std::vector<Tokens>{expected});
    return bench.executor.loops;
  };
  std::uint32_t salt = 1;  // of a rule that forces four tokens at once, which few do
  while (salt < 500 && loops(salt, 0) < 4) ++salt;
  CHECK(loops(salt, 0) >= 4);  // alone it is left: what is forced costs one step together
  CHECK(loops(salt, 15) < 4);
}

TEST_CASE("many sequences for which tokens are forced run ahead, also after some have ended") {
  ConstraintBench bench({.step_tokens = 64, .sequences = 16, .context = 96, .blocks = 400, .chooses = true});
  std::vector<std::shared_ptr<Stream>> streams;
  std::vector<Tokens> expected;
  for (std::uint32_t i = 0; i < 48; ++i) {
    const Rule rule{.salt = i + 1, .forces = true};
    Request request{.prompt = kAsked, .max_tokens = 20 + i * 7 % 23, .constraint = made_of(rule)};
    expected.push_back(reference(bench.executor, kAsked, {}, rule, request.max_tokens));
    streams.push_back(bench.submit(std::move(request)));
  }
  bench.run();
  for (std::size_t i = 0; i < streams.size(); ++i) CHECK(hear(*streams[i]).tokens == std::vector<Tokens>{expected[i]});
  // Outside of loops are the steps with prompts, at most one for each request, and what ends a loop again at once.
  const auto& metrics = bench.core.metrics();
  CAPTURE(metrics.steps, metrics.steps_ahead);
  CHECK(metrics.steps_ahead * 2 > metrics.steps);
}

TEST_CASE("a stop and the token limit also hold within what is forced") {
  Rule rule{.forces = true};
  ConstraintBench bench;
  Tokens expected;
  for (;; ++rule.salt) {  // the first token is sampled, and at least three are forced behind it
    expected = reference(bench.executor, kAsked, {}, rule, 20);
    if (rule.forced({expected[0]}).size() >= 3) break;
  }
  for (const std::size_t count : {2U, 3U}) {
    const auto limited = bench.submit({.prompt = kAsked, .max_tokens = count, .constraint = made_of(rule)});
    auto request = Request{.prompt = kAsked, .max_tokens = 20, .constraint = made_of(rule)};
    request.stop = [count, seen = std::size_t{0}](std::uint32_t, std::int32_t) mutable { return ++seen == count; };
    const auto stopped = bench.submit(std::move(request));
    bench.run();
    const auto limit = hear(*limited), stop = hear(*stopped);
    CHECK((limit.tokens[0].size() == count && limit.finish[0] == FinishReason::kLength));
    CHECK((stop.tokens[0].size() == count && stop.finish[0] == FinishReason::kStop));
    CHECK(stop.tokens == limit.tokens);
  }
}

TEST_CASE("a sample stops where its constraint can only end, also with its last possible token") {
  for (const bool chooses : {false, true}) {
    FakeShape shape;
    shape.chooses = chooses;
    ConstraintBench bench(shape);
    for (const std::size_t most : {5U, 30U}) {
      const auto stream =
          bench.submit({.prompt = kAsked, .max_tokens = most, .constraint = made_of({.ends_after = 5})});
      bench.run();
      const auto heard = hear(*stream);
      CHECK((heard.tokens[0].size() == 5 && heard.finish[0] == FinishReason::kStop));
    }
  }
}

namespace {

/// A constraint that breaks its word in one way.
class BrokenConstraint final : public runtime::TokenConstraint {
 public:
  enum class Kind : std::uint8_t {
    kStale,
    kEmpty,
    kMaskThrows,
    kAcceptThrows,
    kForcedThrows,
    kForcedWrong,
    kForcedFails
  };
  BrokenConstraint(Kind kind, std::size_t at) : kind_(kind), at_(at) {}
  std::span<const std::uint32_t> mask() override {
    if (kind_ == Kind::kMaskThrows && tokens_ == at_) throw Error(ErrorCode::kMemory, "the automaton grew too large");
    word_ = kind_ == Kind::kEmpty && tokens_ == at_ ? 0U : 1U << (tokens_ - (is_stale() ? 1 : 0)) % 16;
    return {&word_, 1};
  }
  bool accept(std::int32_t token) override {
    if (kind_ == Kind::kAcceptThrows && tokens_ == at_) throw Error(ErrorCode::kMemory, "the automaton grew too large");
    if (token != static_cast<std::int32_t>(tokens_ % 16)) return false;
    ++tokens_;
    return true;
  }
  void roll_back(std::size_t tokens) override { tokens_ -= tokens; }
  Tokens forced(std::size_t) override {
    if (kind_ == Kind::kForcedThrows && tokens_ == at_) throw Error(ErrorCode::kMemory, "the automaton grew too large");
    if (kind_ == Kind::kForcedFails && tokens_ == at_) throw std::out_of_range("at\n");
    if (kind_ == Kind::kForcedWrong && tokens_ == at_) return {15};
    return {};
  }
  bool ended() override { return false; }

 private:
  [[nodiscard]] bool is_stale() const { return kind_ == Kind::kStale && tokens_ == at_; }
  Kind kind_;
  std::size_t at_, tokens_ = 0;
  std::uint32_t word_ = 0;
};

}  // namespace

TEST_CASE("a constraint that fails, allows nothing or contradicts itself ends its request in one line, and no other") {
  using Kind = BrokenConstraint::Kind;
  const std::vector<std::pair<Kind, std::string>> kinds = {
      {Kind::kStale, "error[internal]: the constraint refuses a token that its mask allows"},
      {Kind::kEmpty, "error[internal]: the constraint allows no token"},
      {Kind::kMaskThrows, "error[memory]: the automaton grew too large"},
      {Kind::kAcceptThrows, "error[memory]: the automaton grew too large"},
      {Kind::kForcedThrows, "error[memory]: the automaton grew too large"},
      {Kind::kForcedFails, "error[internal]: forced tokens: at\\x0a"},
      {Kind::kForcedWrong, "error[internal]: the constraint refuses a token that its mask allows"}};
  for (const bool chooses : {false, true})
    for (const auto& [kind, line] : kinds) {
      FakeShape shape;
      shape.chooses = chooses;
      ConstraintBench bench(shape);
      const auto broken = bench.submit({.prompt = kAsked, .max_tokens = 9, .constraint = [kind = kind] {
                                          return std::make_unique<BrokenConstraint>(kind, 3);
                                        }});
      const auto good = bench.submit({.prompt = kAsked, .max_tokens = 9, .constraint = made_of({})});
      const auto free = bench.submit({.prompt = kAsked, .max_tokens = 9});
      bench.run();
      const auto heard = hear(*broken);
      CHECK((heard.error == line && heard.finish[0] == FinishReason::kError));
      CHECK(heard.tokens[0].size() >= 3);
      CHECK(hear(*good).tokens == std::vector<Tokens>{reference(bench.executor, kAsked, {}, {}, 9)});
      CHECK(hear(*free).tokens == std::vector<Tokens>{bench.executor.alone(kAsked, {}, 9)});
      CHECK(bench.core.health() == Health::kHealthy);
    }
}

TEST_CASE("a constraint that cannot be made refuses its request") {
  ConstraintBench bench;
  const auto prepared =
      bench.core.prepare({.prompt = kAsked, .max_tokens = 2, .constraint = []() -> decltype(made_of({})()) {
                            throw Error(ErrorCode::kUsage, "no text is allowed");
                          }});
  REQUIRE(!prepared.has_value());
  CHECK(prepared.error().message == "error[usage]: no text is allowed");
  const auto failed = bench.core.prepare(
      {.prompt = kAsked, .max_tokens = 2, .constraint = []() -> decltype(made_of({})()) { throw std::bad_alloc(); }});
  REQUIRE(!failed.has_value());
  CHECK((failed.error().kind == RefusalKind::kInternal && !failed.error().recoverable()));
}

TEST_CASE("a request can end while its mask is being computed") {
  for (const bool chooses : {false, true}) {
    FakeShape shape;
    shape.chooses = chooses;
    ConstraintBench bench(shape);
    for (RequestId id = 1; id < 30; ++id) {
      const auto stream = bench.submit({.prompt = kAsked, .max_tokens = 9, .constraint = made_of({.forces = true})});
      const auto other = bench.submit({.prompt = kAsked, .max_tokens = 9, .constraint = made_of({})});
      bench.executor.in_step = [&, left = static_cast<int>(id % 7)]() mutable {
        if (left-- == 0) bench.core.end(2 * id - 1, FinishReason::kCancelled);
      };
      bench.run();
      bench.executor.in_step = nullptr;
      CHECK(stream->finished());
      CHECK(hear(*other).tokens == std::vector<Tokens>{reference(bench.executor, kAsked, {}, {}, 9)});
    }
  }
}

}  // namespace forge::engine

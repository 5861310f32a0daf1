// The sampler: known answers of the random generator, each filter by hand, all filters against a straightforward
// reference, seeds that continue, no allocations, and parameter checks.
#include "runtime/sampler.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>
#include <limits>
#include <numeric>
#include <random>
#include <set>

#include "runtime/philox.h"
#include "support/error.h"
#include "tests/runtime/allocation_counter.h"

namespace forge {
namespace {

using runtime::Sampler;
using runtime::SamplerParams;
using runtime::SamplerScratch;

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

std::vector<float> random_logits(std::mt19937& random, std::size_t vocab, float spread) {
  std::normal_distribution<float> normal(0, spread);
  std::vector<float> logits(vocab);
  for (float& logit : logits) logit = normal(random);
  return logits;
}

/// How often each token comes in `draws` draws.
std::vector<int> histogram(const SamplerParams& params, const std::vector<float>& logits, int draws) {
  SamplerScratch scratch(logits.size());
  Sampler sampler(logits.size(), params);
  std::vector<int> hits(logits.size());
  for (int i = 0; i < draws; ++i) ++hits.at(static_cast<std::size_t>(sampler.sample(logits, scratch)));
  return hits;
}

std::set<int> survivors(const SamplerParams& params, const std::vector<float>& logits) {
  const auto hits = histogram(params, logits, 4000);
  std::set<int> alive;
  for (std::size_t i = 0; i < hits.size(); ++i)
    if (hits[i] > 0) alive.insert(static_cast<int>(i));
  return alive;
}

int greedy(const SamplerParams& params, const std::vector<float>& logits, const std::vector<int>& history = {}) {
  SamplerScratch scratch(logits.size());
  Sampler sampler(logits.size(), params);
  for (const int token : history) sampler.accept(token);
  return sampler.sample(logits, scratch);
}

TEST_CASE("the generator is Philox4x32-10") {  // known answers of the Random123 distribution
  CHECK(runtime::philox4x32({0, 0, 0, 0}, {0, 0}) ==
        runtime::PhiloxBlock{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8});
  CHECK(runtime::philox4x32({~0U, ~0U, ~0U, ~0U}, {~0U, ~0U}) ==
        runtime::PhiloxBlock{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd});
  CHECK(runtime::philox4x32({0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}, {0xa4093822, 0x299f31d0}) ==
        runtime::PhiloxBlock{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1});
}

TEST_CASE("greedy takes the largest logit and the lowest id among equals, with NaN and infinities present") {
  CHECK(greedy({}, {1, 5, 3, 5}) == 1);
  CHECK(greedy({}, {kNan, -2, -1, kNan}) == 2);
  CHECK(greedy({}, {-kInfinity, -3, kInfinity, 4}) == 2);
  CHECK(greedy({}, {kNan, -kInfinity}) == Sampler::kNoToken);
  SamplerParams warm;
  warm.temperature = 1;
  CHECK(greedy(warm, {kNan, -kInfinity}) == Sampler::kNoToken);
  CHECK(greedy(warm, {-kInfinity, kNan, 1, -kInfinity}) == 2);
  CHECK(greedy(warm, {0, kInfinity, 1e38F, -3e38F}) == 1);
  warm.temperature = 1e-38F;
  CHECK(greedy(warm, {0, 2, 1.999F}) == 1);
}

TEST_CASE("draws follow the softmax at every temperature") {
  const std::vector<float> logits{0.5F, 2, -1, 1, 0, -30};
  for (const float temperature : {0.5F, 1.0F, 2.0F}) {
    SamplerParams params;
    params.temperature = temperature;
    params.seed = 11;
    constexpr int kDraws = 100'000;
    const auto hits = histogram(params, logits, kDraws);
    std::vector<double> expected;
    for (const float logit : logits) expected.push_back(std::exp(static_cast<double>(logit / temperature)));
    const double total = std::accumulate(expected.begin(), expected.end(), 0.0);
    for (std::size_t i = 0; i < logits.size(); ++i) {
      const double p = expected[i] / total;
      INFO("temperature " << temperature << ", token " << i);
      CHECK(std::abs(hits[i] - kDraws * p) <= 4.5 * std::sqrt(kDraws * p * (1 - p)) + 0.5);
    }
  }
}

TEST_CASE("each filter keeps the tokens that its definition names") {
  const auto with = [](auto member, auto value) {
    SamplerParams params;
    params.temperature = 1;
    params.*member = value;
    return params;
  };
  // Probabilities 0.5, 0.25, 0.125, 0.0625, 0.0625.
  const std::vector<float> halves{std::log(4.0F), std::log(8.0F), std::log(2.0F), 0, 0};
  CHECK(survivors(with(&SamplerParams::top_k, 2), halves) == std::set{0, 1});
  CHECK(survivors(with(&SamplerParams::top_k, 4), halves) == std::set{0, 1, 2, 3});  // of equal tokens the lower id
  CHECK(survivors(with(&SamplerParams::top_k, 99), halves).size() == 5);
  CHECK(survivors(with(&SamplerParams::top_p, 0.4F), halves) == std::set{1});
  CHECK(survivors(with(&SamplerParams::top_p, 0.6F), halves) == std::set{0, 1});
  CHECK(survivors(with(&SamplerParams::top_p, 0.9F), halves) == std::set{0, 1, 2, 3});
  CHECK(survivors(with(&SamplerParams::top_p, 0.0F), halves) == std::set{1});
  CHECK(survivors(with(&SamplerParams::min_p, 0.4F), halves) == std::set{0, 1});
  CHECK(survivors(with(&SamplerParams::min_p, 1.0F), halves) == std::set{1});
  // Entropy 1.875 bits. Surprisals of 1, 2, 3, 4, 4 bits have distances 0.875, 0.125, 1.125, 2.125, 2.125 from it.
  CHECK(survivors(with(&SamplerParams::typical_p, 0.2F), halves) == std::set{0});
  CHECK(survivors(with(&SamplerParams::typical_p, 0.7F), halves) == std::set{0, 1});
  CHECK(survivors(with(&SamplerParams::typical_p, 0.8F), halves) == std::set{0, 1, 2});
}

TEST_CASE("a low temperature among improbable tokens does not underflow") {
  std::vector<float> logits(1001, 0.0F);
  logits[1000] = std::log(430.0F);  // p = 0.3, far from typical
  SamplerParams params;
  params.temperature = 0.05F;
  params.typical_p = 0.6F;
  const auto alive = survivors(params, logits);
  CHECK(alive.size() > 700);
  CHECK_FALSE(alive.contains(1000));
}

TEST_CASE("bias, penalties and mask change the choice as documented") {
  const std::vector<float> logits{3, 2.5F, 2, -1};
  SamplerParams params;
  params.logit_bias = {{2, 1.5F}, {0, -kInfinity}};
  CHECK(greedy(params, logits) == 2);

  params = {};
  params.repeat_penalty = 1.3F;
  CHECK(greedy(params, logits, {0}) == 1);  // 3 / 1.3 = 2.31
  CHECK(greedy(params, {-1, -1.2F}, {0}) == 1);
  params = {};
  params.frequency_penalty = 0.3F;
  CHECK(greedy(params, logits, {0}) == 0);
  CHECK(greedy(params, logits, {0, 0}) == 1);
  params = {};
  params.presence_penalty = 0.6F;
  CHECK(greedy(params, logits, {0, 0, 0}) == 1);
  CHECK(greedy(params, logits, {0, 1}) == 0);
  params.penalty_window = 2;
  CHECK(greedy(params, logits, {0, 3, 3}) == 0);  // token 0 has left the window
  CHECK(greedy(params, logits, {3, 3, 3, 0, 3}) == 1);
  params.penalty_window = 0;
  CHECK(greedy(params, logits, {0, 0}) == 0);
  params.penalty_window = 4;
  params.frequency_penalty = -3e38F;  // infinities of both signs must not make a forbidden token possible
  params.logit_bias = {{3, -kInfinity}};
  CHECK(greedy(params, logits, {3, 3, 3}) == 0);

  SamplerScratch scratch(70);
  Sampler sampler(70, {});
  std::vector<float> wide(70);
  std::iota(wide.begin(), wide.end(), 0.0F);
  std::vector<std::uint32_t> allowed{~0U, 1U << 8, 0};
  CHECK(sampler.sample(wide, scratch, allowed) == 40);
  allowed[1] = 0;
  CHECK(sampler.sample(wide, scratch, allowed) == 31);
  CHECK(sampler.sample(wide, scratch, std::vector<std::uint32_t>(3)) == Sampler::kNoToken);
  CHECK_THROWS_AS(sampler.sample(wide, scratch, std::vector<std::uint32_t>(2)), Error);
}

/// The documented order of filters, implemented with full sorts. Returns ids and final probabilities.
std::vector<std::pair<int, double>> reference(const SamplerParams& params, const std::vector<float>& logits) {
  struct Token {
    int id;
    double logit, p;
  };
  std::vector<Token> tokens;
  for (std::size_t i = 0; i < logits.size(); ++i)
    tokens.push_back({static_cast<int>(i), static_cast<double>(logits[i]), 0});
  const auto softmax = [&](double temperature) {
    double top = -1e300, total = 0;
    for (const Token& token : tokens) top = std::max(top, token.logit);
    for (Token& token : tokens) total += token.p = std::exp((token.logit - top) / temperature);
    for (Token& token : tokens) token.p /= total;
  };
  const auto by_logit = [](const Token& a, const Token& b) {
    return a.logit != b.logit ? a.logit > b.logit : a.id < b.id;
  };
  const auto keep_mass = [&](double mass) {
    double reached = 0;
    std::size_t n = 0;
    while (n < tokens.size() && (n == 0 || reached < mass)) reached += tokens[n++].p;
    tokens.resize(n);
  };
  std::sort(tokens.begin(), tokens.end(), by_logit);
  if (params.top_k > 0) tokens.resize(std::min(tokens.size(), static_cast<std::size_t>(params.top_k)));
  if (params.typical_p < 1) {
    softmax(1);
    double entropy = 0;
    for (const Token& token : tokens) entropy -= token.p > 0 ? token.p * std::log(token.p) : 0;
    std::stable_sort(tokens.begin(), tokens.end(), [&](const Token& a, const Token& b) {
      return std::abs(-std::log(a.p) - entropy) < std::abs(-std::log(b.p) - entropy);
    });
    keep_mass(static_cast<double>(params.typical_p));
    std::sort(tokens.begin(), tokens.end(), by_logit);
  }
  softmax(1);
  if (params.top_p < 1) keep_mass(static_cast<double>(params.top_p));
  softmax(1);
  if (params.min_p > 0) {
    const double floor = tokens[0].p * static_cast<double>(params.min_p);
    std::erase_if(tokens, [&](const Token& token) { return token.p < floor; });
  }
  softmax(static_cast<double>(params.temperature));
  std::sort(tokens.begin(), tokens.end(), [](const Token& a, const Token& b) { return a.id < b.id; });
  std::vector<std::pair<int, double>> out;
  for (const Token& token : tokens) out.emplace_back(token.id, token.p);
  return out;
}

TEST_CASE("every combination of filters draws what the sorting reference draws") {
  std::mt19937 random(5);
  int draws = 0, same = 0;
  for (const std::size_t vocab : {1, 2, 17, 300, 5000})
    for (int round = 0; round < 120; ++round) {
      const auto logits = random_logits(random, vocab, round % 3 == 0 ? 0.3F : 4.0F);
      SamplerParams params;
      params.temperature = 0.3F + 0.1F * static_cast<float>(random() % 15);
      if (random() % 2) params.top_k = static_cast<int>(1 + random() % 200);
      if (random() % 2) params.top_p = static_cast<float>(random() % 1000) / 1000;
      if (random() % 2) params.min_p = static_cast<float>(random() % 1000) / 3000;
      if (random() % 3 == 0) params.typical_p = static_cast<float>(random() % 1000) / 1000;
      params.seed = random();
      const auto expected = reference(params, logits);
      SamplerScratch scratch(vocab);
      Sampler sampler(vocab, params);
      for (std::uint64_t i = 0; i < 10; ++i, ++draws) {
        double goal = runtime::philox_uniform(params.seed, i);
        std::size_t at = 0;
        for (; at + 1 < expected.size() && goal >= expected[at].second; ++at) goal -= expected[at].second;
        same += sampler.sample(logits, scratch) == expected[at].first ? 1 : 0;
      }
    }
  INFO(draws - same << " of " << draws << " differ");
  CHECK(draws - same <= 3);  // float and double rounding may put a draw at a border on different sides
}

TEST_CASE("a seed gives the same tokens, and a sequence of draws can be resumed") {
  std::mt19937 random(6);
  const auto logits = random_logits(random, 1000, 2);
  SamplerParams params;
  params.temperature = 0.9F;
  params.top_k = 100;
  params.seed = 1234567890123;
  SamplerScratch scratch(1000), other_scratch(1000);
  Sampler first(1000, params), second(1000, params);
  std::vector<int> one, two;
  for (int i = 0; i < 50; ++i) one.push_back(first.sample(logits, scratch));
  second.set_draws(25);
  for (int i = 25; i < 50; ++i) two.push_back(second.sample(logits, other_scratch));
  CHECK(std::equal(two.begin(), two.end(), one.begin() + 25));
  ++params.seed;
  Sampler third(1000, params);
  std::vector<int> three;
  for (int i = 0; i < 50; ++i) three.push_back(third.sample(logits, scratch));
  CHECK(three != one);
}

TEST_CASE("sampling and accepting allocate nothing") {
  std::mt19937 random(7);
  const auto logits = random_logits(random, 20'000, 3);
  SamplerParams params;
  params.temperature = 0.8F;
  params.typical_p = 0.95F;
  params.top_p = 0.9F;
  params.min_p = 0.01F;
  params.repeat_penalty = 1.1F;
  params.logit_bias = {{5, 2}};
  SamplerParams top_k = params;
  top_k.top_k = 40;
  SamplerScratch scratch(20'000);
  Sampler a(20'000, params), b(20'000, top_k), c(20'000, {});
  const std::vector<std::uint32_t> allowed(625, 0xFFFFFFFE);
  const auto before = test::allocations();
  for (int i = 0; i < 200; ++i)
    for (Sampler* sampler : {&a, &b, &c}) sampler->accept(sampler->sample(logits, scratch, allowed));
  CHECK(test::allocations() == before);
}

TEST_CASE("parameters out of range are refused by name") {
  const auto refused = [](auto member, auto value) {
    SamplerParams params;
    params.*member = value;
    try {
      const Sampler sampler(10, params);
    } catch (const Error& error) {
      return error.line();
    }
    return std::string();
  };
  CHECK_THAT(refused(&SamplerParams::temperature, -1.0F), Catch::Contains("temperature cannot be -1"));
  CHECK_THAT(refused(&SamplerParams::temperature, kNan), Catch::Contains("temperature"));
  CHECK_THAT(refused(&SamplerParams::temperature, kInfinity), Catch::Contains("temperature"));
  CHECK_THAT(refused(&SamplerParams::top_k, -3), Catch::Contains("top_k"));
  CHECK_THAT(refused(&SamplerParams::top_p, 1.5F), Catch::Contains("top_p"));
  CHECK_THAT(refused(&SamplerParams::min_p, -0.5F), Catch::Contains("min_p"));
  CHECK_THAT(refused(&SamplerParams::typical_p, kNan), Catch::Contains("typical_p"));
  CHECK_THAT(refused(&SamplerParams::repeat_penalty, 0.0F), Catch::Contains("repeat_penalty"));
  CHECK_THAT(refused(&SamplerParams::penalty_window, SIZE_MAX), Catch::Contains("penalty_window"));
  using Bias = std::vector<runtime::LogitBias>;
  CHECK_THAT(refused(&SamplerParams::logit_bias, Bias{{10, 0}}), Catch::Contains("vocabulary"));
  CHECK_THAT(refused(&SamplerParams::logit_bias, Bias{{1, kNan}}), Catch::Contains("logit bias"));
  CHECK(refused(&SamplerParams::top_k, 0).empty());
}

}  // namespace
}  // namespace forge

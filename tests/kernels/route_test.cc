// The MoE router's arithmetic against values computed by hand: gates, ties, groups, a selection bias, NaN.

#include "kernels/cpu/route.h"

#include <catch2/catch.hpp>
#include <cmath>
#include <limits>
#include <vector>

using namespace forge::cpu;

namespace {

struct Routed {
  std::vector<std::int32_t> chosen;
  std::vector<float> shares;
};

Routed route(RouteParams params, const std::vector<float>& logits) {
  params.experts = logits.size();
  Routed out{std::vector<std::int32_t>(params.used), std::vector<float>(params.used)};
  route_token(params, logits.data(), out.chosen.data(), out.shares.data());
  return out;
}

using Experts = std::vector<std::int32_t>;

}  // namespace

TEST_CASE("route: softmax over all experts, softmax over the chosen ones, sigmoids") {
  const std::vector<float> logits{std::log(1.0F), std::log(4.0F), std::log(3.0F), std::log(2.0F)};
  const auto all = route({.used = 2}, logits);
  CHECK(all.chosen == Experts{1, 2});
  CHECK(all.shares[0] == Approx(0.4));
  CHECK(all.shares[1] == Approx(0.3));
  const auto chosen = route({.used = 2, .over_chosen = true, .scale = 2}, logits);
  CHECK(chosen.chosen == Experts{1, 2});
  CHECK(chosen.shares[0] == Approx(2 * 4 / 7.0));
  CHECK(chosen.shares[1] == Approx(2 * 3 / 7.0));
  const auto sigmoid = route({.used = 2, .sigmoid = true}, logits);
  CHECK(sigmoid.shares[0] == Approx(4 / 5.0));
  CHECK(sigmoid.shares[1] == Approx(3 / 4.0));
}

TEST_CASE("route: factors multiply the shares of the chosen experts, after normalisation") {
  const std::vector<float> logits{std::log(1.0F), std::log(4.0F), std::log(3.0F), std::log(2.0F)};
  const float factors[] = {100, 0.5F, 3, 100};
  const auto routed = route({.used = 2, .over_chosen = true, .scale = 2, .factors = factors}, logits);
  CHECK(routed.chosen == Experts{1, 2});
  CHECK(routed.shares[0] == Approx(0.5 * 2 * 4 / 7.0));
  CHECK(routed.shares[1] == Approx(3 * 2 * 3 / 7.0));
}

TEST_CASE("route: equal experts are chosen by number, and all of them when all are used") {
  CHECK(route({.used = 3}, {0, 1, 1, 1, 0}).chosen == Experts{1, 2, 3});
  CHECK(route({.used = 5}, {0, 1, 1, 1, 0}).chosen == Experts{1, 2, 3, 0, 4});
}

TEST_CASE("route: a bias changes the choice but not the shares") {
  const std::vector<float> bias{1, 0, 0, 0.5F};
  const auto routed = route({.used = 2, .sigmoid = true, .bias = bias.data()}, {-2, 2, 0, 0});
  CHECK(routed.chosen == Experts{0, 3});
  CHECK(routed.shares[0] == Approx(1 / (1 + std::exp(2.0))));
  CHECK(routed.shares[1] == Approx(0.5));
}

TEST_CASE("route: group-limited routing ranks groups by the sum of their best members") {
  // Sums of the best two per group: 0.9 + 0.1, 0.6 + 0.5, 0.4 + 0.4. By the best one alone, the first group wins.
  const std::vector<float> ranks{0.9F, 0.1F, 0.6F, 0.5F, 0.4F, 0.4F}, zero(6, -40.0F);
  const auto with = [&](std::size_t top, std::size_t groups_used, std::size_t used) {
    return route({.used = used,
                  .groups = 3,
                  .groups_used = groups_used,
                  .group_top = top,
                  .sigmoid = true,
                  .bias = ranks.data()},
                 zero)
        .chosen;
  };
  CHECK(with(2, 1, 2) == Experts{2, 3});
  CHECK(with(1, 1, 2) == Experts{0, 1});
  CHECK(with(2, 2, 3) == Experts{0, 2, 3});
  CHECK(with(2, 3, 3) == Experts{0, 2, 3});
}

TEST_CASE("route: adjugate experts are those of the chosen ones, with the gates of their own numbers") {
  const std::vector<float> logits{std::log(1.0F), std::log(4.0F), std::log(3.0F), std::log(2.0F)};
  const auto pairs = route({.used = 2, .experts_per_adjugate = 2, .over_chosen = true}, logits);
  CHECK(pairs.chosen == Experts{0, 1});
  CHECK(pairs.shares[0] == Approx(0.2));
  CHECK(pairs.shares[1] == Approx(0.8));
  CHECK(route({.used = 3, .experts_per_adjugate = 2}, logits).chosen == Experts{0, 1, 1});  // one may come twice
}

TEST_CASE("route: sigmoids that are equal in f32 are ranked by their logits") {
  CHECK(route({.used = 2, .sigmoid = true}, {20, 22, 21, 0}).chosen == Experts{1, 2});
}

TEST_CASE("route: for any logits the expert numbers are valid and distinct") {
  constexpr float kNan = std::numeric_limits<float>::quiet_NaN(), kInf = std::numeric_limits<float>::infinity();
  for (const auto& logits : std::vector<std::vector<float>>{
           {kNan, 1, 2, kNan}, {kNan, kNan, kNan, kNan}, {kInf, 1, kInf, -kInf}, {-kInf, -kInf, -kInf, -kInf}})
    for (const bool sigmoid : {false, true})
      for (const std::size_t groups : {1, 2}) {
        const auto routed =
            route({.used = 3, .groups = groups, .groups_used = groups, .group_top = 1, .sigmoid = sigmoid}, logits);
        std::vector<bool> seen(4);
        for (const auto expert : routed.chosen) {
          REQUIRE(static_cast<std::size_t>(expert) < 4);
          CHECK(!seen[static_cast<std::size_t>(expert)]);
          seen[static_cast<std::size_t>(expert)] = true;
        }
      }
  CHECK(route({.used = 2, .sigmoid = true}, {kNan, 1, 2, kNan}).chosen == Experts{2, 1});
  // Sigmoids that underflow: the divisor has a lower bound, so shares stay small.
  CHECK(route({.used = 2, .sigmoid = true, .over_chosen = true}, {-40, -40, -50, -60}).shares[0] < 1e-12F);
}

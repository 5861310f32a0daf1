// The interpreter's ops for experts (MoE) and for one weight per head (MLA), compared with numbers computed by hand.

#include <cmath>

#include "by_hand.h"

using namespace forge;
using namespace forge::ir;
using namespace forge::ir::test;

TEST_CASE("experts, by hand") {
  // Two tokens; softmax logits of four experts.
  const auto logits = [](Builder& b) {
    return b.constant({std::log(1.0F), std::log(4.0F), std::log(3.0F), std::log(2.0F), 0, 0, 0, 5}, {2, 4});
  };
  const auto shares = [&](const RouteAttrs& attrs, Floats bias = {}, Floats factors = {}) {
    return run([&](Builder& b) {
      const auto vector = [&](const Floats& values) { return values.empty() ? Value{} : b.constant(values, {4}); };
      return b.route(logits(b), attrs, vector(bias), vector(factors)).shares;
    });
  };
  const float top = std::exp(5.0F) / (std::exp(5.0F) + 3), low = 1 / (std::exp(5.0F) + 3);
  check_near(shares({.used = 2}), {0.4F, 0.3F, top, low});
  check_near(shares({.used = 2, .share = RoutingNormalization::kChosen, .scale = 3}),
             {3 * 4 / 7.0F, 3 * 3 / 7.0F, 3 * top / (top + low), 3 * low / (top + low)});
  check_near(shares({.used = 1, .gate = RouteGate::kSigmoid}), {0.8F, 0.9933072F});
  check_near(shares({.used = 1}, {1, 0, 0, 0}), {0.1F, low});
  check_near(shares({.used = 1, .groups = 2, .groups_used = 1, .group_top = 2}, {0, 0.1F, 0, 0}), {0.4F, top});
  check_near(shares({.used = 1, .groups = 2, .groups_used = 1, .group_top = 2}, {0, 0, 0.2F, 0}), {0.3F, top});
  // Adjugate experts, each for two: the best experts 1 and 2 stand for 0 and 1, and 3 and 0 for 1 and 0.
  const RouteAttrs adjugate{.used = 2, .share = RoutingNormalization::kChosen, .experts_per_adjugate = 2};
  check_near(shares(adjugate), {0.2F, 0.8F, 0.5F, 0.5F});
  const auto numbers = run([&](Builder& b) {  // row e of the weight is e, so the products are the chosen numbers
    const auto chosen = b.route(logits(b), adjugate).experts;
    return b.expert_matmul(b.constant({1, 1}, {2, 1}), b.constant({0, 1}, {2, 1, 1}), chosen);
  });
  check_near(numbers, {0, 1, 1, 0});
  check_near(
      shares({.used = 2, .share = RoutingNormalization::kChosen}, {}, {10, 2, 3, 0.5F}),  // no effect on the choice
      {2 * 4 / 7.0F, 3 * 3 / 7.0F, 0.5F * top / (top + low), 10 * low / (top + low)});

  // Token 0 is routed to experts 1 and 2, token 1 to experts 3 and 0; weights [4 experts, 1, 2].
  const auto sum = [&](bool each_its_own, bool biased, bool scaled = false) {
    return run([&](Builder& b) {
      const auto [chosen, share] = b.route(logits(b), {.used = 2});
      const Value weight = b.constant({1, 0, 0, 1, 1, 1, 2, 2}, {4, 1, 2});
      const Value x = each_its_own ? b.constant({1, 2, 3, 4, 5, 6, 7, 8}, {2, 2, 2}) : b.constant({1, 2, 3, 4}, {2, 2});
      Value y = b.expert_matmul(x, weight, chosen);
      if (scaled) y = b.expert_scale(y, b.constant({1, 10, 100, 1000}, {4}), chosen);
      if (biased) y = b.expert_add(y, b.constant({10, 20, 30, 40}, {4, 1, 1}), chosen);
      return b.expert_sum(y, share);
    });
  };
  check_near(sum(false, false), {0.4F * 2 + 0.3F * 3, top * 14 + low * 3}, 1e-5);
  check_near(sum(true, false), {0.4F * 2 + 0.3F * 7, top * 22 + low * 7}, 1e-5);
  check_near(sum(false, true), {0.4F * 22 + 0.3F * 33, top * 54 + low * 13}, 1e-5);
  check_near(sum(false, false, true), {0.4F * 20 + 0.3F * 300, top * 14000 + low * 3}, 1e-3);
  const auto scaled = run([&](Builder& b) {
    const Value x = b.constant({1, 2, 3, 4}, {2, 2, 1});
    return Value{b.graph().add(Op::kInvRmsScale, {x, b.constant({4, 16}, {2, 1})}, NormAttrs{0, 4}), 0};
  });
  check_near(scaled, {1, 2, 1.5F, 2});  // both rows of a token are scaled by its own sum of squares
  const auto weight = run([](Builder& b) {
    const Value p = b.constant({1, 2, 3, 4}, {2, 2, 1}), q = b.constant({5, 6, 7, 8}, {2, 2, 1});
    return Value{b.graph().add(Op::kConcatRows, {p, q}, PartsAttrs{{2, 2}, 1}), 0};
  });
  check_near(weight, {1, 5, 2, 6, 3, 7, 4, 8});  // gate and up rows of each expert alternate
}

TEST_CASE("batched matmuls, by hand") {
  const auto out = run([](Builder& b) {  // two rows of two tokens with two weights [3, 2]
    const Value x = b.constant({1, 2, 3, 4, 5, 6, 7, 8}, {2, 2, 2});
    return b.batched_matmul(x, b.constant({1, 0, 0, 1, 1, 1, 2, 0, 0, 2, 1, -1}, {2, 3, 2}));
  });
  check_near(out, {1, 2, 3, 6, 8, -1, 5, 6, 11, 14, 16, -1});
}

TEST_CASE("arranged columns, by hand") {
  const auto out = run([](Builder& b) {
    const Value x = b.constant({1, 2, 3, 4, 5, 6, 7, 8}, {2, 4}), y = b.constant({10, 20, 30, 40}, {2, 2, 1});
    const Builder::Piece pieces[] = {{x, 1, 2, 1}, {{}, 0, 0, 1}, {y, 0, 1, 1}, {x, 0, 0, 1}};
    return b.arrange(2, pieces);
  });
  check_near(out, {2, 0, 10, 1, 4, 0, 20, 1, 6, 0, 30, 5, 8, 0, 40, 5});
}

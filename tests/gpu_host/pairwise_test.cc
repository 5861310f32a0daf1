// Pairwise selection is small, contains only valid choices, and misses no pair that a valid choice has.

#include <catch2/catch.hpp>

#include "tests/gpu_host/pairwise.h"

using namespace forge::gpu_host;

TEST_CASE("pairwise selection covers every pair of a valid choice with far fewer choices") {
  const Choice<5> sizes{6, 4, 5, 3, 2};
  const auto valid = [](const Choice<5>& at) { return at[0] != 2 || at[1] == 3; };
  const auto all = full_cross(sizes, valid), some = pairwise(sizes, valid);
  CHECK(all.size() == 5 * 4 * 30 + 30);
  CHECK(some.size() < 50);
  for (const auto& choice : some) REQUIRE(valid(choice));
  for (const auto& choice : all)
    for (int a = 0; a < 5; ++a)
      for (int b = a + 1; b < 5; ++b)
        REQUIRE(std::any_of(some.begin(), some.end(),
                            [&](const auto& other) { return other[a] == choice[a] && other[b] == choice[b]; }));
}

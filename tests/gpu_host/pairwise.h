#pragma once
// Pairwise testing: selects so many cases of a cross product that each value of one factor meets each value of every
// other factor, or all cases in the nightly run (FORGE_TEST_CROSS=full).

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdlib>
#include <functional>
#include <random>
#include <string_view>
#include <vector>

namespace forge::gpu_host {

template <std::size_t N>
using Choice = std::array<int, N>;  ///< index of the chosen value, per factor

/// All choices for which `valid` holds. sizes: the number of values of each factor.
template <std::size_t N, class Valid>
std::vector<Choice<N>> full_cross(const Choice<N>& sizes, Valid&& valid) {
  std::vector<Choice<N>> out;
  Choice<N> at{};
  for (;;) {
    if (valid(at)) out.push_back(at);
    std::size_t factor = 0;
    while (factor < N && ++at[factor] == sizes[factor]) at[factor++] = 0;
    if (factor == N) return out;
  }
}

/// A small set of valid choices that contains every pair of values of two factors that occurs in any valid choice.
/// Greedy: repeatedly takes the choice with the most pairs not covered yet.
template <std::size_t N, class Valid>
std::vector<Choice<N>> pairwise(const Choice<N>& sizes, Valid&& valid) {
  Choice<N> first{};  // index of each factor's first value among all values
  for (std::size_t factor = 1; factor < N; ++factor) first[factor] = first[factor - 1] + sizes[factor - 1];
  const auto values = static_cast<std::size_t>(first[N - 1] + sizes[N - 1]);
  std::vector<char> open(values * values);
  const auto each_pair = [&](const Choice<N>& choice, auto&& visit) {
    for (std::size_t a = 0; a < N; ++a)
      for (std::size_t b = a + 1; b < N; ++b) visit(open[(first[a] + choice[a]) * values + first[b] + choice[b]]);
  };
  const auto all = full_cross(sizes, valid);
  for (const auto& choice : all) each_pair(choice, [](char& pair) { pair = 1; });
  std::vector<Choice<N>> out;
  std::mt19937 engine(1);
  for (;;) {
    const Choice<N>* best = nullptr;
    int best_gain = 0;
    // A random start, so that ties are broken differently each time.
    const std::size_t start = engine() % std::max<std::size_t>(all.size(), 1);
    for (std::size_t i = 0; i < all.size(); ++i) {
      const auto& choice = all[(start + i) % all.size()];
      int gain = 0;
      each_pair(choice, [&](const char& pair) { gain += pair; });
      if (gain <= best_gain) continue;
      best = &choice;
      best_gain = gain;
    }
    if (best == nullptr) return out;
    out.push_back(*best);
    each_pair(*best, [](char& pair) { pair = 0; });
  }
}

/// True in the nightly run.
inline bool takes_all_cases() {
  const char* cross = std::getenv("FORGE_TEST_CROSS");
  return cross != nullptr && std::string_view(cross) == "full";
}

/// The cases of this run.
template <std::size_t N, class Valid>
std::vector<Choice<N>> cases_of(const Choice<N>& sizes, Valid&& valid) {
  return takes_all_cases() ? full_cross(sizes, valid) : pairwise(sizes, valid);
}

}  // namespace forge::gpu_host

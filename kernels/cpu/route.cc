#include "kernels/cpu/route.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>

namespace forge::cpu {
namespace {

constexpr float kWorst = -std::numeric_limits<float>::infinity();
constexpr float kRoutingSumMin = 6.103515625e-5F;  // smallest normal f16; keeps weights finite if all gates are 0

/// Marks the largest untaken rank as taken and returns its index, the first of equal ones. At least one must be left.
std::size_t take_best(const float* ranks, std::size_t count, bool* taken) {
  std::size_t best = count;
  for (std::size_t i = 0; i < count; ++i)
    if (!taken[i] && (best == count || ranks[i] > ranks[best])) best = i;
  taken[best] = true;
  return best;
}

/// Gate values of all experts: sigmoid, or softmax with the maximum subtracted.
void gate_values(const RouteParams& p, const float* logits, float* gate) {
  if (p.sigmoid) {
    for (std::size_t e = 0; e < p.experts; ++e) gate[e] = 1.0F / (1.0F + std::exp(-logits[e]));
    return;
  }
  const float top = *std::max_element(logits, logits + p.experts);
  float total = 0;
  for (std::size_t e = 0; e < p.experts; ++e) total += gate[e] = std::exp(logits[e] - top);
  for (std::size_t e = 0; e < p.experts; ++e) gate[e] /= total;
}

/// Group-limited routing: scores each group by the sum of its group_top best ranks and removes the experts of all but
/// the groups_used best groups from the ranking.
void keep_best_groups(const RouteParams& p, float* ranks) {
  const std::size_t group = p.experts / p.groups;
  float scores[kExpertsMax], members[kExpertsMax];
  bool kept[kExpertsMax] = {};
  for (std::size_t g = 0; g < p.groups; ++g) {
    std::copy_n(ranks + g * group, group, members);
    std::partial_sort(members, members + p.group_top, members + group, std::greater{});
    scores[g] = 0;
    for (std::size_t i = 0; i < p.group_top; ++i) scores[g] += members[i];
  }
  for (std::size_t n = 0; n < p.groups_used; ++n) take_best(scores, p.groups, kept);
  for (std::size_t g = 0; g < p.groups; ++g)
    if (!kept[g]) std::fill_n(ranks + g * group, group, kWorst);
}

}  // namespace

void route_token(const RouteParams& p, const float* logits, std::int32_t* chosen, float* shares) {
  float gate[kExpertsMax], ranks[kExpertsMax];
  bool taken[kExpertsMax] = {};
  gate_values(p, logits, gate);
  // Large logits have the same sigmoid in f32, so where nothing is added to gates the logits themselves are ranked.
  const float* order = p.sigmoid && p.bias == nullptr && p.groups == 1 ? logits : gate;
  for (std::size_t e = 0; e < p.experts; ++e) {
    ranks[e] = p.bias != nullptr ? gate[e] + p.bias[e] : order[e];
    if (std::isnan(ranks[e])) ranks[e] = kWorst;
  }
  if (p.groups > 1) keep_best_groups(p, ranks);
  float sum = 0;
  for (std::size_t u = 0; u < p.used; ++u) {
    const std::size_t best = take_best(ranks, p.experts, taken) / p.experts_per_adjugate;
    chosen[u] = static_cast<std::int32_t>(best);
    shares[u] = gate[best];
    sum += gate[best];
  }
  const float factor = p.over_chosen ? p.scale / std::max(sum, kRoutingSumMin) : p.scale;
  for (std::size_t u = 0; u < p.used; ++u)
    shares[u] *= p.factors == nullptr ? factor : factor * p.factors[static_cast<std::size_t>(chosen[u])];
}

}  // namespace forge::cpu

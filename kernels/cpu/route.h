#pragma once
// Choosing experts: what a router's logits say of one token. Scalar, and the same on every class of CPU.

#include <cstddef>
#include <cstdint>

namespace forge::cpu {

inline constexpr std::size_t kExpertsMax = 1024;

/// As ir::RouteAttrs; experts / groups is whole, used <= experts / groups * groups_used.
struct RouteParams {
  std::size_t experts = 0, used = 0;  ///< experts at most kExpertsMax
  std::size_t groups = 1, groups_used = 1, group_top = 1;
  bool sigmoid = false;      ///< the gate, else softmax
  bool over_chosen = false;  ///< shares add up to `scale` over the chosen experts, else they are the gate's values
  float scale = 1;
  const float* bias = nullptr;  ///< [experts], added to the gate's values for ranking only; nullable
};

/// logits [experts] -> chosen [used], best first, equal ones by number, and their shares [used]. What is NaN ranks
/// last; the numbers are valid whatever the logits are.
void route_token(const RouteParams& params, const float* logits, std::int32_t* chosen, float* shares);

}  // namespace forge::cpu

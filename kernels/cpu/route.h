#pragma once
// MoE routing: selects the experts of one token from the router's logits. Scalar code, so all CPU classes agree.

#include <cstddef>
#include <cstdint>

namespace forge::cpu {

/// The largest number of experts per layer.
inline constexpr std::size_t kExpertsMax = 1024;

/// Mirrors ir::RouteAttrs. With groups > 1 it is group-limited routing (DeepSeek-V3, arXiv 2412.19437, 2.1.2).
/// `experts` is a multiple of `groups`, and used <= experts / groups * groups_used.
struct RouteParams {
  std::size_t experts = 0, used = 0;  ///< all experts (at most kExpertsMax), and those that a token gets (top k)
  std::size_t groups = 1, groups_used = 1, group_top = 1;
  std::size_t experts_per_adjugate = 1;  ///< n > 1: expert e stands for e / n, with the gate of expert e / n
  bool sigmoid = false;                  ///< gate function: sigmoid, else softmax over all experts
  bool over_chosen = false;              ///< normalise the top-k weights to the sum `scale`; else they are gate * scale
  float scale = 1;
  const float* bias = nullptr;     ///< [experts], nullable: added to the gate values for the ranking only
  const float* factors = nullptr;  ///< [experts], nullable: multiply the weights of the selected experts, last
};

/// logits: [experts]. Writes the selected experts to chosen [used], best first and equal ones by number, and their
/// weights to shares [used]. NaN ranks last; the expert numbers are valid whatever the logits are.
void route_token(const RouteParams& params, const float* logits, std::int32_t* chosen, float* shares);

}  // namespace forge::cpu

#include "runtime/engine/logprobs.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace forge::engine {
namespace {

constexpr float kMinusInfinity = -std::numeric_limits<float>::infinity();

/// NaN counts as -infinity, +infinity as the largest float.
float comparable(float logit) {
  return std::isnan(logit) ? kMinusInfinity : std::min(logit, std::numeric_limits<float>::max());
}

}  // namespace

/// The maximum is subtracted before exp, so nothing overflows.
double log_sum_exp(std::span<const float> logits) {
  float top = kMinusInfinity;
  for (const float logit : logits) top = std::max(top, comparable(logit));
  if (!std::isfinite(top)) return static_cast<double>(top);
  double sum = 0;
  for (const float logit : logits) sum += std::exp(static_cast<double>(comparable(logit)) - static_cast<double>(top));
  return static_cast<double>(top) + std::log(sum);
}

float logprob_of(std::span<const float> logits, double log_sum, std::int32_t token) {
  return static_cast<float>(static_cast<double>(comparable(logits[static_cast<std::size_t>(token)])) - log_sum);
}

std::vector<TokenLogprob> top_tokens(std::span<const float> logits, double log_sum, std::size_t count) {
  std::vector<TokenLogprob> top;  // few entries, kept sorted by insertion
  top.reserve(count + 1);
  for (std::size_t id = 0; id < logits.size() && count > 0; ++id) {
    const float logit = comparable(logits[id]);
    if (top.size() == count && !(logit > top.back().logprob)) continue;
    const auto at = std::ranges::find_if(top, [&](const TokenLogprob& t) { return logit > t.logprob; });
    top.insert(at, {.token = static_cast<std::int32_t>(id), .logprob = logit});
    if (top.size() > count) top.pop_back();
  }
  for (auto& [token, logprob] : top) logprob = logprob_of(logits, log_sum, token);
  return top;
}

}  // namespace forge::engine

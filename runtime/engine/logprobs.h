#pragma once
// Log-probabilities from logits, added up in a fixed order.

#include <span>
#include <vector>

#include "runtime/engine/stream.h"

namespace forge::engine {

/// log(sum of exp(logits)); NaN counts as minus infinity. logits: [vocab].
[[nodiscard]] double log_sum_exp(std::span<const float> logits);
[[nodiscard]] float logprob_of(std::span<const float> logits, double log_sum, std::int32_t token);
/// The `count` likeliest tokens, the likeliest first, of equals the lower id.
[[nodiscard]] std::vector<TokenLogprob> likeliest_tokens(std::span<const float> logits, double log_sum,
                                                         std::size_t count);

}  // namespace forge::engine

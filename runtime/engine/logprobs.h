#pragma once
// Log probabilities computed from logits, for Request::logprobs. Sums have a fixed order.

#include <span>
#include <vector>

#include "runtime/engine/stream.h"

namespace forge::engine {

/// log(sum of exp(logits)), in double. NaN counts as -infinity. logits: [vocab].
[[nodiscard]] double log_sum_exp(std::span<const float> logits);
/// Log probability of one token, given log_sum_exp of the row.
[[nodiscard]] float logprob_of(std::span<const float> logits, double log_sum, std::int32_t token);
/// The `count` most likely tokens, most likely first; among equals the lower id.
[[nodiscard]] std::vector<TokenLogprob> top_tokens(std::span<const float> logits, double log_sum, std::size_t count);

}  // namespace forge::engine

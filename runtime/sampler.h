#pragma once
// From logits to a token. The order is fixed, and is llama.cpp's, so that settings found there mean the same here:
//
//   1. grammar mask       tokens that may not come
//   2. logit bias         added
//   3. penalties          of tokens in the window: repetition (divides a positive logit, multiplies a negative one;
//                         source: CTRL, arXiv 1909.05858), then frequency * count + presence are subtracted
//      temperature 0      the largest logit wins, the lowest id among equals; nothing below applies
//   4. top_k              the k largest
//   5. typical            smallest distance of -log p from the entropy, until their mass is typical_p (arXiv
//   2202.00666)
//   6. top_p              the largest, until their mass is top_p (nucleus, arXiv 1904.09751)
//   7. min_p              those with p >= min_p * p of the likeliest (arXiv 2407.01082)
//   8. temperature        p^(1/temperature) of what is left, and one draw
//
// Filters 4 to 7 look at the distribution at temperature 1, renormalised over what the one before left. Each leaves at
// least one token. Candidates keep the order of their ids throughout, so a draw depends on the seed, its number and the
// probabilities alone. Nothing is sorted: a cut is found by quickselect, in time linear in the vocabulary.

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace forge::runtime {

struct LogitBias {
  std::int32_t token = 0;
  float bias = 0;  ///< -infinity forbids the token
};

/// Neutral by default: greedy, no filters, no penalties.
struct SamplerParams {
  float temperature = 0;   ///< 0: greedy
  std::int32_t top_k = 0;  ///< 0: off
  float top_p = 1;         ///< 1: off
  float min_p = 0;         ///< 0: off
  float typical_p = 1;     ///< 1: off
  float repeat_penalty = 1;
  float frequency_penalty = 0;
  float presence_penalty = 0;
  std::size_t penalty_window = 64;  ///< last tokens the penalties look at
  std::uint64_t seed = 0;
  std::vector<LogitBias> logit_bias;
};

/// Memory for one draw at a time: one for each thread that samples, for any number of samplers.
class SamplerScratch {
 public:
  explicit SamplerScratch(std::size_t vocab);
  [[nodiscard]] std::size_t vocab() const { return values_.size(); }

 private:
  friend class Sampler;
  friend class Draw;
  std::vector<float> values_;         ///< [vocab] logits after mask, bias and penalties
  std::vector<std::uint32_t> count_;  ///< [vocab] zero between draws
  std::vector<std::int32_t> ids_;     ///< [vocab] candidates, rising
  std::vector<float> logits_;         ///< [vocab] theirs, minus the largest
  std::vector<float> weights_;        ///< [vocab] exp of those
  struct Item {
    float key = 0;
    float mass = 0;
    std::int32_t place = 0;
  };
  std::vector<Item> items_;  ///< [vocab] what a cut is looked for in
};

/// One request's choices: its parameters, the window of its last tokens, the number of its next draw.
class Sampler {
 public:
  static constexpr std::int32_t kNoToken = -1;

  /// Errors: Error(kUsage) naming the parameter that is out of range.
  Sampler(std::size_t vocab, SamplerParams params);

  [[nodiscard]] const SamplerParams& params() const { return params_; }

  /// Puts a token (of the prompt, or one that was sampled and kept) into the penalties' window.
  void accept(std::int32_t token);

  /// The next token. logits: [vocab]; NaN counts as minus infinity. allowed: empty, or one bit a token (bit t % 32 of
  /// word t / 32). kNoToken when nothing is allowed. Allocates nothing. `scratch` has the same vocabulary.
  [[nodiscard]] std::int32_t sample(std::span<const float> logits, SamplerScratch& scratch,
                                    std::span<const std::uint32_t> allowed = {});

  /// Draws made so far; with `set_draws` a request that was preempted goes on where it was.
  [[nodiscard]] std::uint64_t draws() const { return draws_; }
  void set_draws(std::uint64_t draws) { draws_ = draws; }

 private:
  void adjust(SamplerScratch& scratch, std::span<const std::uint32_t> allowed) const;

  std::size_t vocab_;
  SamplerParams params_;
  std::vector<std::int32_t> window_;  ///< a ring of the last tokens; capacity penalty_window
  std::size_t window_next_ = 0;
  std::uint64_t draws_ = 0;
};

}  // namespace forge::runtime

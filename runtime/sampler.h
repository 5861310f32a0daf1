#pragma once
// Turns a row of logits into a token. The steps and their order are llama.cpp's, so settings found there mean the same
// here:
//
//   1. grammar mask       removes forbidden tokens
//   2. logit bias         is added
//   3. penalties          for tokens in the penalty window: the repetition penalty divides a positive logit
//                         and multiplies a negative one (CTRL, arXiv 1909.05858), then frequency * count + presence
//                         is subtracted
//      temperature 0      greedy: the largest logit wins, the lowest id among equals; nothing below applies
//   4. top_k              keeps the k largest
//   5. typical            keeps the tokens whose -log p is closest to the entropy, until their mass is typical_p
//                         (arXiv 2202.00666)
//   6. top_p              keeps the largest, until their mass is top_p (nucleus sampling, arXiv 1904.09751)
//   7. min_p              keeps those with p >= min_p * (largest p) (arXiv 2407.01082)
//   8. temperature        p^(1/temperature) of the remaining tokens, then one random draw
//
// Filters 4 to 7 work on the distribution at temperature 1, renormalised over the tokens that the previous filter kept.
// Each keeps at least one token.
//
// Determinism: candidates stay in the order of their ids throughout, sums have a fixed order, exp() is our own (no
// libm) and draws are counter-based (philox.h). The token depends on the logits, the parameters, the seed and the draw
// number alone, on every machine.
//
// Cost: linear in the vocabulary. Nothing is sorted; each cut is found by quickselect.

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace forge::runtime {

/// One entry of SamplerParams::logit_bias.
struct LogitBias {
  std::int32_t token = 0;
  float bias = 0;  ///< -infinity forbids the token
};

/// Sampling parameters of a request. The defaults are neutral: greedy, no filters, no penalties.
struct SamplerParams {
  float temperature = 0;   ///< 0: greedy
  std::int32_t top_k = 0;  ///< 0: off
  float top_p = 1;         ///< 1: off
  float min_p = 0;         ///< 0: off
  float typical_p = 1;     ///< 1: off
  float repeat_penalty = 1;
  float frequency_penalty = 0;
  float presence_penalty = 0;
  std::size_t penalty_window = 64;  ///< how many of the last tokens the penalties consider
  std::uint64_t seed = 0;
  std::vector<LogitBias> logit_bias;
};

/// Scratch memory for one draw. One per sampling thread; can be used with any number of samplers of the same
/// vocabulary.
class SamplerScratch {
 public:
  explicit SamplerScratch(std::size_t vocab);
  [[nodiscard]] std::size_t vocab() const { return values_.size(); }

 private:
  friend class Sampler;
  friend class Draw;
  std::vector<float> values_;         ///< [vocab] logits after mask, bias and penalties
  std::vector<std::uint32_t> count_;  ///< [vocab] occurrences in the penalty window; all zero between draws
  std::vector<std::int32_t> ids_;     ///< [vocab] candidates, ascending
  std::vector<float> logits_;         ///< [vocab] logits of the candidates, minus the largest
  std::vector<float> weights_;        ///< [vocab] exp of `logits_`
  /// An element of the quickselect: order is (key, place), `mass` is its probability weight.
  struct Item {
    float key = 0;
    float mass = 0;
    std::int32_t place = 0;
  };
  std::vector<Item> items_;  ///< [vocab] input of the quickselect
};

/// State of one sequence's sampling: parameters, the window of recent tokens and the number of the next draw.
class Sampler {
 public:
  /// Returned by sample() when every token is forbidden.
  static constexpr std::int32_t kNoToken = -1;

  /// Errors: Error(kUsage) naming the parameter that is out of range.
  Sampler(std::size_t vocab, SamplerParams params);

  [[nodiscard]] const SamplerParams& params() const { return params_; }
  [[nodiscard]] std::size_t vocab() const { return vocab_; }

  /// Appends a token (of the prompt, or one that was sampled and kept) to the penalty window.
  void accept(std::int32_t token);

  /// Samples the next token. logits: [vocab] f32; NaN counts as -infinity. allowed: empty, or a bit mask (bit t % 32 of
  /// word t / 32 is set if token t is allowed). Returns kNoToken if no token is allowed. Does not allocate. `scratch`
  /// must be for the same vocabulary.
  [[nodiscard]] std::int32_t sample(std::span<const float> logits, SamplerScratch& scratch,
                                    std::span<const std::uint32_t> allowed = {});

  /// Draws made so far. set_draws lets a request continue its random sequence, for example after the device made draws.
  [[nodiscard]] std::uint64_t draws() const { return draws_; }
  void set_draws(std::uint64_t draws) { draws_ = draws; }

 private:
  void adjust(SamplerScratch& scratch, std::span<const std::uint32_t> allowed) const;

  std::size_t vocab_;
  SamplerParams params_;
  std::vector<std::int32_t> window_;  ///< ring buffer of recent tokens; capacity penalty_window
  std::size_t window_next_ = 0;
  std::uint64_t draws_ = 0;
};

}  // namespace forge::runtime

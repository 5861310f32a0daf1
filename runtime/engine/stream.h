#pragma once
// What a request gives to whoever asked for it: tokens as they come, then how each sample ended. Filled by the engine,
// emptied by the client, from any threads.

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "runtime/engine/request.h"
#include "runtime/sampler.h"

namespace forge::engine {

/// Natural logarithm of a token's probability, by the model's own distribution: before bias, penalties and filters.
struct TokenLogprob {
  std::int32_t token = runtime::Sampler::kNoToken;
  float logprob = 0;
};

/// A token of a sample, its end, or both.
struct StreamEvent {
  std::uint32_t sample = 0;
  std::int32_t token = runtime::Sampler::kNoToken;  ///< none: a stop token is not handed on
  TokenLogprob chosen;                              ///< when logprobs are asked for
  std::vector<TokenLogprob> likeliest;              ///< the largest first
  FinishReason finish = FinishReason::kNone;
  std::string error;       ///< one line, with FinishReason::kError
  std::vector<float> row;  ///< what a request for a row gets, with its end [hidden width]
};

/// Tokens and moments of a request, all samples together. Moments are the engine's clock; zero: has not happened.
struct Usage {
  std::size_t prompt_tokens = 0;
  std::size_t cached_tokens = 0;     ///< of these, what was in the pool already
  std::size_t generated_tokens = 0;  ///< stop tokens too
  std::size_t retries = 0;
  Time submitted{}, started{}, first_token{}, finished{};
};

class Stream {
 public:
  /// `on_event`: called after each event was put in, on the thread that put it; it must not block.
  explicit Stream(std::size_t samples, std::function<void()> on_event)
      : finish_(samples, FinishReason::kNone), on_event_(std::move(on_event)) {}

  /// The next event, waiting for it until `patience` is over. Nothing: none came, or all have been taken and every
  /// sample has ended.
  std::optional<StreamEvent> next(std::chrono::nanoseconds patience);
  [[nodiscard]] bool finished() const;
  [[nodiscard]] Usage usage() const;
  [[nodiscard]] FinishReason finish_reason(std::uint32_t sample) const;
  /// Nobody listens any more: the engine ends it as cancelled when it looks next.
  void abandon() { abandoned_.store(true, std::memory_order_release); }
  [[nodiscard]] bool abandoned() const { return abandoned_.load(std::memory_order_acquire); }

  /// For the engine. Events of samples that have ended are dropped: whoever ends a sample first has the word.
  void put(StreamEvent event);
  /// Ends every sample that has not ended.
  void end(FinishReason reason, const std::string& error = {});
  void set_usage(const Usage& usage);

 private:
  mutable std::mutex mutex_;
  std::condition_variable some_;
  std::deque<StreamEvent> events_;
  std::vector<FinishReason> finish_;
  std::size_t ended_ = 0;
  Usage usage_;
  std::function<void()> on_event_;
  std::atomic<bool> abandoned_{false};
};

}  // namespace forge::engine

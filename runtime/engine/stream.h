#pragma once
// Stream: the queue of events from the engine to one client. Tokens as they are generated, then how each sample ended.
// Thread-safe.

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

/// A token's natural log probability under the model's own distribution, i.e. before bias, penalties and filters.
struct TokenLogprob {
  std::int32_t token = runtime::Sampler::kNoToken;
  float logprob = 0;
};

/// A generated token, the end of a sample, or both.
struct StreamEvent {
  std::uint32_t sample = 0;
  /// KNoToken: this event has no token (stop tokens are not reported).
  std::int32_t token = runtime::Sampler::kNoToken;
  TokenLogprob chosen;                     ///< if logprobs were requested
  std::vector<TokenLogprob> top_logprobs;  ///< most likely first
  FinishReason finish = FinishReason::kNone;
  std::string error;       ///< one line; set with FinishReason::kError
  std::vector<float> row;  ///< [hidden width], the embedding of a request for a row; comes with its end
};

/// Token counts and times of a request, over all samples. Times are of the engine's clock; zero: has not happened yet.
struct Usage {
  std::size_t prompt_tokens = 0;
  std::size_t cached_tokens = 0;     ///< prompt tokens found in the prefix cache
  std::size_t generated_tokens = 0;  ///< including stop tokens
  std::size_t retries = 0;
  Time submitted{}, started{}, first_token{}, finished{};
};

/// Written by the engine (put, end, set_usage), read by the client.
class Stream {
 public:
  /// `on_event` is called after each event, on the thread that put it. It must not block.
  explicit Stream(std::size_t samples, std::function<void()> on_event)
      : finish_(samples, FinishReason::kNone), on_event_(std::move(on_event)) {}

  /// Returns the next event, waiting up to `patience` for it. Nothing if none came in time, or if all events have been
  /// taken and every sample has ended.
  std::optional<StreamEvent> next(std::chrono::nanoseconds patience);
  [[nodiscard]] bool finished() const;
  [[nodiscard]] Usage usage() const;
  [[nodiscard]] FinishReason finish_reason(std::uint32_t sample) const;
  /// The client is gone: the engine cancels the request in its next turn.
  void abandon() { abandoned_.store(true, std::memory_order_release); }
  [[nodiscard]] bool abandoned() const { return abandoned_.load(std::memory_order_acquire); }

  /// Engine only. Adds an event; dropped if the sample has ended already.
  void put(StreamEvent event);
  /// Engine only. Ends every sample that has not ended yet.
  void end(FinishReason reason, const std::string& error = {});
  void set_usage(const Usage& usage);

 private:
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<StreamEvent> events_;
  std::vector<FinishReason> finish_;
  std::size_t ended_ = 0;
  Usage usage_;
  std::function<void()> on_event_;
  std::atomic<bool> abandoned_{false};
};

}  // namespace forge::engine

#include "runtime/engine/stream.h"

#include <utility>

namespace forge::engine {

std::optional<StreamEvent> Stream::next(std::chrono::nanoseconds patience) {
  std::unique_lock lock(mutex_);
  if (patience > Time::zero())
    // Also returns at once when every sample has ended and no event is left.
    changed_.wait_for(lock, patience, [&] { return !events_.empty() || ended_ == finish_.size(); });
  if (events_.empty()) return std::nullopt;
  auto event = std::move(events_.front());
  events_.pop_front();
  return event;
}

bool Stream::finished() const {
  const std::lock_guard lock(mutex_);
  return ended_ == finish_.size();
}

Usage Stream::usage() const {
  const std::lock_guard lock(mutex_);
  return usage_;
}

FinishReason Stream::finish_reason(std::uint32_t sample) const {
  const std::lock_guard lock(mutex_);
  return finish_.at(sample);
}

/// Events after a sample's end are dropped: the first end wins (e.g. a cancel racing with a stop token).
void Stream::put(StreamEvent event) {
  {
    const std::lock_guard lock(mutex_);
    auto& finish = finish_.at(event.sample);
    if (finish != FinishReason::kNone) return;
    finish = event.finish;
    if (event.finish != FinishReason::kNone) ++ended_;
    events_.push_back(std::move(event));
  }
  changed_.notify_all();
  if (on_event_) on_event_();
}

void Stream::end(FinishReason reason, const std::string& error) {
  for (std::uint32_t sample = 0; sample < finish_.size(); ++sample)
    put({.sample = sample, .finish = reason, .error = error});
}

void Stream::set_usage(const Usage& usage) {
  const std::lock_guard lock(mutex_);
  usage_ = usage;
}

}  // namespace forge::engine

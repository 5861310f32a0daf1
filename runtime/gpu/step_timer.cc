#include "runtime/gpu/step_timer.h"

#include <algorithm>

#include "support/error.h"

namespace forge::runtime {

StepTimer::StepTimer(const driver::Device& device, std::span<const GpuVariant> variants) {
  std::size_t events = 0;
  for (const auto& variant : variants) {
    forward_.emplace_back(variant.forward.size());
    sample_.emplace_back(variant.sample.size());
    // Each launch() call needs one event more than it has steps.
    events = std::max(events, variant.forward.size() + variant.sample.size() + 2);
  }
  for (std::size_t i = 0; i < events; ++i) events_.emplace_back(device, driver::EventOptions{.timing = true});
  launched_.reserve(2);
}

/// Launches without hints: kernels must not overlap while they are timed.
driver::Status StepTimer::launch(std::span<const GpuLaunch> steps, std::span<StepTime> times,
                                 const driver::Stream& stream) {
  invariant(used_ + steps.size() + 1 <= events_.size(), "RT-010", "times are collected before the next step");
  launched_.push_back({.times = times, .first_event = used_});
  for (const auto& step : steps) {
    if (auto status = events_[used_++].record(stream); !status.ok()) return status;
    if (auto status = step.on(stream, {}); !status.ok()) return status;  // no overlap with the previous kernel
  }
  return events_[used_++].record(stream);
}

/// event[i] to event[i + 1] is the time of step i.
void StepTimer::collect() {
  for (const auto& [times, first] : launched_)
    for (std::size_t i = 0; i < times.size(); ++i) {
      float milliseconds = 0;
      driver::Event::elapsed(events_[first + i], events_[first + i + 1], &milliseconds).check("timing a step");
      times[i].nanoseconds += static_cast<std::uint64_t>(std::max(milliseconds, 0.0F) * 1e6F);
      ++times[i].calls;
    }
  launched_.clear();
  used_ = 0;
}

}  // namespace forge::runtime

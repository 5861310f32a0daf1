#include "runtime/step_trace.h"

#include <algorithm>
#include <chrono>

namespace forge::runtime {

StepTrace::StepTrace(std::size_t threads, std::size_t events)
    : steps_(std::max<std::size_t>(events, 1)), forwards_(std::max<std::size_t>(events / 16, 1)) {
  // Rings shrink with the number of threads so that all together stay below kEventsOfAll.
  const auto each = std::clamp<std::size_t>(kEventsOfAll / std::max<std::size_t>(threads, 1), 1024, kEvents);
  for (std::size_t i = 0; i < threads; ++i) chunks_.emplace_back(std::clamp<std::size_t>(events, 1, each));
}

std::int64_t StepTrace::now_ns() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

void StepTrace::task(std::size_t worker, std::size_t task, std::int64_t begin_ns, std::int64_t end_ns) noexcept {
  chunks_[worker].push({.begin_ns = begin_ns, .end_ns = end_ns, .what = static_cast<std::uint32_t>(task)});
}

void StepTrace::step(std::size_t variant, std::size_t step, std::int64_t begin_ns, std::int64_t end_ns) {
  steps_.push({.begin_ns = begin_ns,
               .end_ns = end_ns,
               .what = static_cast<std::uint32_t>(step),
               .variant = static_cast<std::uint32_t>(variant)});
}

void StepTrace::forward(std::size_t variant, std::size_t tokens, std::int64_t begin_ns, std::int64_t end_ns) {
  forwards_.push({.begin_ns = begin_ns,
                  .end_ns = end_ns,
                  .what = static_cast<std::uint32_t>(tokens),
                  .variant = static_cast<std::uint32_t>(variant)});
}

/// A ring that has overwritten events is complete from its oldest remaining event on.
std::int64_t StepTrace::complete_from_ns() const {
  std::int64_t from = 0;
  const auto after = [&](const Ring& ring) {
    if (ring.lost()) from = std::max(from, ring[0].begin_ns);
  };
  for (const auto& ring : chunks_) after(ring);
  after(steps_);
  after(forwards_);
  return from;
}

}  // namespace forge::runtime

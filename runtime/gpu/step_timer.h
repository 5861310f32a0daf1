#pragma once
// Times single kernels with an event before and after each. For profiles only: events keep neighbouring kernels from
// overlapping, so a whole step takes a little longer than usual.

#include <cstdint>
#include <span>
#include <vector>

#include "runtime/driver/driver.h"
#include "runtime/gpu/gpu_program.h"

namespace forge::runtime {

/// Accumulated time of one step.
struct StepTime {
  std::uint64_t calls = 0, nanoseconds = 0;
};

/// Owns the events and the times of all variants.
class StepTimer {
 public:
  /// Allocates events for the longest variant. Errors: kDevice.
  StepTimer(const driver::Device& device, std::span<const GpuVariant> variants);

  /// Enqueues `steps` on `stream` with an event before each and one after the last. `times` are updated by collect(),
  /// which must be called, after the stream has finished, before the events run out.
  driver::Status launch(std::span<const GpuLaunch> steps, std::span<StepTime> times, const driver::Stream& stream);
  /// Reads the events and adds up times. The stream must have finished the work. Errors: kDevice.
  void collect();

  [[nodiscard]] std::span<StepTime> forward(std::size_t variant) { return forward_[variant]; }
  [[nodiscard]] std::span<StepTime> sample(std::size_t variant) { return sample_[variant]; }
  [[nodiscard]] std::span<const StepTime> forward(std::size_t variant) const { return forward_[variant]; }
  [[nodiscard]] std::span<const StepTime> sample(std::size_t variant) const { return sample_[variant]; }

  /// One launch() call that has not been collected.
 private:
  struct Launched {
    std::span<StepTime> times;
    std::size_t first_event = 0;
  };
  std::vector<driver::Event> events_;
  std::vector<std::vector<StepTime>> forward_, sample_;
  std::vector<Launched> launched_;
  std::size_t used_ = 0;
};

}  // namespace forge::runtime

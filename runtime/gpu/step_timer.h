#pragma once
// Times of single steps, from events round each of them. For profiles: events keep neighbouring kernels apart, so a
// whole step takes a little longer than without.

#include <cstdint>
#include <span>
#include <vector>

#include "runtime/driver/driver.h"
#include "runtime/gpu/gpu_program.h"

namespace forge::runtime {

struct StepTime {
  std::uint64_t calls = 0, nanoseconds = 0;
};

class StepTimer {
 public:
  /// Takes events for the longest variant, and room for all variants' times. Errors: kDevice.
  StepTimer(const driver::Device& device, std::span<const GpuVariant> variants);

  /// Launches `steps` on `stream` with an event before each and one behind the last; `times` are added to by collect.
  /// What the timer has taken so far is in flight until then.
  driver::Status launch(std::span<const GpuLaunch> steps, std::span<StepTime> times, const driver::Stream& stream);
  /// Adds up what has been launched; the stream has passed it. Errors: kDevice.
  void collect();

  [[nodiscard]] std::span<StepTime> forward(std::size_t variant) { return forward_[variant]; }
  [[nodiscard]] std::span<StepTime> sample(std::size_t variant) { return sample_[variant]; }
  [[nodiscard]] std::span<const StepTime> forward(std::size_t variant) const { return forward_[variant]; }
  [[nodiscard]] std::span<const StepTime> sample(std::size_t variant) const { return sample_[variant]; }

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

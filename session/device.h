#pragma once
// Which device a model runs on: --device auto|cpu|hip[:N]|cuda[:N].

#include <functional>
#include <optional>
#include <string>
#include <string_view>

#include "runtime/driver/driver.h"

namespace forge::session {

struct DeviceChoice {
  std::string target;                    ///< what to compile for: "cpu-x86-64-v4", "gfx1100"
  std::optional<driver::Driver> driver;  ///< the GPU's
  std::optional<driver::Device> gpu;     ///< nothing: the CPU
  bool asked_for = false;                ///< by name; then whatever fails is an error
  std::string why_cpu;                   ///< one line; empty for a GPU, and for a CPU that was asked for
};

/// How drivers are opened: Driver::open, or a test's own.
using OpenDriver = std::function<driver::Driver(driver::Vendor)>;

/// "auto" takes the GPU that forge can compile for with the most memory, then the most units, those with memory of
/// their own first; without one the CPU, and says why. A GPU asked for by name is that one.
/// Errors: kUsage for a name that is none; kDevice when the GPU is not there, or it or its driver cannot be used.
[[nodiscard]] DeviceChoice choose_device(
    const std::string& name,
    const OpenDriver& open = [](driver::Vendor vendor) { return driver::Driver::open(vendor); });

/// Is it "hip", "hip:N", "cuda" or "cuda:N"? The vendor and N. Errors: kUsage when it is not.
struct GpuName {
  driver::Vendor vendor;
  int ordinal;
};
[[nodiscard]] GpuName parse_gpu_name(std::string_view name);

/// The CPU, because of `why`. Errors: kUsage, or kDevice with `why`, in a build that runs nothing on the CPU.
[[nodiscard]] DeviceChoice choose_cpu(std::string why);

}  // namespace forge::session

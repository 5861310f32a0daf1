#pragma once
// Chooses the device that a model runs on: --device auto|cpu|hip[:N]|cuda[:N]. Used by Session and forge-inspect.

#include <functional>
#include <optional>
#include <string>
#include <string_view>

#include "runtime/driver/driver.h"

namespace forge::session {

struct DeviceChoice {
  std::string target;                    ///< compile target: "cpu-x86-64-v4", "gfx1100"
  std::optional<driver::Driver> driver;  ///< driver of the GPU; empty for the CPU
  std::optional<driver::Device> gpu;     ///< empty: run on the CPU
  bool asked_for = false;                ///< the user named this device: a failure is an error, with no fallback
  std::string why_cpu;                   ///< why no GPU is used, one line; empty for a GPU and for --device cpu
};

/// Opens a vendor's driver: Driver::open, or a substitute in tests.
using OpenDriver = std::function<driver::Driver(driver::Vendor)>;

/// Chooses a device. "auto": of the GPUs that forge has a target for, discrete ones first, then the one with the most
/// memory, then the one with the most compute units; if there is none, the CPU with the reason in why_cpu. "cpu",
/// "hip:N", "cuda:N": that device.
/// Errors: kUsage for an unknown name; kDevice when a GPU given by name does not exist, or it or its driver is
/// unusable.
[[nodiscard]] DeviceChoice choose_device(
    const std::string& name,
    const OpenDriver& open = [](driver::Vendor vendor) { return driver::Driver::open(vendor); });

/// A parsed "hip", "hip:N", "cuda" or "cuda:N".
struct GpuName {
  driver::Vendor vendor;
  int ordinal;  ///< N, from 0; 0 if not given
};
/// Parses a GPU's name. Errors: kUsage for any other name.
[[nodiscard]] GpuName parse_gpu_name(std::string_view name);

/// Chooses the CPU; `why` is the reason, empty if the user asked for it. Errors: kUsage, or kDevice with `why`, in a
/// build without the CPU back-end.
[[nodiscard]] DeviceChoice choose_cpu(std::string why);

}  // namespace forge::session

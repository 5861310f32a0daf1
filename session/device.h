#pragma once
// Chooses the device that a model runs on: --device auto|cpu|hip[:N]|cuda[:N]. Used by Session and forge-inspect.

#include <functional>
#include <optional>
#include <string>
#include <string_view>

#include "kernels/quant/dtype.h"
#include "runtime/driver/driver.h"

namespace forge::session {

struct DeviceChoice {
  std::string target;                    ///< compile target: "cpu-x86-64-v4", "gfx1100"
  std::optional<driver::Driver> driver;  ///< driver of the GPU; empty for the CPU
  std::optional<driver::Device> gpu;     ///< empty: run on the CPU
  bool named_by_user = false;            ///< the user named this device: a failure is an error, with no fallback
  std::string cpu_reason;                ///< why no GPU is used, one line; empty for a GPU and for --device cpu
};

/// Opens a vendor's driver: Driver::open, or a substitute in tests.
using OpenDriver = std::function<driver::Driver(driver::Vendor)>;

/// "auto" takes the GPU that forge can compile for with the most memory, then the most units, those with memory of
/// their own first; without one the CPU, and says why. A GPU asked for by name is that one.
/// Errors: kUsage for a name that is none; kDevice when the GPU is not there, or it or its driver cannot be used.
[[nodiscard]] DeviceChoice choose_device(const std::string& name, const OpenDriver& open = driver::Driver::open);

/// A parsed "hip", "hip:N", "cuda" or "cuda:N".
struct GpuName {
  driver::Vendor vendor;
  int ordinal;  ///< N, from 0; 0 if not given
};
/// Parses a GPU's name. Errors: kUsage for any other name.
[[nodiscard]] GpuName parse_gpu_name(std::string_view name);

/// Chooses the CPU. `why` says why no GPU is used; it is empty if the user asked for the CPU.
/// Errors, in a build without the CPU back-end only: kUsage if `why` is empty, else kDevice, which shows `why`.
[[nodiscard]] DeviceChoice choose_cpu(std::string why);

/// The CPU instead of a GPU that "auto" has taken, if the CPU can keep the KV cache in this type and the GPU cannot.
/// Where neither can, it stays the GPU, so that the error names the GPU's types.
[[nodiscard]] DeviceChoice device_for_kv_type(DeviceChoice choice, DType kv_type);

}  // namespace forge::session

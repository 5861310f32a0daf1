#pragma once
// The devices that the conformance suite runs on, each with code for one kernel in two forms.

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "runtime/driver/driver.h"
#include "tests/null_driver/null_driver.h"

namespace forge::driver::test {

/// The kernel of every target: data[i] += value for i < n; `data` is int32[n].
inline constexpr const char* kKernel = "add_value";

/// The same kernel with its arguments in one struct, like generated kernels. It waits for its predecessor itself, on
/// GPUs that may start it before the predecessor has ended.
inline constexpr const char* kBlockKernel = "add_block";
struct AddBlock {
  Address data;
  std::int64_t n, value;
};

struct Target {
  std::string name;
  Driver driver;
  Device device;
  std::vector<std::byte> image;          ///< holds kKernel and kBlockKernel
  std::shared_ptr<NullControl> control;  ///< of the null driver; otherwise null
};

/// The null module with both kernels; also registers their host implementations with `control`.
std::vector<std::byte> prepare_null(NullControl& control);
/// A null driver. A deferred one runs work only when something waits for it.
Target null_target(NullOptions options = {});
/// A vendor's GPU, with the kernels compiled by the vendor's run-time compiler. Empty, with the reason in `why`, if
/// there is no GPU or no such compiler. A compile error fails the test.
std::optional<Target> vendor_target(Vendor vendor, std::string* why);

/// The grid for n items, with 256 lanes per block.
inline Dim3 blocks_for(int n) {
  return {static_cast<std::uint32_t>((n + 255) / 256), 1, 1};
}

}  // namespace forge::driver::test

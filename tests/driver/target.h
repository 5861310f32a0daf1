#pragma once
// What the conformance suite runs on: a device, and code for it with one kernel.

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "runtime/driver/driver.h"
#include "tests/null_driver/null_driver.h"

namespace forge::driver::test {

/// The kernel of every target: data[i] += value for i < n; `data` int32[n].
inline constexpr const char* kKernel = "add_value";

/// The same with its arguments in one struct, as generated kernels have them. It waits for its predecessor itself where
/// a card lets it start before that has ended.
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
  std::shared_ptr<NullControl> control;  ///< the null driver's; otherwise null
};

/// The null module with both kernels; `control` gets its work.
std::vector<std::byte> prepare_null(NullControl& control);
/// A null driver. Deferred ones run work only when somebody waits for it.
Target null_target(NullOptions options = {});
/// A vendor's card, with the kernels compiled by the vendor's run-time compiler. Empty, with `why`, where there is no
/// card or no such compiler; a compiler that does not compile fails the test.
std::optional<Target> vendor_target(Vendor vendor, std::string* why);

/// 256 lanes a block.
inline Dim3 blocks_for(int n) {
  return {static_cast<std::uint32_t>((n + 255) / 256), 1, 1};
}

}  // namespace forge::driver::test

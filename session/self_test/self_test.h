#pragma once
// The self-test of a GPU: runs every primitive of the device sources, weight repacking and a tiny model, and compares
// with results computed on the host (codegen/gpu/self_test/self_test.h). self_test_process.h runs it in a child
// process; card_verdict.h stores the verdict.

#include <chrono>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "codegen/kernel_compiler.h"
#include "runtime/driver/driver.h"

namespace forge::session {

struct SelfTestResult {
  std::string name;  ///< "shuffle_xor<16>", "model: prefill"
  bool ok = false;
  std::string detail;  ///< what is wrong, one line; for the model also its error when ok; else empty
  double ms = 0;       ///< duration of the kernel or steps that this is a part of
};

/// Receives progress and results while the test runs.
struct SelfTestObserver {
  std::function<void(std::string_view)> stage;  ///< "compiling", "running lanes": called before what may take long
  std::function<void(const SelfTestResult&)> result;
};

struct SelfTestOptions {
  std::string target;  ///< the device's target: "gfx1100"
  codegen::KernelCompiler* compiler = nullptr;
  std::chrono::milliseconds limit{10'000};  ///< time limit of one primitive's kernel on the device
  std::string kernel;                       ///< run only this kernel of primitives ("lanes"); empty: all
  bool model = true;                        ///< also run the tiny model
};

/// Thrown when a kernel does not end. Objects of the device must not be released afterwards, because the driver would
/// wait for the kernel.
struct DeviceIsStuck {};

/// Runs the whole test. Failures are results: a wrong value, a kernel that does not compile, a driver's error.
/// Errors: kMemory when the GPU has too little free memory. Throws DeviceIsStuck when a kernel did not end, after
/// reporting that as a result: the process should then exit without cleaning up.
void self_test(const driver::Device& device, const SelfTestOptions& options, const SelfTestObserver& sink);

/// Runs the tiny model alone; results are named "model: prefill", "model: decode" and so on. Errors: kMemory.
void self_test_model(const driver::Device& device, const SelfTestOptions& options, const SelfTestObserver& sink);

}  // namespace forge::session

#pragma once
// The self-test of a card: every primitive of the device sources, weights repacked, and a tiny model, against what the
// host computes (codegen/gpu/self_test/self_test.h). self_test_process.h runs it in a process of its own,
// card_verdict.h keeps what came out.

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
  std::string detail;  ///< what is wrong, one line; of the model also how near it is; else empty
  double ms = 0;       ///< of the kernel, or the steps, that it is a part of
};

/// Who is told, as it happens.
struct SelfTestSink {
  std::function<void(std::string_view)> stage;  ///< "compiling", "running lanes": what may take long from now on
  std::function<void(const SelfTestResult&)> result;
};

struct SelfTestOptions {
  std::string target;  ///< the device's, "gfx1100"
  codegen::KernelCompiler* compiler = nullptr;
  std::chrono::milliseconds limit{10'000};  ///< of one primitive's kernel on the device
  std::string kernel;                       ///< of the primitives' kernels, this one alone ("lanes"); empty: all
  bool model = true;                        ///< run the tiny model too
};

/// What a device can no longer do anything about: a kernel that does not end, a lost device. Nothing that belongs to
/// it may be released afterwards, for a driver would wait.
struct DeviceIsStuck {};

/// Runs all of it. What goes wrong is a result: a wrong value, a kernel that does not compile, a driver's error.
/// Errors: kMemory when the card has no room for the test. Throws DeviceIsStuck when a kernel did not end, which has
/// been told: the process should end without cleaning up.
void self_test(const driver::Device& device, const SelfTestOptions& options, const SelfTestSink& sink);

/// The tiny model alone: "model: prefill", "model: decode", "model: sampling".
/// Errors: kMemory.
void self_test_model(const driver::Device& device, const SelfTestOptions& options, const SelfTestSink& sink);

}  // namespace forge::session

#include "session/self_test/self_test.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <memory>
#include <optional>
#include <thread>

#include "codegen/gpu/self_test/self_test.h"
#include "runtime/gpu/gpu_memory.h"
#include "support/error.h"
#include "support/os/console.h"

namespace forge::session {
namespace {

using Clock = std::chrono::steady_clock;
using codegen::SelfTestKernel;
using codegen::SelfTestSection;
using runtime::gpu_aligned;
using runtime::kGpuAlignment;

constexpr std::size_t kGuardBytes = 256;  ///< guard bytes before and after a kernel's output
constexpr std::uint8_t kPoison = 0xa5;

double milliseconds_since(Clock::time_point begin) {
  return std::chrono::duration<double, std::milli>(Clock::now() - begin).count();
}

/// The device is lost: no further kernel can be tested on it.
class DeviceLost : public Error {
 public:
  using Error::Error;
};

/// Runs one kernel of the self-test. The output buffer is poisoned before the launch and has guard bytes on both sides:
///
///   | guard 256 B | results | padding + guard 256 B |      bytes outside the results must still be 0xa5 afterwards
class KernelRun {
 public:
  KernelRun(const driver::Device& device, const SelfTestKernel& kernel, std::span<const std::byte> code)
      : kernel_(kernel),
        module_(device, code, kernel.name),
        function_(module_.function(kernel.source.entry)),
        out_bytes_(kernel.out_words * sizeof(std::uint32_t)),
        in_(device, std::max(bytes_of(kernel.input.size()), kGpuAlignment), "the self-test's inputs"),
        out_(device, gpu_aligned(out_bytes_) + 2 * kGuardBytes, "the self-test's results"),
        work_(device, std::max(bytes_of(kernel.work_words), kGpuAlignment), "the self-test's counters"),
        mirror_(device, std::max(in_.bytes(), out_.bytes()), "the self-test's copies"),
        host_(device, std::max(bytes_of(kernel.host_words), kGpuAlignment), "the self-test's words for the host"),
        stream_(device),
        done_(device) {}

  /// Launches the kernel, waits at most `limit`, and copies the results back. Errors: DeviceLost; DeviceIsStuck;
  /// kDevice.
  void run(std::chrono::milliseconds limit) {
    std::memset(host_.data(), kPoison, host_.bytes());
    std::memcpy(mirror_.data(), kernel_.input.data(), bytes_of(kernel_.input.size()));
    if (!kernel_.input.empty()) check(stream_.upload(in_, 0, mirror_, 0, bytes_of(kernel_.input.size())), "inputs");
    check(stream_.fill(out_, 0, kPoison, out_.bytes()), "poison");
    check(stream_.fill(work_, 0, 0, work_.bytes()), "counters");
    for (int launch = 0; launch < kernel_.launches; ++launch) {
      const std::uint64_t args[] = {in_.address().value, (out_.address() + kGuardBytes).value, work_.address().value,
                                    host_.address().value, static_cast<std::uint64_t>(launch)};
      check(
          stream_.launch_block(function_, {.x = kernel_.blocks}, {.x = kernel_.threads}, 0,
                               std::as_bytes(std::span(args)), {.overlap_predecessor = kernel_.overlap && launch > 0}),
          "launching");
    }
    wait(limit);
    check(stream_.download(mirror_, 0, out_, 0, out_.bytes()), "reading results");
    wait(limit);
  }

  /// What is wrong with a section of the results; empty if it is right.
  [[nodiscard]] std::string mismatch(const SelfTestSection& section) const {
    const std::byte* from = section.in_host_memory ? host_.data() : mirror_.data() + kGuardBytes;
    std::vector<std::uint32_t> got(section.expected.size());
    std::memcpy(got.data(), from + bytes_of(section.first), bytes_of(got.size()));
    return codegen::self_test_mismatch(section, got);
  }
  /// True if nothing outside the results was written.
  [[nodiscard]] bool guards_hold() const {
    const auto poisoned = [](std::byte byte) { return byte == std::byte{kPoison}; };
    const std::byte *begin = mirror_.data(), *end = begin + out_.bytes();
    return std::all_of(begin, begin + kGuardBytes, poisoned) &&
           std::all_of(begin + kGuardBytes + out_bytes_, end, poisoned);
  }

 private:
  static std::size_t bytes_of(std::size_t words) { return words * sizeof(std::uint32_t); }

  static void check(const driver::Status& status, const char* doing) {
    if (status.ok()) return;
    if (status.outcome() != driver::Outcome::kLost) throw status.error(doing);
    throw DeviceLost(ErrorCode::kDevice, strip_error_code(status.error(doing).line()));
  }
  /// Polls instead of blocking, so that a kernel that never ends does not block this thread for ever.
  void wait(std::chrono::milliseconds limit) {
    check(done_.record(stream_), "running");
    const auto end = Clock::now() + limit;
    for (;;) {
      const auto status = done_.query();
      if (status.outcome() != driver::Outcome::kNotReady) return check(status, "running");
      if (Clock::now() > end) throw DeviceIsStuck{};
      std::this_thread::sleep_for(std::chrono::microseconds(100));
    }
  }

  const SelfTestKernel& kernel_;
  driver::Module module_;
  driver::Function function_;
  std::size_t out_bytes_;
  driver::Buffer in_, out_, work_;
  driver::PinnedBuffer mirror_, host_;
  driver::Stream stream_;
  driver::Event done_;
};

/// Compiles and runs the kernels of primitives.
class Primitives {
 public:
  Primitives(const driver::Device& device, const SelfTestOptions& options, const SelfTestObserver& sink)
      : device_(device), options_(options), sink_(sink) {
    const auto* target = codegen::find_target(options.target);
    invariant(target != nullptr, "ST-001", "a GPU that is tested has a target");
    kernels_ = codegen::self_test_kernels(*target);
    if (!options.kernel.empty())
      std::erase_if(kernels_, [&](const SelfTestKernel& kernel) { return kernel.name != options.kernel; });
  }

  /// Runs all kernels. False if the device is lost.
  bool run() {
    sink_.stage("compiling");
    compile();
    for (std::size_t i = 0; i < kernels_.size(); ++i)
      if (!failed_.contains(i) && !run_kernel(kernels_[i], code_[i])) return false;
    return true;
  }

 private:
  /// Compiles all kernels in one call. If that fails, compiles them one by one, so that the others can be tested.
  void compile() {
    std::vector<codegen::KernelSource> sources;
    for (const auto& kernel : kernels_) sources.push_back(kernel.source);
    try {
      code_ = options_.compiler->compile(options_.target, sources);
    } catch (const Error&) {
      code_.resize(sources.size());
      for (std::size_t i = 0; i < sources.size(); ++i) try {
          code_[i] = std::move(options_.compiler->compile(options_.target, std::span(sources).subspan(i, 1)).front());
        } catch (const Error& error) {
          failed_[i] = true;
          fail_all(kernels_[i], strip_error_code(error.line()), 0);
        }
    }
  }

  bool run_kernel(const SelfTestKernel& kernel, const codegen::CompiledKernel& code) {
    sink_.stage("running " + kernel.name);
    const auto begin = Clock::now();
    std::unique_ptr<KernelRun> run;
    try {
      run = std::make_unique<KernelRun>(device_, kernel, code.code);
      run->run(options_.limit);
    } catch (const DeviceIsStuck&) {
      fail_all(kernel,
               fmt::format("its kernel did not end within {} s", static_cast<double>(options_.limit.count()) / 1000),
               milliseconds_since(begin));
      // Leaked on purpose: the kernel still uses this memory, and freeing it would wait for the kernel.
      static auto* const in_use = new std::vector<std::unique_ptr<KernelRun>>;
      in_use->push_back(std::move(run));
      throw;
    } catch (const DeviceLost& error) {
      fail_all(kernel, strip_error_code(error.line()), milliseconds_since(begin));
      return false;
    } catch (const Error& error) {
      if (error.code() == ErrorCode::kMemory) throw;
      fail_all(kernel, strip_error_code(error.line()), milliseconds_since(begin));
      return true;
    } catch (const std::exception& error) {  // the null driver's kernels
      fail_all(kernel, error.what(), milliseconds_since(begin));
      return true;
    }
    const double ms = milliseconds_since(begin);
    for (const auto& section : kernel.sections) {
      auto wrong = run->mismatch(section);
      sink_.result({.name = section.name, .ok = wrong.empty(), .detail = std::move(wrong), .ms = ms});
    }
    if (!run->guards_hold())
      sink_.result({.name = kernel.name + " within bounds",
                    .ok = false,
                    .detail = "it wrote outside its output buffer",
                    .ms = ms});
    return true;
  }

  /// Reports all sections of a kernel as failed.
  void fail_all(const SelfTestKernel& kernel, const std::string& why, double ms) const {
    for (const auto& section : kernel.sections)
      sink_.result({.name = section.name, .ok = false, .detail = printable(why, 300), .ms = ms});
  }

  const driver::Device& device_;
  const SelfTestOptions& options_;
  const SelfTestObserver& sink_;
  std::vector<SelfTestKernel> kernels_;
  std::vector<codegen::CompiledKernel> code_;
  std::map<std::size_t, bool> failed_;  ///< kernels that did not compile
};

}  // namespace

void self_test(const driver::Device& device, const SelfTestOptions& options, const SelfTestObserver& sink) {
  if (Primitives(device, options, sink).run() && options.model) self_test_model(device, options, sink);
}

}  // namespace forge::session

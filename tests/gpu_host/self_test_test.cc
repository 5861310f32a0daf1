// The GPU self-test, with the host executor as the GPU: it finds nothing on a correct machine, and it detects and names
// each injected fault.

#include <fmt/format.h>

#include <algorithm>
#include <catch2/catch.hpp>
#include <cstring>
#include <set>

#include "codegen/gpu/self_test/self_test.h"
#include "kernels/gpu/self_test/self_test_io.h"
#include "session/self_test/self_test.h"
#include "tests/gpu_host/host_compiler.h"
#include "tests/support/self_test_faults.h"

using namespace forge;
using namespace forge::gpu_host;
using session::SelfTestResult;

namespace {

struct HostTarget {
  const char* name;
  int wave;
};
constexpr HostTarget kWave32{"gfx1100", 32}, kWave64{"gfx90a", 64};

HostKernelCompiler& host_compiler() {
  static HostKernelCompiler one;
  return one;
}

/// The host executor presented as a GPU.
class HostCard {
 public:
  explicit HostCard(const HostTarget& target, bool deferred = false)
      : target_(target),
        control_(std::make_shared<driver::NullControl>(
            driver::NullOptions{.wave_size = target.wave, .arch = target.name, .deferred = deferred})) {
    run_on_host(*control_, {.order = Order::kShuffled});
  }
  driver::NullControl& control() { return *control_; }

  /// Runs the self-test. `kernel`: run only this primitive.
  std::vector<session::SelfTestResult> test(codegen::KernelCompiler& compiler, bool model = false,
                                            std::string kernel = {},
                                            std::chrono::milliseconds limit = std::chrono::seconds(10)) {
    const auto driver = driver::open_null(control_);
    std::vector<session::SelfTestResult> results;
    session::self_test(
        driver.device(0),
        {.target = target_.name, .compiler = &compiler, .limit = limit, .kernel = std::move(kernel), .model = model},
        {.stage = [](std::string_view) {},
         .result = [&](const session::SelfTestResult& one) { results.push_back(one); }});
    return results;
  }

 private:
  HostTarget target_;
  std::shared_ptr<driver::NullControl> control_;
};

std::vector<std::string> failures(const std::vector<session::SelfTestResult>& results) {
  std::vector<std::string> out;
  for (const auto& one : results)
    if (!one.ok) out.push_back(one.name);
  return out;
}
std::string details(const std::vector<session::SelfTestResult>& results) {
  std::string out;
  for (const auto& one : results)
    if (!one.ok) out += one.name + ": " + one.detail + "\n";
  return out;
}

/// A modification of a kernel's results after it has run.
using Change = std::function<void(const gpu::SelfTestArgs&)>;
void change_behind(driver::NullControl& control, const std::string& entry, Change change) {
  control.set_loader([=](const std::string& kernel, std::span<const std::byte> image) -> driver::NullKernel {
    const Kernel code = load_host_kernel(kernel, image);
    return [=](const driver::NullLaunch& call) {
      run_kernel(code, {.blocks = static_cast<int>(call.grid.x)}, call.args.at(0).data(), call.args.at(0).size());
      if (kernel == entry) change(call.arg<gpu::SelfTestArgs>(0));
    };
  });
}

}  // namespace

TEST_CASE("self-test: all primitives pass on this machine") {
  // Without 8-bit floats, and with those of either encoding.
  for (const auto& target : {kWave32, kWave64, HostTarget{"gfx1201", 32}, HostTarget{"gfx942", 64}}) {
    CAPTURE(target.name);
    const auto results = HostCard(target).test(host_compiler());
    CHECK(details(results).empty());
    std::size_t sections = 0;
    for (const auto& kernel : codegen::self_test_kernels(*codegen::find_target(target.name)))
      sections += kernel.sections.size();
    CHECK(results.size() == sections);
  }
}

TEST_CASE("self-test: the tiny model agrees with the CPU") {
  const auto results = HostCard(kWave32).test(host_compiler(), true);
  CHECK(details(results).empty());
  const auto detail = [&](const std::string& name) {
    const auto found = std::ranges::find(results, name, &session::SelfTestResult::name);
    REQUIRE(found != results.end());
    return found->detail;
  };
  // Far below the bound, so a correct GPU with other roundings passes too.
  for (const char* name : {"model: prefill", "model: short prefill", "model: decode"}) {
    CAPTURE(name, detail(name));
    REQUIRE(detail(name).starts_with("nmse "));
    CHECK(std::stod(detail(name).substr(5)) < 2e-3);
  }
  for (const char* name : {"model: greedy tokens", "model: drawn tokens"}) CHECK(detail(name).empty());
}

// Sensitivity: changes the last result word of each section in turn. A self-test that misses one of these would pass
// a faulty GPU.
TEST_CASE("self-test: one wrong word of any primitive is found, and no other primitive is named") {
  for (const auto& kernel : codegen::self_test_kernels(*codegen::find_target(kWave32.name))) {
    HostCard card(kWave32);
    for (const auto& section : kernel.sections) {
      CAPTURE(kernel.name, section.name);
      // Flips the second-highest bit of the last word, which no tolerance covers.
      const std::size_t at = section.first + section.expected.size() - 1;
      change_behind(card.control(), kernel.source.entry, [&](const gpu::SelfTestArgs& args) {
        if (args.number != kernel.launches - 1) return;
        (section.in_host_memory ? reinterpret_cast<unsigned*>(args.host) : args.out)[at] ^= 0x40000000U;
      });
      const auto found = failures(card.test(host_compiler(), false, kernel.name));
      CHECK(found == std::vector<std::string>{section.name});
    }
  }
}

TEST_CASE("self-test: wrong primitives are named") {
  std::map<std::string, std::string> texts;
  for (const auto& fault : tests::kPlantedFaults) texts[std::string(fault.kernel)] += fault.text;
  for (const auto& [kernel, text] : texts) {
    CAPTURE(kernel);
    tests::PlantingCompiler faulty(host_compiler(), [&](std::string_view) { return text; });
    const auto results = HostCard(kWave32).test(faulty, false, kernel);
    const auto found = failures(results);
    for (const auto& fault : tests::kPlantedFaults) {
      CAPTURE(fault.found, details(results));
      if (fault.kernel == kernel) CHECK(std::ranges::count(found, std::string(fault.found)) == 1);
    }
  }
}

TEST_CASE("self-test: a missing barrier is reported for the kernel that needs it") {
  tests::PlantingCompiler faulty(host_compiler(), [](std::string_view) { return "#define barrier()\n"; });
  const auto results = HostCard(kWave32).test(faulty, false, "memory");
  CHECK(failures(results).size() == results.size());
  CHECK(results.front().detail.find("shared") != std::string::npos);
}

TEST_CASE("self-test: the tiny model detects one kernel that sums only half of the lanes") {
  tests::PlantingCompiler faulty(host_compiler(), [](std::string_view entry) {
    return std::string(entry.starts_with("matmul_q4_k_1024x256_t1_") ? tests::kSumOfHalfTheLanes : "");
  });
  const auto results = HostCard(kWave64).test(faulty, true, "chain");
  const auto found = failures(results);
  CAPTURE(details(results));
  REQUIRE(!found.empty());
  CHECK(found.front() == "model: decode");  // prefill is correct: the same model with waves of 64
}

TEST_CASE("self-test: a kernel that does not compile is named, and the others are tested") {
  tests::PlantingCompiler faulty(host_compiler(), [](std::string_view entry) {
    return std::string(entry.starts_with("self_test_blocks") ? "#error planted\n" : "");
  });
  const auto found = failures(HostCard(kWave32).test(faulty));
  CHECK(found == std::vector<std::string>{"last_arrival and load_fresh", "atomic_add", "atomic_store", "store_host"});
}

TEST_CASE("self-test: a failure of any driver call is reported as a result") {
  HostCard card(kWave32);
  for (const char* call : {"module_load", "module_function", "launch", "stream_create", "event_create", "fill_bytes",
                           "copy_to_device", "copy_to_host", "event_record", "event_query"}) {
    CAPTURE(call);
    card.control().fail(call);
    const auto results = card.test(host_compiler(), false, "blocks");
    CHECK(card.control().calls(call) > 0);
    CHECK(failures(results).size() == results.size());
    CHECK(!results.empty());
    card.control().clear_failures();
  }
}

TEST_CASE("self-test: a lost device ends the test and names the kernel that ran") {
  HostCard card(kWave32);
  change_behind(card.control(), codegen::self_test_kernels(*codegen::find_target(kWave32.name))[2].source.entry,
                [&](const gpu::SelfTestArgs&) { throw std::runtime_error("planted"); });
  const auto thrown = card.test(host_compiler());
  CHECK(failures(thrown).size() == 15);
  CHECK(thrown.size() > 50);
}

TEST_CASE("self-test: a kernel that does not end is reported, and nothing is released") {
  HostCard card(kWave32, true);  // deferred: work runs only when something waits, and the test only polls
  CHECK_THROWS_AS(card.test(host_compiler(), false, "blocks", std::chrono::milliseconds(0)), session::DeviceIsStuck);
}

TEST_CASE("self-test: running out of memory is not a fault of the GPU") {
  HostCard card(kWave32);
  card.control().limit_memory(1 << 10);
  try {
    card.test(host_compiler(), false, "numbers");
    FAIL("there was memory");
  } catch (const Error& error) {
    CHECK(error.code() == ErrorCode::kMemory);
  }
}

// The --device option: which card is chosen from those that the drivers list, and the message if there is none.

#include <catch2/catch.hpp>

#include <map>

#include "codegen/compile.h"
#include "session/device.h"
#include "support/error.h"
#include "tests/null_driver/null_driver.h"

namespace forge::session {
namespace {

using driver::Vendor;

/// Null drivers in place of the vendors' drivers; a vendor without one counts as not installed.
class Machine {
 public:
  Machine& with(Vendor vendor, driver::NullOptions options) {
    controls_[vendor] = std::make_shared<driver::NullControl>(options);
    return *this;
  }
  [[nodiscard]] DeviceChoice choose(const std::string& name) const {
    return choose_device(name, [this](Vendor vendor) {
      const auto found = controls_.find(vendor);
      if (found == controls_.end()) throw Error(ErrorCode::kDevice, "no driver was found", {}, "install one");
      return driver::open_null(found->second);
    });
  }
  [[nodiscard]] std::string refusal(const std::string& name, ErrorCode code) const {
    try {
      (void)choose(name);
    } catch (const Error& error) {
      CHECK(error.code() == code);
      return error.line();
    }
    return {};
  }
  driver::NullControl& control(Vendor vendor) { return *controls_.at(vendor); }

 private:
  std::map<Vendor, std::shared_ptr<driver::NullControl>> controls_;
};

constexpr std::uint64_t kGiB = std::uint64_t{1} << 30;

}  // namespace

TEST_CASE("auto takes the card with the most memory that forge has kernels for") {
  Machine machine;
  machine.with(Vendor::kAmd, {.devices = 2, .arch = "gfx1100:xnack-", .memory_bytes = 8 * kGiB});
  machine.with(Vendor::kNvidia, {.arch = "sm_90", .memory_bytes = 9 * kGiB});
  auto choice = machine.choose("auto");
  CHECK(choice.target == "sm_90");
  REQUIRE(choice.gpu);
  CHECK(choice.gpu->info().memory_bytes == 9 * kGiB);
  CHECK_FALSE(choice.named_by_user);
  CHECK(choice.cpu_reason.empty());
  machine.with(Vendor::kNvidia, {.arch = "sm_20", .memory_bytes = 90 * kGiB});
  choice = machine.choose("auto");
  CHECK(choice.target == "gfx1100");
}

TEST_CASE("a KV cache in a type that neither device has stays with the GPU, whose types the error names") {
  Machine machine;
  machine.with(Vendor::kAmd, {.arch = "gfx1100"});
  for (const auto type : {DType::kF16, DType::kQ8_0, DType::kQ4_0, DType::kFp8}) {
    const auto choice = device_for_kv_type(machine.choose("auto"), type);
    CHECK(choice.target == "gfx1100");
    CHECK(choice.gpu);
    CHECK(choice.cpu_reason.empty());
  }
  CHECK(!codegen::supports_kv_type("gfx1100", DType::kFp8));
  CHECK(device_for_kv_type(machine.choose("cpu"), DType::kFp8).target == codegen::host_target());
}

TEST_CASE("without a usable card auto is the CPU, with the reason in one line") {
  Machine machine;
  const auto why = [&] {
    const auto choice = machine.choose("auto");
    CHECK(choice.target == codegen::host_target());
    CHECK_FALSE(choice.gpu);
    CHECK(choice.cpu_reason.find('\n') == std::string::npos);
    return choice.cpu_reason;
  };
  CHECK_THAT(why(), Catch::Contains("GPU driver is installed"));
  machine.with(Vendor::kAmd, {.devices = 0});
  CHECK_THAT(why(), Catch::Contains("no GPU was found") || Catch::Contains("GPU driver is installed"));
  machine.with(Vendor::kAmd, {.arch = "gfx803"});
  CHECK_THAT(why(), Catch::Contains("no kernels for null device 0 (gfx803)"));
  machine.with(Vendor::kAmd, {.arch = "gfx1100"});
  machine.control(Vendor::kAmd).fail("open_device");
  CHECK_THAT(why(), Catch::Contains("open_device"));
}

TEST_CASE("a card that was requested is used or is an error") {
  Machine machine;
  machine.with(Vendor::kAmd, {.devices = 2, .arch = "gfx942:sramecc+"});
  for (const auto* name : {"hip", "hip:0", "hip:1"}) {
    const auto choice = machine.choose(name);
    CHECK(choice.target == "gfx942");
    CHECK(choice.named_by_user);
    CHECK(choice.gpu->info().ordinal == (name[3] == ':' ? name[4] - '0' : 0));
  }
  CHECK_THAT(machine.refusal("hip:2", ErrorCode::kDevice), Catch::Contains("hip:2") && Catch::Contains("has 2"));
  CHECK_THAT(machine.refusal("cuda", ErrorCode::kDevice), Catch::Contains("install one"));
  for (const auto* name : {"hip:", "hip:-1", "hip:1x", "hip:99999999999", "hip0", "gpu", "", "cpu:0"})
    CHECK_THAT(machine.refusal(name, ErrorCode::kUsage), Catch::Contains("is unknown"));
  machine.with(Vendor::kAmd, {.arch = "gfx803"});
  CHECK_THAT(machine.refusal("hip:0", ErrorCode::kDevice), Catch::Contains("no kernels for gfx803"));
  const auto cpu = machine.choose("cpu");
  CHECK((!cpu.gpu && cpu.named_by_user && cpu.cpu_reason.empty()));
}

}  // namespace forge::session

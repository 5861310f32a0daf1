// Builds with only one back-end: the message about the other one.

#include <catch2/catch.hpp>

#include "codegen/back_end.h"
#include "codegen/compile.h"
#include "session/device.h"
#include "tests/null_driver/null_driver.h"
#include "tests/support/error_of.h"

namespace forge::session {
namespace {

using tests::error_of;

driver::Driver no_driver(driver::Vendor) {
  throw Error(ErrorCode::kDevice, "no driver was found");
}

std::string of_device(const char* name, ErrorCode code) {
  return error_of([&] { (void)choose_device(name, no_driver); }, code);
}

}  // namespace

TEST_CASE("a back-end that is not in the build is reported in one line") {
  REQUIRE((codegen::host_back_end() == nullptr) != (codegen::device_back_end() == nullptr));
  if (codegen::host_back_end() != nullptr) {
    const auto choice = choose_device("auto", no_driver);
    CHECK(choice.target == codegen::host_target());
    CHECK(choice.cpu_reason.empty());  // no GPU was looked for, so there is nothing to explain
    for (const char* gpu : {"hip", "hip:0", "cuda:1"})
      CHECK_THAT(of_device(gpu, ErrorCode::kDevice), Catch::Contains("built without") && Catch::Contains(gpu));
    CHECK_THAT(error_of([] { (void)codegen::resolve_targets("gfx1100"); }, ErrorCode::kUsage),
               Catch::Contains("unknown") && !Catch::Contains("gfx1030"));
  } else {
    CHECK_THAT(of_device("cpu", ErrorCode::kUsage), Catch::Contains("built without"));
    CHECK_THAT(of_device("auto", ErrorCode::kDevice), Catch::Contains("built without"));
    CHECK_THAT(error_of([] { (void)codegen::host_target(); }, ErrorCode::kUsage), Catch::Contains("built without"));
    CHECK_THAT(error_of([] { (void)codegen::resolve_targets("cpu"); }, ErrorCode::kUsage), Catch::Contains("gfx1030"));
  }
}

}  // namespace forge::session

// Stubs for a build without the GPU back-end: each one throws kUsage.

#include "session/self_test/card_verdict.h"
#include "session/self_test/self_test_process.h"
#include "support/error.h"

namespace forge::session {
namespace {

[[noreturn]] void refuse(const char* what) {
  throw Error(ErrorCode::kUsage, std::string("this forge cannot ") + what, "it was built without the GPU back-end",
              "build it with -Dback_ends=cpu,gpu");
}

}  // namespace

void require_passing_self_test(const driver::Driver&, const driver::DeviceInfo&) {
  refuse("test a GPU");
}
void write_self_test(const std::string&) {
  refuse("test a GPU");
}

}  // namespace forge::session

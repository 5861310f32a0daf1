// Stubs for a build without the GPU back-end: each one throws kUsage.

#include "session/without_gpu.h"

#include "session/card_rates.h"
#include "session/self_test/card_verdict.h"
#include "session/self_test/self_test_process.h"
#include "session/tuned/tuned_choices.h"
#include "support/error.h"

namespace forge::session {
void refuse_without_gpu(const std::string& what) {
  throw Error(ErrorCode::kUsage, "this forge cannot " + what, "it was built without the GPU back-end",
              "build it with -Dback_ends=cpu,gpu");
}

CardRates measure_card_rates(const driver::Device&, const std::string&) {
  refuse_without_gpu("measure a GPU");
}
void require_passing_self_test(const driver::Driver&, const driver::DeviceInfo&) {
  refuse_without_gpu("test a GPU");
}
void write_self_test(const std::string&) {
  refuse_without_gpu("test a GPU");
}
void require_tuned(const TunedSubject&) {
  refuse_without_gpu("use a GPU's choices");
}
std::string tune_with_stored(const TunedSubject&, const std::string& given) {
  return given;
}

}  // namespace forge::session

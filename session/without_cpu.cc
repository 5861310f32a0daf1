// Stubs for a build without the CPU back-end.

#include "session/self_test/self_test.h"

namespace forge::session {

/// Empty: the tiny model's results on a GPU are compared with the CPU's, which this build cannot compute.
void self_test_model(const driver::Device&, const SelfTestOptions&, const SelfTestObserver&) {}

}  // namespace forge::session

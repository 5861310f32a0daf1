// What the tools do without the CPU's back-end.

#include "session/self_test/self_test.h"

namespace forge::session {

/// A card's tiny model is compared with the CPU's.
void self_test_model(const driver::Device&, const SelfTestOptions&, const SelfTestSink&) {}

}  // namespace forge::session

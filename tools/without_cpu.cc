// What the tools do without the CPU's back-end.

#include "tools/self_test.h"

namespace forge::tools {

/// A card's tiny model is compared with the CPU's.
void self_test_model(const driver::Device&, const SelfTestOptions&, const SelfTestSink&) {}

}  // namespace forge::tools

#pragma once
// `forge-inspect devices --self-test`.

#include <optional>
#include <string>

namespace forge::tools {

/// Tests all GPUs of this machine, or `device` ("hip:0") alone, each in a process of its own, and keeps the verdicts.
/// Writes a line for each primitive that is wrong and one for each card, or all results as JSON. Errors: kUsage for a
/// device that is none; kDevice when there is no GPU, and after all when a card failed or could not be tested.
void self_test_devices(const std::optional<std::string>& device, bool json);

}  // namespace forge::tools

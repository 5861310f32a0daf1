#pragma once
// forge-inspect devices --self-test: runs the self-test on GPUs.

#include <optional>
#include <string>

namespace forge::tools {

/// Tests all GPUs of this machine, or only `device` ("hip:0"), each in a child process, and stores the verdicts. Prints
/// one line per failed primitive and one per GPU, or all results as JSON. Errors: kUsage for an invalid device name;
/// kDevice when there is no GPU, and, after all tests, when a GPU failed or could not be tested.
void self_test_devices(const std::optional<std::string>& device, bool json);

}  // namespace forge::tools

// What the tools say of GPUs in a build without that back-end.

#include "support/error.h"
#include "tools/card_verdict.h"
#include "tools/inspect_code.h"
#include "tools/inspect_kernels.h"
#include "tools/self_test_command.h"
#include "tools/self_test_process.h"

namespace forge::tools {
namespace {

[[noreturn]] void refuse(const char* what) {
  throw Error(ErrorCode::kUsage, std::string("this forge cannot ") + what, "it was built without the back-end for GPUs",
              "build it with -Dback_ends=cpu,gpu");
}

}  // namespace

void require_sound_card(const driver::Driver&, const driver::DeviceInfo&) {
  refuse("test a GPU");
}
void self_test_devices(const std::optional<std::string>&, bool) {
  refuse("test GPUs");
}
void write_self_test(const std::string&) {
  refuse("test a GPU");
}
std::size_t write_code_objects(const std::filesystem::path&, const std::filesystem::path&) {
  refuse("take code objects out of plans");
}
std::string code_objects_text(const plan::ProgramT&) {
  return {};
}
void code_objects_json(JsonWriter& json, const plan::ProgramT&) {
  json.open("code_objects", '[').close();
}

}  // namespace forge::tools

// Stubs of forge-inspect's GPU functions for a build without the GPU back-end.

#include "support/error.h"
#include "tools/inspect/inspect_code.h"
#include "tools/inspect/inspect_kernels.h"
#include "tools/inspect/self_test_command.h"

namespace forge::tools {
namespace {

[[noreturn]] void refuse(const char* what) {
  throw Error(ErrorCode::kUsage, std::string("this forge cannot ") + what, "it was built without the GPU back-end",
              "build it with -Dback_ends=cpu,gpu");
}

}  // namespace

void self_test_devices(const std::optional<std::string>&, bool) {
  refuse("test GPUs");
}
std::size_t write_code_objects(const std::filesystem::path&, const std::filesystem::path&) {
  refuse("extract code objects from plans");
}
std::string code_objects_text(const plan::ProgramT&) {
  return {};
}
void code_objects_json(JsonWriter& json, const plan::ProgramT&) {
  json.open("code_objects", '[').close();
}

}  // namespace forge::tools

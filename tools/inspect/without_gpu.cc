// Stubs of forge-inspect's GPU functions for a build without the GPU back-end.

#include "session/without_gpu.h"
#include "tools/inspect/inspect_code.h"
#include "tools/inspect/inspect_kernels.h"
#include "tools/inspect/self_test_command.h"

namespace forge::tools {
using session::refuse_without_gpu;

void self_test_devices(const std::optional<std::string>&, bool) {
  refuse_without_gpu("test GPUs");
}
std::size_t write_code_objects(const std::filesystem::path&, const std::filesystem::path&) {
  refuse_without_gpu("extract code objects from plans");
}
std::string code_objects_text(const plan::ProgramT&) {
  return {};
}
void code_objects_json(JsonWriter& json, const plan::ProgramT&) {
  json.open("code_objects", '[').close();
}

}  // namespace forge::tools

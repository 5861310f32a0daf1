#include <fmt/format.h>
#include <unistd.h>

#include <fstream>

#include "codegen/compile.h"
#include "kernels/cpu/kernels.h"
#include "runtime/thread_pool.h"
#include "support/error.h"
#include "tools/console.h"
#include "tools/inspect_model.h"
#include "tools/json_text.h"
#include "tools/memory_limit.h"

namespace forge::tools {
namespace {

/// The value behind the first "key : value" line; empty when there is none.
std::string field_of(const char* path, std::string_view key) {
  std::ifstream in(path);
  std::string line;
  while (std::getline(in, line)) {
    if (!line.starts_with(key)) continue;
    const auto value = line.find_first_not_of(" \t", line.find(':') + 1);
    if (value != std::string::npos) return line.substr(value);
  }
  return {};
}

/// CPUs this process may run on: "0-3,8".
std::string affinity() {
  return field_of("/proc/self/status", "Cpus_allowed_list");
}

constexpr const char* kNoGpu = "no back-end in this forge yet: it runs on the CPU only";

}  // namespace

std::string inspect_devices(bool json_wanted) {
  const std::string model = field_of("/proc/cpuinfo", "model name");
  const auto online = ::sysconf(_SC_NPROCESSORS_ONLN);
  const auto pages = ::sysconf(_SC_PHYS_PAGES), page = ::sysconf(_SC_PAGESIZE);
  const auto total = static_cast<std::uint64_t>(pages) * static_cast<std::uint64_t>(page);
  const auto available = memory_available();
  const auto threads = runtime::ThreadPool::default_threads();
  if (json_wanted) {
    JsonWriter json;
    json.open('{').open("cpu", '{').field("name", model).field("target", codegen::host_target());
    json.field("features", cpu::features()).field("cores", online).field("affinity", affinity());
    json.field("threads", threads).field("memory", total).field("memory_available", available.bytes);
    json.field("memory_limit", available.what).close();
    json.open("hip", '{').field("available", false).field("reason", kNoGpu).close();
    json.open("cuda", '{').field("available", false).field("reason", kNoGpu).close().close();
    return json.take();
  }
  return fmt::format(
      "cpu     {}\n        target {}; features {}\n        {} cores online, this process may use {} ({} threads by "
      "default)\n        memory {}, {} available ({})\nhip     {}\ncuda    {}\n",
      printable(model, 100), codegen::host_target(), cpu::features(), online, printable(affinity(), 100), threads,
      human_bytes(total), human_bytes(available.bytes), available.what, kNoGpu, kNoGpu);
}

}  // namespace forge::tools

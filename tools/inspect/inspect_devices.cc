#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>

#include "codegen/back_end.h"
#include "runtime/driver/driver.h"
#include "runtime/thread_pool.h"
#include "session/device.h"
#include "session/memory_limit.h"
#include "support/error.h"
#include "support/json_text.h"
#include "support/os/console.h"
#include "tools/inspect/inspect_model.h"

namespace forge::tools {
namespace {

/// The value of the first "key : value" line of a file; empty if there is none.
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

/// The CPUs that this process may run on: "0-3,8".
std::string affinity() {
  return field_of("/proc/self/status", "Cpus_allowed_list");
}

void write_card(JsonWriter& json, const driver::DriverReport& report, const driver::DeviceInfo& card) {
  json.open('{').field("device", fmt::format("{}:{}", driver::device_prefix(report.vendor), card.ordinal));
  json.field("name", card.name).field("target", card.target).field("arch", card.arch).field("pci", card.pci);
  json.field("memory", card.memory_bytes).field("integrated", card.integrated).field("units", card.units);
  json.field("wave_size", card.wave_size).field("lds_per_block", card.lds_bytes_per_block);
  json.field("l2", card.l2_bytes).field("clock_khz", card.clock_khz);
  json.field("memory_clock_khz", card.memory_clock_khz).field("memory_bus_bits", card.memory_bus_bits).close();
}

void write_report(JsonWriter& json, const driver::DriverReport& report) {
  json.open(driver::device_prefix(report.vendor), '{').field("available", report.usable());
  json.field("library", report.library).field("version", report.version);
  json.field("compiler", report.compiler_library).field("compiler_version", report.compiler_version);
  json.open("cards", '[');
  for (const auto& card : report.devices) write_card(json, report, card);
  json.close().open("missing", '[');
  for (const auto& part : report.missing) {
    json.open('{').field("what", part.what).field("install", part.package).close();
  }
  json.close().open("problems", '[');
  for (const auto& problem : report.problems) json.item(problem);
  json.close().close();
}

/// The text for one vendor: driver, compiler, problems and missing packages, then two lines per GPU.
std::string report_text(const driver::DriverReport& report) {
  std::vector<std::string> lines;
  if (!report.library.empty()) lines.push_back(fmt::format("driver {}, {}", report.version, report.library));
  if (!report.compiler_library.empty()) {
    lines.push_back(fmt::format("{} {}, {}", driver::compiler_name(report.vendor), report.compiler_version,
                                report.compiler_library));
  }
  for (const auto& problem : report.problems) lines.push_back(strip_error_code(problem));
  for (const auto& part : report.missing) {
    const auto said = [&](const std::string& problem) { return problem.find(part.package) != std::string::npos; };
    if (std::ranges::none_of(report.problems, said)) {
      lines.push_back(fmt::format("missing: {}; install {}", part.what, part.package));
    }
  }
  if (report.devices.empty() && !report.library.empty()) lines.emplace_back("no GPU");
  std::string text;
  for (const std::string& line : lines) {
    text += fmt::format("{:<8}{}\n", text.empty() ? driver::device_prefix(report.vendor) : "", printable(line, 300));
  }
  for (const auto& card : report.devices) {
    text += fmt::format("{:<8}{}, {} at {}\n", fmt::format("{}:{}", driver::device_prefix(report.vendor), card.ordinal),
                        printable(card.name, 100), printable(card.arch, 100), card.pci);
    text += fmt::format("        memory {}{}; {} units, {} lanes per wave, {} LDS per block, {} L2\n",
                        human_bytes(card.memory_bytes), card.integrated ? " shared with the host" : "", card.units,
                        card.wave_size, human_bytes(card.lds_bytes_per_block), human_bytes(card.l2_bytes));
  }
  return text;
}

}  // namespace

std::string inspect_devices(bool json_wanted) {
  const std::string model = field_of("/proc/cpuinfo", "model name");
  const auto online = ::sysconf(_SC_NPROCESSORS_ONLN);
  const auto pages = ::sysconf(_SC_PHYS_PAGES), page = ::sysconf(_SC_PAGESIZE);
  const auto total = static_cast<std::uint64_t>(pages) * static_cast<std::uint64_t>(page);
  const auto available = memory_available();
  const auto threads = runtime::ThreadPool::default_threads();
  const auto reports =
      codegen::device_back_end() == nullptr ? std::vector<driver::DriverReport>() : driver::probe_drivers();
  const auto* host = codegen::host_back_end();
  const auto target = host == nullptr ? "none" : host->find("cpu").value();
  const auto features = host == nullptr ? "" : host->features();
  if (json_wanted) {
    JsonWriter json;
    json.open('{').open("cpu", '{').field("name", model).field("target", target);
    json.field("features", features).field("cores", online).field("affinity", affinity());
    json.field("threads", threads).field("memory", total).field("memory_available", available.bytes);
    json.field("memory_limit", available.what).close();
    for (const auto& report : reports) write_report(json, report);
    json.close();
    return json.take();
  }
  std::string text = fmt::format(
      "cpu     {}\n        target {}; features {}\n        {} cores online, this process may use {} ({} threads by "
      "default)\n        memory {}, {} available ({})\n",
      printable(model, 100), target, features, online, printable(affinity(), 100), threads, human_bytes(total),
      human_bytes(available.bytes), available.what);
  for (const auto& report : reports) text += report_text(report);
  return text;
}

}  // namespace forge::tools

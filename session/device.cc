#include "session/device.h"

#include <fmt/format.h>

#include <charconv>
#include <tuple>

#include "codegen/back_end.h"
#include "codegen/compile.h"
#include "support/error.h"
#include "support/os/console.h"

namespace forge::session {
namespace {

/// The N of "hip:N" for the prefix "hip"; 0 for "hip" alone; nullopt for another name.
std::optional<int> ordinal_of(std::string_view name, std::string_view prefix) {
  if (!name.starts_with(prefix)) return std::nullopt;
  name.remove_prefix(prefix.size());
  if (name.empty()) return 0;
  int ordinal = 0;
  const auto* end = name.data() + name.size();
  const auto [stop, failed] = std::from_chars(name.data() + 1, end, ordinal);
  if (name[0] != ':' || name.size() < 2 || failed != std::errc() || stop != end || ordinal < 0) return std::nullopt;
  return ordinal;
}

DeviceChoice open_named(const driver::Driver& driver, int ordinal) {
  const auto count = driver.devices().size();
  if (static_cast<std::size_t>(ordinal) >= count)
    throw Error(ErrorCode::kDevice, "there is no such GPU",
                fmt::format("the driver {} has {} GPUs, numbered from 0", printable(driver.library(), 100), count),
                "forge-inspect devices lists them");
  DeviceChoice choice{.driver = driver, .gpu = driver.device(ordinal), .named_by_user = true};
  const auto& info = choice.gpu->info();
  if (!codegen::needs_device(info.target))
    throw Error(ErrorCode::kDevice, fmt::format("{} cannot be used", printable(info.name)),
                fmt::format("forge has no kernels for {}", printable(info.target)), "use --device cpu");
  choice.target = codegen::resolve_targets(info.target).front();
  return choice;
}

/// Sort key of a GPU; the greatest one is the best choice for "auto".
auto merit(const driver::DeviceInfo& info) {
  return std::tuple(!info.integrated, info.memory_bytes, info.units);
}

DeviceChoice choose_best(const OpenDriver& open) {
  if (codegen::device_back_end() == nullptr) return choose_cpu({});
  struct Candidate {
    driver::Driver driver;
    driver::DeviceInfo info;
  };
  std::optional<Candidate> best;
  std::string unknown;
  bool any_driver = false;
  for (const auto vendor : driver::kVendors) {
    try {
      const auto driver = open(vendor);
      any_driver = true;
      for (const auto& info : driver.devices()) {
        if (!codegen::needs_device(info.target))
          unknown = fmt::format("forge has no kernels for {} ({})", printable(info.name), printable(info.target));
        else if (!best || merit(info) > merit(best->info))
          best = Candidate{driver, info};
      }
    } catch (const Error&) {
      continue;  // most machines have the driver of one vendor at most
    }
  }
  if (!best) {
    if (!unknown.empty()) return choose_cpu(unknown);
    return choose_cpu(any_driver ? "no GPU was found" : "no AMD or NVIDIA GPU driver is installed");
  }
  try {
    auto choice = open_named(best->driver, best->info.ordinal);
    choice.named_by_user = false;
    return choice;
  } catch (const Error& error) {
    return choose_cpu(strip_error_code(error.line()));
  }
}

}  // namespace

GpuName parse_gpu_name(std::string_view name) {
  for (const auto vendor : driver::kVendors)
    if (const auto ordinal = ordinal_of(name, driver::device_prefix(vendor))) return {vendor, *ordinal};
  throw Error(ErrorCode::kUsage, fmt::format("device '{}' is unknown", printable(name)), {},
              "devices are auto, cpu, hip:N and cuda:N");
}

DeviceChoice choose_cpu(std::string why) {
  if (!why.empty() && codegen::host_back_end() == nullptr)
    throw Error(ErrorCode::kDevice, "there is no device to run on", std::move(why),
                "this forge was built without the CPU back-end: build it with -Dback_ends=cpu,gpu");
  return {.target = codegen::host_target(), .cpu_reason = std::move(why)};
}

DeviceChoice device_for_kv_type(DeviceChoice choice, DType kv_type) {
  if (!choice.gpu || choice.named_by_user || codegen::supports_kv_type(choice.target, kv_type)) return choice;
  if (codegen::host_back_end() == nullptr || !codegen::supports_kv_type(codegen::host_target(), kv_type)) return choice;
  return choose_cpu(fmt::format("a KV cache of type {} is not supported on {}", dtype_name(kv_type), choice.target));
}

DeviceChoice choose_device(const std::string& name, const OpenDriver& open) {
  if (name == "auto") return choose_best(open);
  if (name == "cpu") {
    auto choice = choose_cpu({});
    choice.named_by_user = true;
    return choice;
  }
  const auto [vendor, ordinal] = parse_gpu_name(name);
  try {
    if (codegen::device_back_end() == nullptr)
      throw Error(ErrorCode::kDevice, "this forge cannot run on GPUs", "it was built without the GPU back-end",
                  "use --device cpu, or build it with -Dback_ends=cpu,gpu");
    return open_named(open(vendor), ordinal);
  } catch (const Error& error) {
    throw error.within(fmt::format("--device {}", name));
  }
}

}  // namespace forge::session

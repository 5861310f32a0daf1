#include "runtime/driver/driver.h"

#include <fmt/format.h>

#include <exception>
#include <optional>

#include "runtime/driver/library.h"
#include "runtime/driver/state.h"

namespace forge::driver {

std::string_view vendor_name(Vendor vendor) {
  switch (vendor) {
    case Vendor::kAmd:
      return "AMD";
    case Vendor::kNvidia:
      return "NVIDIA";
    case Vendor::kNull:
      break;
  }
  return "null";
}

std::string_view device_prefix(Vendor vendor) {
  return vendor == Vendor::kAmd ? "hip" : vendor == Vendor::kNvidia ? "cuda" : "null";
}

std::string_view compiler_name(Vendor vendor) {
  return vendor == Vendor::kAmd ? "hipRTC" : vendor == Vendor::kNvidia ? "NVRTC" : "none";
}

Outcome Status::outcome() const noexcept {
  if (ok()) return Outcome::kOk;
  if (reason_ != nullptr) return Outcome::kRefused;
  return api_ != nullptr ? api_->classify(code_) : Outcome::kUnavailable;
}

Error Status::error(std::string_view doing) const {
  std::string what(doing);
  if (ok()) return {ErrorCode::kInternal, std::move(what), fmt::format("{} did not fail", function_)};
  switch (outcome()) {
    case Outcome::kRefused:
      return {ErrorCode::kInternal, std::move(what), fmt::format("{}: {}", function_, reason_)};
    case Outcome::kUnavailable:
      return {ErrorCode::kDevice, std::move(what), fmt::format("the driver has no {}", function_),
              "install a newer driver"};
    default:
      break;
  }
  std::string why =
      fmt::format("{} returned {} ({}): {}", function_, api_->code_name(code_), code_, api_->code_text(code_));
  switch (outcome()) {
    case Outcome::kOutOfMemory:
      return {ErrorCode::kMemory, std::move(what), std::move(why),
              "free memory on the device, or use a smaller context (-c)"};
    case Outcome::kLost:
      return {
          ErrorCode::kDevice, std::move(what), std::move(why),
          "the device is lost to this process: restart the program, and check the kernel log if this happens again"};
    case Outcome::kNoDevice:
      return {ErrorCode::kDevice, std::move(what), std::move(why), "`forge-inspect devices` says what is missing"};
    default:
      return {ErrorCode::kDevice, std::move(what), std::move(why)};
  }
}

namespace {

/// Formats a vendor's version number. Source: HIP_VERSION in hip_version.h, CUDA_VERSION in cuda.h.
std::string version_text(Vendor vendor, int number) {
  if (number <= 0) return "unknown";
  if (vendor == Vendor::kNvidia) return fmt::format("{}.{}", number / 1000, number % 1000 / 10);
  if (vendor == Vendor::kNull) return fmt::format("{}", number);
  return fmt::format("{}.{}.{}", number / 10'000'000, number / 100'000 % 100, number % 100'000);
}

/// A driver that reports more devices than this is considered broken.
constexpr int kDevicesMax = 1024;

}  // namespace

/// Initialises a loaded driver and reads its devices. A driver without devices is fine: the callers list it as such.
Driver Driver::started(std::shared_ptr<DriverState> state) {
  Api& api = *state->api;
  const std::string starting = fmt::format("starting the {} driver", vendor_name(api.vendor()));
  const Status start = api.start();
  const bool no_device = start.outcome() == Outcome::kNoDevice;
  if (!no_device) start.check(starting);
  int driver = 0, runtime = 0, count = 0;
  const Status asked = api.versions(&driver, &runtime);
  if (!no_device) asked.check(starting);
  state->version = version_text(api.vendor(), asked.ok() ? driver : 0);
  if (no_device) return Driver(std::move(state));
  const Status counted = api.device_count(&count);
  if (counted.outcome() == Outcome::kNoDevice) return Driver(std::move(state));
  counted.check(starting);
  if (count < 0 || count > kDevicesMax) {
    throw Error(ErrorCode::kDevice, starting, fmt::format("it reports {} devices", count));
  }
  for (int ordinal = 0; ordinal < count; ++ordinal) {
    DeviceInfo info;
    api.describe(ordinal, &info).check(fmt::format("querying {} device {}", vendor_name(api.vendor()), ordinal));
    info.ordinal = ordinal;
    info.target = info.arch.substr(0, info.arch.find(':'));
    if ((info.wave_size != 32 && info.wave_size != 64) || info.target.empty()) {
      throw Error(ErrorCode::kDevice, fmt::format("{} device {} cannot be used", vendor_name(api.vendor()), ordinal),
                  fmt::format("the driver reports name \"{}\", architecture \"{}\" and {} lanes per wave",
                              printable(info.name), printable(info.arch), info.wave_size),
                  "report the driver's version, " + state->version);
    }
    state->devices.push_back(std::move(info));
  }
  return Driver(std::move(state));
}

/// Tries one library after the other. The first with a device wins; otherwise the first that could be initialised;
/// otherwise the first error is reported.
Driver Driver::open(Vendor vendor) {
  if (vendor == Vendor::kNull) throw Error(ErrorCode::kInternal, "opening a driver", "the null driver has no library");
  LibrarySearch search = driver_libraries(vendor);
  std::optional<Driver> without_card;
  std::exception_ptr failure;
  for (;;) {
    try {
      auto state = std::make_shared<DriverState>();
      state->api = vendor == Vendor::kAmd ? load_hip(search) : load_cuda(search);
      if (state->api == nullptr) break;
      Driver driver = started(std::move(state));
      if (!driver.devices().empty()) return driver;
      if (!failure && !without_card) without_card = std::move(driver);
    } catch (const Error&) {
      // Without support for the vendor in this build, all libraries would fail alike.
      if (!has_column(vendor)) throw;
      if (!failure && !without_card) failure = std::current_exception();
    }
  }
  if (without_card) return *std::move(without_card);
  if (failure) std::rethrow_exception(failure);
  throw not_loaded(vendor == Vendor::kAmd ? "libamdhip64.so" : "libcuda.so.1", search.failure(),
                   driver_package(vendor));
}

Driver Driver::start(std::unique_ptr<Api> api) {
  auto state = std::make_shared<DriverState>();
  state->api = std::move(api);
  return started(std::move(state));
}

Vendor Driver::vendor() const {
  return state_->api->vendor();
}
std::string Driver::library() const {
  return state_->api->library();
}
std::string Driver::version() const {
  return state_->version;
}
std::span<const DeviceInfo> Driver::devices() const {
  return state_->devices;
}
AllocationCounts Driver::device_allocations() const {
  return state_->device_memory.counts();
}
AllocationCounts Driver::pinned_allocations() const {
  return state_->pinned_memory.counts();
}
std::uint64_t Driver::failed_releases() const {
  return state_->failed_releases;
}

Device Driver::device(int ordinal) const {
  if (ordinal < 0 || static_cast<std::size_t>(ordinal) >= state_->devices.size()) {
    throw Error(ErrorCode::kUsage, fmt::format("there is no {} device {}", vendor_name(vendor()), ordinal),
                fmt::format("the driver has {}", state_->devices.size()),
                "`forge-inspect devices` lists them, counted from 0");
  }
  return Device(std::make_shared<DeviceState>(state_, ordinal));
}

DeviceState::DeviceState(std::shared_ptr<DriverState> owner, int number) : driver(std::move(owner)), ordinal(number) {
  api().open_device(ordinal).check(fmt::format("opening {}", info().name));
}

DeviceState::~DeviceState() {
  driver->released(api().close_device(ordinal));
}

const DeviceInfo& Device::info() const {
  return state_->info();
}
Vendor Device::vendor() const {
  return state_->api().vendor();
}

AllocationCounts Device::allocations() const {
  return state_->driver->device_memory.counts();
}
std::uint64_t Device::free_bytes() const {
  std::size_t free_bytes = 0, total_bytes = 0;
  state_->with([&](Api& api) { return api.memory_info(&free_bytes, &total_bytes); }).check("querying free memory");
  return free_bytes;
}

}  // namespace forge::driver

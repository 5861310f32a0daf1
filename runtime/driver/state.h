#pragma once
// The state behind the handles of driver.h: a loaded driver and an opened device. Private to runtime/driver.

#include <atomic>
#include <memory>
#include <string>
#include <vector>

#include "runtime/driver/api.h"

namespace forge::driver {

/// Counts allocations of one kind of memory. Thread-safe.
class AllocationCounter {
 public:
  void add(std::size_t bytes) noexcept {
    live_ += 1, live_bytes_ += bytes;
    total_ += 1, total_bytes_ += bytes;
  }
  void remove(std::size_t bytes) noexcept { live_ -= 1, live_bytes_ -= bytes; }
  [[nodiscard]] AllocationCounts counts() const { return {live_, live_bytes_, total_, total_bytes_}; }

 private:
  std::atomic<std::uint64_t> live_ = 0, live_bytes_ = 0, total_ = 0, total_bytes_ = 0;
};

/// A loaded driver.
struct DriverState {
  std::unique_ptr<Api> api;
  std::vector<DeviceInfo> devices;
  std::string version;
  AllocationCounter device_memory, pinned_memory;
  std::atomic<std::uint64_t> failed_releases = 0;

  /// Counts a failed release: destructors cannot report it otherwise.
  void released(const Status& status) noexcept { failed_releases += status.ok() ? 0 : 1; }
};

/// An opened device. It has a context as long as this object lives.
struct DeviceState {
  DeviceState(std::shared_ptr<DriverState> owner, int ordinal);
  DeviceState(const DeviceState&) = delete;
  DeviceState& operator=(const DeviceState&) = delete;
  ~DeviceState();
  [[nodiscard]] const DeviceInfo& info() const { return driver->devices[static_cast<std::size_t>(ordinal)]; }
  [[nodiscard]] Api& api() const { return *driver->api; }

  /// Runs `call(api)` with this device current on the calling thread.
  template <typename Call>
  Status with(Call&& call) const {
    if (Status status = driver->api->make_current(ordinal); !status.ok()) return status;
    return call(*driver->api);
  }

  std::shared_ptr<DriverState> driver;
  int ordinal;
};

}  // namespace forge::driver

#pragma once
// Status, the result of a driver call as a value. Set-up code turns it into an exception with check(); the step loop
// inspects it.

#include <array>
#include <cstdint>
#include <string_view>

#include "support/error.h"

namespace forge::driver {

class Api;

/// kNull: no vendor's; the driver that tests have in their process.
enum class Vendor : std::uint8_t { kAmd, kNvidia, kNull };

/// Vendors with real devices.
inline constexpr std::array kVendors{Vendor::kAmd, Vendor::kNvidia};

/// "AMD", "NVIDIA" or "null".
[[nodiscard]] std::string_view vendor_name(Vendor vendor);
/// Prefix of the vendor's devices on the command line: "hip", "cuda" or "null".
[[nodiscard]] std::string_view device_prefix(Vendor vendor);
/// Name of the vendor's run-time compiler: "hipRTC", "NVRTC" or "none".
[[nodiscard]] std::string_view compiler_name(Vendor vendor);

/// Classes of results that callers handle differently, independent of the vendor's codes.
enum class Outcome : std::uint8_t {
  kOk,
  kNotReady,     ///< work is pending (queries); not a failure
  kOutOfMemory,  ///< device or pinned memory is exhausted
  kNoDevice,     ///< the driver works, but the device does not exist
  kLost,         ///< the device has faulted or disappeared; every later call fails
  kUnavailable,  ///< the installed driver does not have the function
  kRefused,      ///< the arguments were refused by this layer; no driver was called
  kFailed,       ///< any other failure
};

/// Result of one call. Valid as long as the Driver it came from. Must not be ignored (compile-time error).
class [[nodiscard]] Status {
 public:
  constexpr Status() noexcept = default;
  /// `function`: name of the driver's function (a literal). `code`: the vendor's code; 0 is success.
  constexpr Status(const Api* api, const char* function, int code) noexcept
      : api_(api), function_(function), code_(code) {}
  /// A call that this layer refuses, with the reason (a literal).
  static constexpr Status refused(const char* function, const char* reason) noexcept {
    Status status(nullptr, function, kLocalCode);
    status.reason_ = reason;
    return status;
  }
  /// The installed library does not have the function.
  static constexpr Status unavailable(const char* function) noexcept { return {nullptr, function, kLocalCode}; }

  [[nodiscard]] constexpr bool ok() const noexcept { return code_ == 0; }
  [[nodiscard]] Outcome outcome() const noexcept;
  [[nodiscard]] int code() const noexcept { return code_; }
  [[nodiscard]] const char* function() const noexcept { return function_; }

  /// The Error for a failed call: function, code name, number and text, and `doing`, what was being done ("recording
  /// forward"). kMemory if memory is exhausted, kInternal if this layer refused the arguments, otherwise kDevice.
  [[nodiscard]] Error error(std::string_view doing) const;
  /// Throws error(doing) unless ok().
  void check(std::string_view doing) const {
    if (!ok()) throw error(doing);
  }

 private:
  static constexpr int kLocalCode = -1;
  const Api* api_ = nullptr;
  const char* function_ = "";
  const char* reason_ = nullptr;
  int code_ = 0;
};

}  // namespace forge::driver

#pragma once
// What a driver call returned, as a value: set-up code turns it into an Error, the step loop looks at it.

#include <array>
#include <cstdint>
#include <string_view>

#include "support/error.h"

namespace forge::driver {

class Api;

/// kNull: no vendor's; the driver that tests have in their process.
enum class Vendor : std::uint8_t { kAmd, kNvidia, kNull };

/// Those whose cards there are.
inline constexpr std::array kVendors{Vendor::kAmd, Vendor::kNvidia};

/// "AMD", "NVIDIA", "null".
[[nodiscard]] std::string_view vendor_name(Vendor vendor);
/// What its cards are called on the command line: "hip", "cuda"; "null" for the null driver's.
[[nodiscard]] std::string_view device_prefix(Vendor vendor);
/// Its run-time compiler: "hipRTC", "NVRTC"; "none".
[[nodiscard]] std::string_view compiler_name(Vendor vendor);

/// What a caller does about a code, whatever the vendor's number for it is.
enum class Outcome : std::uint8_t {
  kOk,
  kNotReady,     ///< a query: work is still under way; no failure
  kOutOfMemory,  ///< device or pinned memory
  kNoDevice,     ///< the driver works and has no (such) card
  kLost,         ///< the card faulted or fell off: every later call fails too
  kUnavailable,  ///< this driver version has no such function
  kRefused,      ///< this layer refused the arguments before any driver saw them
  kFailed,       ///< anything else
};

/// One call's result. Valid as long as the Driver it came from. Ignoring one is a compile-time error.
class [[nodiscard]] Status {
 public:
  constexpr Status() noexcept = default;
  /// `function`: the driver's name for the call, a literal. `code`: the vendor's number, 0 is success.
  constexpr Status(const Api* api, const char* function, int code) noexcept
      : api_(api), function_(function), code_(code) {}
  /// A call that this layer does not pass on, with the reason (a literal).
  static constexpr Status refused(const char* function, const char* reason) noexcept {
    Status status(nullptr, function, kLocalCode);
    status.reason_ = reason;
    return status;
  }
  /// The function is not in this version of the driver library.
  static constexpr Status unavailable(const char* function) noexcept { return {nullptr, function, kLocalCode}; }

  [[nodiscard]] constexpr bool ok() const noexcept { return code_ == 0; }
  [[nodiscard]] Outcome outcome() const noexcept;
  [[nodiscard]] int code() const noexcept { return code_; }
  [[nodiscard]] const char* function() const noexcept { return function_; }

  /// The error of a failed call: function, the code's name, number and text, and what was being done ("recording
  /// forward"). kMemory when memory ran out, kInternal when this layer refused the arguments, else kDevice.
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

#pragma once
// Errors as clients get them: OpenAI's shape, and beside it whose fault it is and whether trying again may help.

#include <string>
#include <string_view>

#include "runtime/engine/request.h"
#include "serve/http/http.h"
#include "support/error.h"

namespace forge::serve {

/// Whose fault: the request's, too much work at once, a device's, or a bug of forge.
enum class ErrorCategory : std::uint8_t { kUser, kLoad, kDevice, kInternal };
[[nodiscard]] std::string_view category_name(ErrorCategory category);

struct ApiError {
  unsigned status = 400;
  std::string code;     ///< stable, for programs
  std::string message;  ///< one line, for people
  std::string param;    ///< the member of the request that is wrong; empty: none
  ErrorCategory category = ErrorCategory::kUser;
  int retry_after_s = -1;  ///< at least 0: worth trying again, not before so many seconds

  [[nodiscard]] bool recoverable() const { return retry_after_s >= 0; }
};

/// What is wrong with a request's body: 400.
[[nodiscard]] ApiError bad_request(std::string code, std::string message, std::string param = {});
/// `retry_after_s` is for those that may be tried again, `input` the member of the body that may be too long.
[[nodiscard]] ApiError error_of(const engine::Refusal& refusal, int retry_after_s, std::string_view input);
[[nodiscard]] ApiError error_of(const Error& error);
/// How a sample ended that did not end well; `line` is the engine's.
[[nodiscard]] ApiError error_of(engine::FinishReason reason, std::string_view line);

/// {"error": {...}}
[[nodiscard]] std::string error_json(const ApiError& error);
[[nodiscard]] Response error_response(const ApiError& error);

}  // namespace forge::serve

#pragma once
// Error responses: OpenAI's JSON form, extended by a category and by whether a retry may help.

#include <string>
#include <string_view>

#include "runtime/engine/request.h"
#include "serve/http/http.h"
#include "support/error.h"

namespace forge::serve {

/// Cause of an error: a bad request, overload or a missed deadline, the device, or a bug of forge.
enum class ErrorCategory : std::uint8_t { kUser, kLoad, kDevice, kInternal };
[[nodiscard]] std::string_view category_name(ErrorCategory category);

struct ApiError {
  unsigned status = 400;
  std::string code;     ///< stable, for programs
  std::string message;  ///< one line, for people
  std::string param;    ///< the member of the request that is wrong; empty: none
  ErrorCategory category = ErrorCategory::kUser;
  int retry_after_s = -1;  ///< seconds after which a retry may succeed; -1: a retry will not help

  [[nodiscard]] bool recoverable() const { return retry_after_s >= 0; }
};

/// A 400 error about the request's body.
[[nodiscard]] ApiError bad_request(std::string code, std::string message, std::string param = {});
/// The error for a request that the engine refused. `retry_after_s` is used where a retry may help; `input` is the
/// body's member that is named if the prompt is too long.
[[nodiscard]] ApiError error_of(const engine::Refusal& refusal, int retry_after_s, std::string_view input);
[[nodiscard]] ApiError error_of(const Error& error);
/// The error for a sample that ended with a deadline or an error; `line` is the engine's error line.
[[nodiscard]] ApiError error_of(engine::FinishReason reason, std::string_view line);

/// {"error": {...}}
[[nodiscard]] std::string error_json(const ApiError& error);
[[nodiscard]] Response error_response(const ApiError& error);

}  // namespace forge::serve

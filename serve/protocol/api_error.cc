#include "serve/protocol/api_error.h"

#include <fmt/format.h>

#include <utility>

#include "support/json_text.h"

namespace forge::serve {
namespace {

/// A constraint whose automaton or masks take too much: the request is to blame, and trying again is of no use.
bool is_too_complex(std::string_view line) {
  return line.starts_with("error[memory]: the constraint ");
}

/// Others' constraints take the memory that this one needs (session::Constraints).
bool waits_for_others(std::string_view line) {
  return line.starts_with("error[memory]: constraints of other requests ");
}

/// OpenAI's error type for a status.
std::string_view type_of(unsigned status) {
  switch (status) {
    case 401:
      return "authentication_error";
    case 404:
      return "not_found_error";
    case 429:
      return "rate_limit_error";
    default:
      return status < 500 ? "invalid_request_error" : "server_error";
  }
}

/// Without the prefix "error[code]: " of the tools' messages; answers have a code of their own.
std::string_view without_code(std::string_view line) {
  const auto end = line.find("]: ");
  return line.starts_with("error[") && end != std::string_view::npos ? line.substr(end + 3) : line;
}

}  // namespace

std::string_view category_name(ErrorCategory category) {
  switch (category) {
    case ErrorCategory::kLoad:
      return "load";
    case ErrorCategory::kDevice:
      return "device";
    case ErrorCategory::kInternal:
      return "internal";
    default:
      return "user";
  }
}

ApiError bad_request(std::string code, std::string message, std::string param) {
  return {.status = 400, .code = std::move(code), .message = std::move(message), .param = std::move(param)};
}

ApiError error_of(const engine::Refusal& refusal, int retry_after_s, std::string_view input) {
  using engine::RefusalKind;
  switch (refusal.kind) {
    case RefusalKind::kTooLong:
      return bad_request("context_length_exceeded", refusal.message, std::string(input));
    case RefusalKind::kNoRoom:
      return bad_request("no_room", refusal.message);
    case RefusalKind::kQueueFull:
      return {.status = 429,
              .code = "queue_full",
              .message = refusal.message,
              .category = ErrorCategory::kLoad,
              .retry_after_s = retry_after_s};
    case RefusalKind::kUnhealthy:
      return {.status = 503,
              .code = "unavailable",
              .message = refusal.message,
              .category = ErrorCategory::kDevice,
              .retry_after_s = retry_after_s};
    case RefusalKind::kInternal:
      return {.status = 500, .code = "internal", .message = refusal.message, .category = ErrorCategory::kInternal};
    default:
      return bad_request("invalid_value", refusal.message);
  }
}

ApiError error_of(const Error& error) {
  if (is_too_complex(error.line())) return bad_request("constraint_too_complex", error.line());
  if (waits_for_others(error.line()))
    return {
        .status = 503, .code = "busy", .message = error.line(), .category = ErrorCategory::kLoad, .retry_after_s = 1};
  switch (error.code()) {
    case ErrorCode::kUsage:
    case ErrorCode::kPrompt:
      return bad_request("invalid_value", error.line());
    case ErrorCode::kTemplate:
      return bad_request("chat_template", error.line(), "messages");
    case ErrorCode::kDevice:
      return {.status = 503,
              .code = "device",
              .message = error.line(),
              .category = ErrorCategory::kDevice,
              .retry_after_s = 1};
    default:
      return {.status = 500, .code = "internal", .message = error.line(), .category = ErrorCategory::kInternal};
  }
}

ApiError error_of(engine::FinishReason reason, std::string_view line) {
  if (reason == engine::FinishReason::kDeadline)
    return {.status = 504,
            .code = "deadline",
            .message = "the request timed out",
            .category = ErrorCategory::kLoad,
            .retry_after_s = 1};
  if (line.starts_with("error[device]"))
    return {.status = 503,
            .code = "device",
            .message = std::string(line),
            .category = ErrorCategory::kDevice,
            .retry_after_s = 1};
  if (is_too_complex(line)) return bad_request("constraint_too_complex", std::string(line));
  if (line.starts_with("error[prompt]")) return bad_request("no_token_possible", std::string(line));
  if (line.starts_with("error[run]"))
    return {.status = 429,
            .code = "queue_full",
            .message = std::string(line),
            .category = ErrorCategory::kLoad,
            .retry_after_s = 1};
  return {.status = 500, .code = "internal", .message = std::string(line), .category = ErrorCategory::kInternal};
}

std::string error_json(const ApiError& error) {
  JsonWriter json(JsonLayout::kCompact);
  json.open('{').open("error", '{').field("message", without_code(error.message)).field("type", type_of(error.status));
  json.raw("param", error.param.empty() ? "null" : json_string(error.param)).field("code", error.code);
  json.field("category", category_name(error.category)).field("recoverable", error.recoverable());
  return json.close().close().take();
}

Response error_response(const ApiError& error) {
  Response response{.status = error.status, .body = error_json(error)};
  if (error.recoverable()) response.headers.emplace_back("Retry-After", fmt::format("{}", error.retry_after_s));
  if (error.status == 401) response.headers.emplace_back("WWW-Authenticate", "Bearer");
  return response;
}

}  // namespace forge::serve

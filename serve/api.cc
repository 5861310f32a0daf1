#include "serve/api.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <random>
#include <utility>

#include "serve/handlers.h"
#include "serve/protocol/api_error.h"

namespace forge::serve {
namespace {

struct Route {
  RouteInfo info;
  bool works = false;  ///< takes a JSON body and is handled on a worker thread
  Handlers::Result (*handle)(Call&);
};

constexpr bool kOpen = true, kWorks = true;
constexpr std::string_view kId = "{id}";

constexpr std::array kRoutes{
    Route{{"GET", "/health", kOpen}, false, Handlers::health},
    Route{{"GET", "/ready", kOpen}, false, Handlers::ready},
    Route{{"GET", "/metrics"}, false, Handlers::metrics},
    Route{{"GET", "/v1/models"}, false, Handlers::models},
    Route{{"GET", "/v1/models/{id}"}, false, Handlers::model},
    Route{{"POST", "/v1/completions"}, kWorks, Handlers::completions},
    Route{{"POST", "/v1/chat/completions"}, kWorks, Handlers::chat},
    Route{{"POST", "/v1/embeddings"}, kWorks, Handlers::embeddings},
    Route{{"POST", "/v1/rerank"}, kWorks, Handlers::rerank},
    Route{{"POST", "/rerank"}, kWorks, Handlers::rerank},
    Route{{"POST", "/generate"}, kWorks, Handlers::generate},
    Route{{"POST", "/generate/stream"}, kWorks, Handlers::generate_stream},
    Route{{"GET", "/status/{id}"}, false, Handlers::status},
    Route{{"POST", "/cancel/{id}"}, false, Handlers::cancel},
    Route{{"POST", "/tokenize"}, kWorks, Handlers::tokenize},
    Route{{"POST", "/detokenize"}, kWorks, Handlers::detokenize},
    Route{{"POST", "/apply-template"}, kWorks, Handlers::apply_template},
};

/// If `path` matches `pattern`: the text in place of {id}, or "" for a pattern without one. Else nullopt. An {id} has
/// no slash.
std::optional<std::string_view> match(std::string_view pattern, std::string_view path) {
  if (!pattern.ends_with(kId)) return path == pattern ? std::optional(std::string_view()) : std::nullopt;
  pattern.remove_suffix(kId.size());
  if (!path.starts_with(pattern)) return std::nullopt;
  const auto rest = path.substr(pattern.size());
  return rest.empty() || rest.find('/') != std::string_view::npos ? std::nullopt : std::optional(rest);
}

/// Compares two keys in constant time for keys of equal length, so that timing does not reveal a matching prefix.
bool same_key(std::string_view given, std::string_view key) {
  if (given.size() != key.size()) return false;
  unsigned difference = 0;
  for (std::size_t i = 0; i < key.size(); ++i)
    difference |= static_cast<unsigned>(static_cast<unsigned char>(given[i]) ^ static_cast<unsigned char>(key[i]));
  return difference == 0;
}

/// Wraps an answer and adds the CORS headers for `origin` to its head.
class WithHeaders final : public Answer {
 public:
  WithHeaders(std::unique_ptr<Answer> inner, std::string origin)
      : inner_(std::move(inner)), origin_(std::move(origin)) {}
  Part poll() override {
    auto part = inner_->poll();
    if (!part.head) return part;
    part.head->headers.emplace_back("Access-Control-Allow-Origin", origin_);
    part.head->headers.emplace_back("Access-Control-Expose-Headers", "X-Request-Id, Retry-After");
    part.head->headers.emplace_back("Vary", "Origin");
    return part;
  }
  [[nodiscard]] std::string_view ping() const override { return inner_->ping(); }

 private:
  std::unique_ptr<Answer> inner_;
  std::string origin_;
};

bool is_json(std::string_view content_type) {
  constexpr std::string_view kJson = "application/json";
  const auto type = content_type.substr(0, content_type.find(';'));
  const auto lower = [](char a, char b) { return (a | 0x20) == b || a == b; };
  const auto end = type.find_last_not_of(" \t");
  return std::ranges::equal(type.substr(0, end == std::string_view::npos ? 0 : end + 1), kJson, lower);
}

/// Calls the route's handler and turns everything it throws into an error response.
std::unique_ptr<Answer> guarded(const Route& route, Call& call) {
  try {
    return route.handle(call);
  } catch (const Error& error) {
    return answer_of(error_of(error));
  } catch (const std::exception& error) {
    return answer_of(ApiError{.status = 500,
                              .code = "internal",
                              .message = fmt::format("a bug of forge: {}", printable(error.what(), 200)),
                              .category = ErrorCategory::kInternal});
  }
}

}  // namespace

std::vector<RouteInfo> routes() {
  std::vector<RouteInfo> all;
  for (const auto& route : kRoutes) all.push_back(route.info);
  return all;
}

Api::Api(ApiOptions options, const Log& log) : options_(std::move(options)), log_(log), workers_(options_.workers) {}

Api::~Api() {
  stop();
}

void Api::serve(std::unique_ptr<ServedModel> model) {
  owned_model_ = std::move(model);
  model_ = owned_model_.get();
}

void Api::drain() {
  draining_ = true;
}

void Api::stop() {
  workers_.stop();
  model_ = nullptr;
  owned_model_.reset();
}

std::string Api::new_id() {
  thread_local std::random_device device;
  const auto half = [] { return (std::uint64_t{device()} << 32) | device(); };
  return fmt::format("{:016x}{:016x}", half(), half());
}

Read<ServedModel*> Api::model_for(const std::string& name) const {
  auto* model = model_.load();
  if (model == nullptr || draining_)
    return std::unexpected(
        ApiError{.status = 503,
                 .code = model == nullptr ? "loading" : "draining",
                 .message = model == nullptr ? "the model is being loaded" : "the server is shutting down",
                 .category = ErrorCategory::kLoad,
                 .retry_after_s = 1});
  if (!name.empty() && name != model->name())
    return std::unexpected(ApiError{
        .status = 404,
        .code = "model_not_found",
        .message = fmt::format("there is no model '{}'; this server serves '{}'", printable(name), model->name()),
        .param = "model"});
  return model;
}

bool Api::is_authorized(const HttpRequest& request) const {
  if (options_.keys.empty()) return true;
  constexpr std::string_view kBearer = "Bearer ";
  std::string_view given = request.authorization;
  if (!given.starts_with(kBearer)) return false;
  given.remove_prefix(kBearer.size());
  bool found = false;
  for (const auto& key : options_.keys) found = same_key(given, key) || found;
  return found;
}

std::optional<std::string_view> Api::allowed_origin(const HttpRequest& request) const {
  if (request.origin.empty()) return std::nullopt;
  for (const auto& origin : options_.origins)
    if (origin == "*" || origin == request.origin) return std::string_view(request.origin);
  return std::nullopt;
}

std::unique_ptr<Answer> Api::answer(HttpRequest request, Wake wake) {
  const auto origin = allowed_origin(request);
  if (!origin) return route(std::move(request), std::move(wake));
  const std::string kept(*origin);
  if (request.method == "OPTIONS") {
    Response response{.status = 204};
    response.headers = {{"Access-Control-Allow-Methods", "GET, POST, OPTIONS"}, {"Access-Control-Max-Age", "600"}};
    if (!request.asked_headers.empty())
      response.headers.emplace_back("Access-Control-Allow-Headers", request.asked_headers);
    return std::make_unique<WithHeaders>(answer_of(std::move(response)), kept);
  }
  return std::make_unique<WithHeaders>(route(std::move(request), std::move(wake)), kept);
}

/// Result of routing a request by its head: a route, or the response that refuses it.
struct Api::RouteMatch {
  const Route* route = nullptr;  ///< nullptr: refused
  std::string_view id;           ///< into the request
  Response refusal;
};

Api::RouteMatch Api::match_route(const HttpRequest& request) const {
  std::string methods;
  const auto method = request.method == "HEAD" ? std::string_view("GET") : std::string_view(request.method);
  for (const auto& route : kRoutes) {
    const auto rest = match(route.info.path, request.path());
    if (!rest) continue;
    if (route.info.method != method) {
      methods += (methods.empty() ? "" : ", ") + std::string(route.info.method);
      continue;
    }
    if (!route.info.open && !is_authorized(request))
      return {.refusal =
                  error_response({.status = 401,
                                  .code = "invalid_api_key",
                                  .message = "the API key is missing or wrong: send Authorization: Bearer KEY"})};
    if (route.works && !is_json(request.content_type))
      return {.refusal = error_response({.status = 415,
                                         .code = "unsupported_media_type",
                                         .message = "the body must be JSON: send Content-Type: application/json"})};
    return {.route = &route, .id = *rest, .refusal = {}};
  }
  if (methods.empty())
    return {.refusal = error_response({.status = 404,
                                       .code = "unknown_route",
                                       .message = fmt::format("there is no route '{}'", printable(request.path()))})};
  RouteMatch found{
      .refusal = error_response({.status = 405,
                                 .code = "method_not_allowed",
                                 .message = fmt::format("{} allows {} only", printable(request.path()), methods)})};
  found.refusal.headers.emplace_back("Allow", methods);
  return found;
}

bool Api::wants_body(const HttpRequest& head) const {
  return match_route(head).route != nullptr;
}

std::unique_ptr<Answer> Api::route(HttpRequest request, Wake wake) {
  auto found = match_route(request);
  if (found.route == nullptr) return answer_of(std::move(found.refusal));
  std::string id(found.id);
  const auto& route = *found.route;
  auto call = std::make_shared<Call>(*this, std::move(request), std::move(id), wake);
  if (!route.works) return guarded(route, *call);
  return workers_.answer([&route, call] { return guarded(route, *call); }, std::move(wake));
}

Response Api::refuse(BadHttp why) {
  const auto refusal = [&]() -> ApiError {
    switch (why) {
      case BadHttp::kHeadTooLarge:
        return {.status = 431, .code = "head_too_large", .message = "the request's headers are too large"};
      case BadHttp::kBodyTooLarge:
        return {.status = 413, .code = "body_too_large", .message = "the request's body is too large"};
      case BadHttp::kTimeout:
        return {.status = 408, .code = "timeout", .message = "the request was not received in time"};
      case BadHttp::kTooManyConnections:
        return {.status = 503,
                .code = "too_many_connections",
                .message = "too many connections are open",
                .category = ErrorCategory::kLoad,
                .retry_after_s = 1};
      case BadHttp::kFailed:
        return {
            .status = 500, .code = "internal", .message = "the answer failed", .category = ErrorCategory::kInternal};
      default:
        return bad_request("malformed_http", "this is not a valid HTTP request");
    }
  }();
  if (why != BadHttp::kFailed) metrics_.http_ended(refusal.status);  // that request ends like others
  log_.write(LogLevel::kWarning, "refused",
             {{"status", std::int64_t{refusal.status}}, {"code", std::string_view(refusal.code)}});
  return error_response(refusal);
}

void Api::ended(const HttpRequest& request, const Outcome& outcome) {
  metrics_.http_ended(outcome.status);
  const double ms = std::chrono::duration<double, std::milli>(outcome.took).count();
  const auto level = outcome.status == 500  ? LogLevel::kError
                     : outcome.status > 500 ? LogLevel::kWarning
                                            : LogLevel::kInfo;
  log_.write(level, "request",
             {{"id", std::string_view(request.id)},
              {"method", std::string_view(request.method)},
              {"path", request.path()},
              {"status", std::int64_t{outcome.status}},
              {"ms", ms},
              {"bytes", static_cast<std::int64_t>(outcome.bytes)},
              {"gone", outcome.gone}});
}

}  // namespace forge::serve

#pragma once
// The HTTP API without sockets: the route table, API keys, CORS and the calls of the handlers (handlers.h). HttpServer
// calls it through the Service interface; forge-serve and tests create it.

#include <atomic>
#include <chrono>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "serve/http/http.h"
#include "serve/http/log.h"
#include "serve/http/workers.h"
#include "serve/metrics.h"
#include "serve/registry.h"
#include "serve/served_model.h"

namespace forge::serve {

struct ApiOptions {
  std::vector<std::string> keys;                       ///< accepted API keys; empty: no key is required
  std::vector<std::string> origins;                    ///< allowed CORS origins of web pages; "*": any
  std::chrono::milliseconds request_timeout{600'000};  ///< maximum duration; a request's own timeout may be shorter
  std::size_t workers = 4;                             ///< threads that parse bodies, tokenise and submit requests
};

/// A route without its handler, for the test that compares the routes with openapi.json.
struct RouteInfo {
  std::string_view method, path;  ///< "GET", "/status/{id}"
  bool open = false;              ///< needs no API key
};
[[nodiscard]] std::vector<RouteInfo> routes();

class Api final : public Service {
 public:
  /// The log must outlive it.
  Api(ApiOptions options, const Log& log);
  ~Api() override;

  // From any thread.
  /// Starts to serve `model`; called once. Before that, requests get 503 "loading".
  void serve(std::unique_ptr<ServedModel> model);
  /// From now on refuses requests that need the model, with 503 "draining"; running ones continue.
  void drain();
  /// Stops the workers and the engine, and ends all requests; afterwards no Wake is called. Must be called before the
  /// HttpServer is destroyed, because a Wake posts to its event loop.
  void stop();

  [[nodiscard]] std::string new_id() override;
  [[nodiscard]] bool wants_body(const HttpRequest& head) const override;
  [[nodiscard]] std::unique_ptr<Answer> answer(HttpRequest request, Wake wake) override;
  [[nodiscard]] Response refuse(BadHttp why) override;
  void ended(const HttpRequest& request, const Outcome& outcome) override;

 private:
  friend struct Handlers;
  struct RouteMatch;
  [[nodiscard]] bool is_authorized(const HttpRequest& request) const;
  [[nodiscard]] RouteMatch match_route(const HttpRequest& request) const;
  [[nodiscard]] std::unique_ptr<Answer> route(HttpRequest request, Wake wake);
  [[nodiscard]] std::optional<std::string_view> allowed_origin(const HttpRequest& request) const;
  /// The model for a request that names `name` (empty: any). Errors: 503 loading or draining, 404 another model.
  [[nodiscard]] Read<ServedModel*> model_for(const std::string& name) const;

  ApiOptions options_;
  const Log& log_;
  Metrics metrics_;
  Registry registry_{metrics_};
  std::atomic<ServedModel*> model_{nullptr};
  std::unique_ptr<ServedModel> owned_model_;
  std::atomic<bool> draining_{false};
  Workers workers_;
};

}  // namespace forge::serve

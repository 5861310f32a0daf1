#pragma once
// What the server answers: routes, keys, CORS, and one handler a route.

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
  std::vector<std::string> keys;                       ///< any of them is let in; none: everybody
  std::vector<std::string> origins;                    ///< of pages that may call (CORS); "*": any
  std::chrono::milliseconds request_timeout{600'000};  ///< from arrival to the end; requests may ask for less
  std::size_t workers = 2;
};

/// What is known of a route without its handler: for the OpenAPI file's test.
struct RouteInfo {
  std::string_view method, path;  ///< "/status/{id}"
  bool open = false;              ///< without a key
};
[[nodiscard]] std::vector<RouteInfo> routes();

class Api final : public Service {
 public:
  /// The log outlives it.
  Api(ApiOptions options, const Log& log);
  ~Api() override;

  // From any thread.
  /// Serves `model` from now on; once.
  void serve(std::unique_ptr<ServedModel> model);
  /// Refuses what generates from now on; what runs goes on.
  void drain();
  /// Ends everything; afterwards no Wake is called. Before the server goes.
  void stop();

  [[nodiscard]] std::string new_id() override;
  [[nodiscard]] bool wants_body(const HttpRequest& head) const override;
  [[nodiscard]] std::unique_ptr<Answer> answer(HttpRequest request, Wake wake) override;
  [[nodiscard]] Response refuse(BadHttp why) override;
  void ended(const HttpRequest& request, const Outcome& outcome) override;

 private:
  friend struct Handlers;
  struct Way;
  [[nodiscard]] bool may_enter(const HttpRequest& request) const;
  [[nodiscard]] Way way_of(const HttpRequest& request) const;
  [[nodiscard]] std::unique_ptr<Answer> route(HttpRequest request, Wake wake);
  [[nodiscard]] std::optional<std::string_view> allowed_origin(const HttpRequest& request) const;
  /// The model, when something can be generated now.
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

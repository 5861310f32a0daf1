#pragma once
// An HTTP/1.1 server on Boost.Asio and Beast: one thread runs the listener and one coroutine per connection.

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "serve/http/http.h"

namespace forge::serve {

class HttpServer {
 public:
  /// The service must outlive it, and must not call a Wake after it is destroyed.
  HttpServer(Service& service, const HttpLimits& limits);
  HttpServer(const HttpServer&) = delete;
  HttpServer& operator=(const HttpServer&) = delete;
  ~HttpServer();

  /// Starts to listen on `host`, an IP address. `port` 0: any free port. Returns the port. Errors: kUsage if `host` is
  /// not an IP address; kIo when the port cannot be bound.
  std::uint16_t listen(const std::string& host, std::uint16_t port);
  /// Serves on the calling thread until drained or stopped.
  void run();
  /// Calls `action` on the network thread for each SIGTERM and SIGINT from now on.
  void on_signal(std::function<void(int signal)> action);

  // drain() and stop() may be called from any thread.
  /// Stops listening and closes idle connections; the others are closed after their current response. run() returns
  /// when all are closed, at the latest after `patience`.
  void drain(std::chrono::milliseconds patience);
  /// Makes run() return now.
  void stop();

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace forge::serve

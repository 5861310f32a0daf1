#pragma once
// The network: one thread, a listener, and a coroutine a connection (HTTP/1.1, Boost.Beast and Asio).

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "serve/http/http.h"

namespace forge::serve {

class HttpServer {
 public:
  /// The service outlives it, and calls no Wake once it is gone.
  HttpServer(Service& service, const HttpLimits& limits);
  HttpServer(const HttpServer&) = delete;
  HttpServer& operator=(const HttpServer&) = delete;
  ~HttpServer();

  /// Port 0: one that is free. Gives the port. Errors: kUsage for a host that is no address; kIo when it cannot be had.
  std::uint16_t listen(const std::string& host, std::uint16_t port);
  /// Serves on the calling thread, until it has been drained or stopped.
  void run();
  /// Calls `action` on the network's thread for each SIGTERM and SIGINT from now on.
  void on_signal(std::function<void(int signal)> action);

  // From any thread.
  /// Takes no more connections and closes those that are idle; the others end with their answers. After `patience` it
  /// stops.
  void drain(std::chrono::milliseconds patience);
  /// Ends run() now.
  void stop();

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace forge::serve

#include "serve/http/server.h"

#include <fmt/format.h>

#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/signal_set.hpp>
#include <csignal>

#include "serve/http/connection.h"
#include "support/error.h"

namespace forge::serve {

namespace asio = boost::asio;
using Tcp = asio::ip::tcp;

namespace {

/// Pause after a failed accept: the process is out of file descriptors or memory, and an immediate retry would spin.
constexpr std::chrono::milliseconds kAcceptPause{100};

}  // namespace

struct HttpServer::Impl {
  Impl(Service& service, const HttpLimits& limits)
      : network(service, limits), acceptor(network.context), signals(network.context), patience(network.context) {}

  asio::awaitable<void> accept() {
    while (acceptor.is_open()) {
      auto [failed, socket] = co_await acceptor.async_accept(kAwaitTuple);
      if (!failed) {
        start_connection(network, std::move(socket));
        continue;
      }
      if (failed == asio::error::operation_aborted) co_return;
      asio::steady_timer pause(network.context, kAcceptPause);
      co_await pause.async_wait(kAwaitTuple);
    }
  }

  asio::awaitable<void> wait_closed() {
    while (!network.connections.empty()) co_await network.all_closed.async_wait(kAwaitTuple);
    network.context.stop();
  }

  void wait_signal(std::function<void(int)> action) {
    signals.async_wait([this, action = std::move(action)](const boost::system::error_code& failed, int signal) {
      if (failed) return;
      wait_signal(action);
      action(signal);
    });
  }

  void drain(std::chrono::milliseconds most) {
    if (std::exchange(network.draining, true)) return;
    boost::system::error_code ignored;
    ignored = acceptor.close(ignored);
    close_idle(network);
    asio::co_spawn(network.context, wait_closed(), asio::detached);
    patience.expires_after(most);
    patience.async_wait([this](const boost::system::error_code& failed) {
      if (!failed) network.context.stop();
    });
  }

  Network network;
  Tcp::acceptor acceptor;
  asio::signal_set signals;
  asio::steady_timer patience;
};

HttpServer::HttpServer(Service& service, const HttpLimits& limits) : impl_(std::make_unique<Impl>(service, limits)) {}
HttpServer::~HttpServer() = default;

std::uint16_t HttpServer::listen(const std::string& host, std::uint16_t port) {
  boost::system::error_code failed;
  const auto address = asio::ip::make_address(host == "localhost" ? "127.0.0.1" : host, failed);
  if (failed)
    throw Error(ErrorCode::kUsage, fmt::format("--host '{}' is not an IP address", printable(host)), {},
                "give an IPv4 or IPv6 address of this machine: 127.0.0.1, ::1, or 0.0.0.0 for all");
  auto& acceptor = impl_->acceptor;
  const Tcp::endpoint endpoint(address, port);
  failed = acceptor.open(endpoint.protocol(), failed);
  if (!failed) failed = acceptor.set_option(Tcp::acceptor::reuse_address(true), failed);
  if (!failed) failed = acceptor.bind(endpoint, failed);
  if (!failed) failed = acceptor.listen(asio::socket_base::max_listen_connections, failed);
  if (failed)
    throw Error(ErrorCode::kIo, fmt::format("cannot listen on {} port {}", printable(host), port), failed.message(),
                "give another --port, or 0 for any free one");
  asio::co_spawn(impl_->network.context, impl_->accept(), asio::detached);
  return acceptor.local_endpoint().port();
}

void HttpServer::run() {
  const auto work = asio::make_work_guard(impl_->network.context);
  impl_->network.context.run();
  boost::system::error_code ignored;
  ignored = impl_->signals.clear(ignored);  // restore the default: from now on a signal ends the process
}

void HttpServer::on_signal(std::function<void(int)> action) {
  impl_->signals.add(SIGTERM);
  impl_->signals.add(SIGINT);
  asio::post(impl_->network.context,
             [this, action = std::move(action)]() mutable { impl_->wait_signal(std::move(action)); });
}

void HttpServer::drain(std::chrono::milliseconds patience) {
  asio::post(impl_->network.context, [this, patience] { impl_->drain(patience); });
}

void HttpServer::stop() {
  impl_->network.context.stop();
}

}  // namespace forge::serve

#pragma once
// State shared by the listener (server.cc) and its connections (connection.cc). Private to serve/http.

#include <boost/asio/as_tuple.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <memory>
#include <unordered_set>

#include "serve/http/http.h"

namespace forge::serve {

/// Completion token for co_await: operations return a tuple with an error code instead of throwing.
inline constexpr auto kAwaitTuple = boost::asio::as_tuple(boost::asio::use_awaitable);

class Connection;

/// Used by the network thread only.
struct Network {
  Network(Service& to_serve, const HttpLimits& to_keep) : service(to_serve), limits(to_keep), all_closed(context) {
    all_closed.expires_at(std::chrono::steady_clock::time_point::max());
  }
  Network(const Network&) = delete;
  Network& operator=(const Network&) = delete;
  ~Network() { ending = true; }

  Service& service;
  HttpLimits limits;
  std::unordered_set<Connection*> connections;
  bool draining = false;
  /// Set by the destructor. Connections still open are destroyed with `context`, after the members declared below it;
  /// they must not touch this object then.
  bool ending = false;
  boost::asio::io_context context{1};
  boost::asio::steady_timer all_closed;  ///< cancelled when the last connection has gone
};

/// Starts the coroutine that serves a connection; it owns itself until it ends.
void start_connection(Network& network, boost::asio::ip::tcp::socket socket);
/// Closes the connections that are waiting for a request.
void close_idle(Network& network);

}  // namespace forge::serve

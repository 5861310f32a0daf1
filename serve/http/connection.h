#pragma once
// What a listener and its connections share; for server.cc and connection.cc.

#include <boost/asio/as_tuple.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <memory>
#include <unordered_set>

#include "serve/http/http.h"

namespace forge::serve {

/// What operations of the network are awaited with: they answer an error code, and throw nothing.
inline constexpr auto kAwaitTuple = boost::asio::as_tuple(boost::asio::use_awaitable);

class Connection;

/// All of it belongs to the network's thread.
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
  bool ending = false;  ///< the connections that are left go with `context`, after what is below it
  boost::asio::io_context context{1};
  boost::asio::steady_timer all_closed;  ///< cancelled when the last connection has gone
};

/// Begins to serve a connection.
void start_connection(Network& network, boost::asio::ip::tcp::socket socket);
/// Closes the connections that wait for a request.
void close_idle(Network& network);

}  // namespace forge::serve

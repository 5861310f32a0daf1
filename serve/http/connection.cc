// One HTTP connection: a coroutine that reads requests and writes responses, and notices when the client disconnects.
//
//   read head (idle timeout) -> read body (body timeout) -> poll the answer, write its parts (write timeout) -> next
//
// All times are bounded, so a slow client cannot hold a connection. While an answer is being produced, the coroutine
// sleeps on the timer signal_; a Wake from the engine or a worker cancels the timer, and so does watch(), which sees
// the client close the socket.
//
// A client that closes only its sending side while it waits for a response counts as disconnected, because the server
// cannot distinguish that from closing both sides.

#include "serve/http/connection.h"

#include <fmt/format.h>
#include <poll.h>
#include <sys/socket.h>

#include <atomic>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/write.hpp>
#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/http/parser.hpp>
#include <boost/beast/http/read.hpp>
#include <boost/beast/http/string_body.hpp>

namespace forge::serve {
namespace {

namespace asio = boost::asio;
namespace beast = boost::beast;
namespace http = beast::http;
using Clock = std::chrono::steady_clock;
using boost::system::error_code;

constexpr std::size_t kLingerBytesMax = std::size_t{16} << 20;  ///< most bytes that linger() reads and drops
constexpr std::chrono::seconds kLinger{2};
constexpr std::size_t kReadBytes = std::size_t{64} << 10;  ///< the most that Beast reads at once
constexpr std::chrono::milliseconds kGlance{200};          ///< interval of glance()

/// Forwards wakes from any thread to the network thread. At most one is posted at a time: posted is set by the
/// first wake and cleared on the network thread before on_wake runs, so a wake that comes later is never lost.
struct Waker {
  explicit Waker(asio::io_context& network) : context(network) {}
  asio::io_context& context;
  std::function<void()> on_wake;  ///< used by the network thread only; empty: the request has ended
  std::atomic<bool> posted{false};
};

Wake wake_of(const std::shared_ptr<Waker>& waker) {
  return [waker] {
    if (waker->posted.exchange(true)) return;
    asio::post(waker->context, [waker] {
      waker->posted.store(false);
      if (waker->on_wake) waker->on_wake();
    });
  };
}

std::string head_text(const Response& response, const std::string& id, std::string_view framing, bool keep) {
  std::string text = fmt::format("HTTP/1.1 {} {}\r\nContent-Type: {}\r\n{}", response.status,
                                 std::string_view(http::obsolete_reason(http::int_to_status(response.status))),
                                 response.content_type, framing);
  if (!id.empty()) text += fmt::format("X-Request-Id: {}\r\n", id);
  for (const auto& [name, value] : response.headers) text += fmt::format("{}: {}\r\n", name, value);
  return text + (keep ? "\r\n" : "Connection: close\r\n\r\n");
}

}  // namespace

class Connection : public std::enable_shared_from_this<Connection> {
 public:
  Connection(Network& network, asio::ip::tcp::socket socket)
      : network_(network),
        socket_(std::move(socket)),
        buffer_(network.limits.head_bytes + kReadBytes),
        signal_(network.context),
        deadline_(network.context),
        glance_(network.context) {
    network_.connections.insert(this);
  }
  Connection(const Connection&) = delete;
  Connection& operator=(const Connection&) = delete;
  ~Connection() {
    if (network_.ending) return;
    network_.connections.erase(this);
    error_code ignored;
    if (network_.connections.empty()) static_cast<void>(network_.all_closed.cancel(ignored));
  }

  asio::awaitable<void> run();
  void close_if_idle() {
    if (idle_) socket_.cancel();
  }

 private:
  using Parser = http::request_parser<http::string_body>;

  asio::awaitable<void> serve();
  asio::awaitable<bool> read(HttpRequest& request);
  asio::awaitable<bool> read_body(Parser& parser);
  asio::awaitable<void> refuse(BadHttp why);
  asio::awaitable<void> respond(HttpRequest request);
  Answer::Part poll(Answer& answer);
  asio::awaitable<Outcome> exchange(Answer& answer, const HttpRequest& request);
  asio::awaitable<bool> send(const Answer::Part& part, const HttpRequest& request, Outcome& outcome);
  asio::awaitable<bool> write(std::string_view text);
  asio::awaitable<void> linger();
  asio::awaitable<bool> pause();
  void watch();
  void look();
  void glance();
  void arm(std::chrono::milliseconds time);
  void disarm() {
    ++deadlines_;
    deadline_.cancel();
  }

  Network& network_;
  asio::ip::tcp::socket socket_;
  beast::flat_buffer buffer_;  ///< its size limit also bounds chunk headers and trailers, which Beast does not limit
  asio::steady_timer signal_;  ///< the coroutine waits on it between parts; cancelled to wake the coroutine
  asio::steady_timer deadline_;
  asio::steady_timer glance_;    ///< see glance()
  std::uint64_t deadlines_ = 0;  ///< number of the current deadline; handlers of earlier ones do nothing
  bool timed_out_ = false;       ///< the current deadline has expired
  bool idle_ = false;            ///< waiting for a request
  bool keep_ = false;            ///< keep-alive: serve another request after this one
  bool http11_ = true, streaming_ = false;
  bool woken_ = false;         ///< a wake came since the last poll()
  bool gone_ = false;          ///< the client has disconnected
  bool unread_ = false;        ///< the body of the current request was not read
  std::uint64_t watches_ = 0;  ///< number of the current watch; handlers of earlier ones do nothing
};

asio::awaitable<void> Connection::run() {
  co_await serve();
  disarm();
  error_code ignored;
  ignored = socket_.close(ignored);  // also cancels pending handlers, which hold shared pointers to this
}

asio::awaitable<void> Connection::serve() {
  if (network_.connections.size() > network_.limits.connections) {
    co_await refuse(BadHttp::kTooManyConnections);
    co_return;
  }
  do {
    HttpRequest request;
    const bool whole = co_await read(request);
    if (!whole) co_return;
    co_await respond(std::move(request));
    if (buffer_.size() == 0) buffer_.shrink_to_fit();  // an idle connection keeps no buffer
  } while (keep_);
}

/// Reads one request, head and body. False: there is none; the client got an error response if it can receive one.
asio::awaitable<bool> Connection::read(HttpRequest& request) {
  Parser parser;
  parser.header_limit(static_cast<std::uint32_t>(network_.limits.head_bytes));
  parser.body_limit(network_.limits.body_bytes);
  arm(network_.limits.idle);
  idle_ = true;
  const auto [failed, count] = co_await http::async_read_header(socket_, buffer_, parser, kAwaitTuple);
  idle_ = false;
  disarm();
  if (failed) {
    if (failed == http::error::header_limit || failed == http::error::buffer_overflow)
      co_await refuse(BadHttp::kHeadTooLarge);
    else if (failed == http::error::body_limit)
      co_await refuse(BadHttp::kBodyTooLarge);
    else if (timed_out_ && (parser.got_some() || buffer_.size() > 0))
      co_await refuse(BadHttp::kTimeout);
    else if (failed.category() == http::make_error_code(http::error::bad_target).category() &&
             failed != http::error::end_of_stream && failed != http::error::partial_message)
      co_await refuse(BadHttp::kMalformed);
    co_return false;
  }
  const auto& head = parser.get();
  const auto field = [&](http::field name) { return std::string(head[name]); };
  http11_ = head.version() >= 11;
  keep_ = head.keep_alive() && !network_.draining;
  request.id = network_.service.new_id();
  request.method = std::string(head.method_string());
  request.target = std::string(head.target());
  request.authorization = field(http::field::authorization);
  request.origin = field(http::field::origin);
  request.content_type = field(http::field::content_type);
  request.asked_headers = field(http::field::access_control_request_headers);
  unread_ = !parser.is_done() && !network_.service.wants_body(request);
  if (unread_) {  // a request that is refused by its head must not make the server buffer a body
    keep_ = false;
    co_return true;
  }
  const bool whole = co_await read_body(parser);
  if (whole) request.body = std::move(parser.get().body());
  co_return whole;
}

asio::awaitable<bool> Connection::read_body(Parser& parser) {
  if (beast::iequals(parser.get()[http::field::expect], "100-continue")) {
    const bool sent = co_await write("HTTP/1.1 100 Continue\r\n\r\n");
    if (!sent) co_return false;
  }
  arm(network_.limits.body);
  const auto [failed, count] = co_await http::async_read(socket_, buffer_, parser, kAwaitTuple);
  disarm();
  if (!failed) co_return true;
  if (failed == http::error::body_limit || failed == http::error::buffer_overflow)
    co_await refuse(BadHttp::kBodyTooLarge);
  else if (timed_out_)
    co_await refuse(BadHttp::kTimeout);
  else if (failed != http::error::partial_message &&
           failed.category() == make_error_code(http::error::bad_chunk).category())
    co_await refuse(BadHttp::kMalformed);
  co_return false;
}

asio::awaitable<void> Connection::refuse(BadHttp why) {
  const auto response = network_.service.refuse(why);
  const auto framing = fmt::format("Content-Length: {}\r\n", response.body.size());
  keep_ = false;
  const auto text = head_text(response, {}, framing, false) + response.body;
  const bool sent = co_await write(text);
  if (sent && why != BadHttp::kTooManyConnections) co_await linger();
}

/// Closes the sending side and reads until the client closes. Closing a socket with unread bytes would send a TCP
/// reset, and the client might lose the response.
asio::awaitable<void> Connection::linger() {
  error_code ignored;
  ignored = socket_.shutdown(asio::ip::tcp::socket::shutdown_send, ignored);
  std::string scratch(16 << 10, '\0');
  arm(kLinger);
  for (std::size_t dropped = 0; dropped < kLingerBytesMax;) {
    const auto [failed, count] = co_await socket_.async_read_some(asio::buffer(scratch), kAwaitTuple);
    if (failed) break;
    dropped += count;
  }
  disarm();
}

/// Starts a deadline: after `time` without disarm(), pending socket operations are cancelled and timed_out_ is set.
void Connection::arm(std::chrono::milliseconds time) {
  timed_out_ = false;
  deadline_.expires_after(time);
  deadline_.async_wait([self = shared_from_this(), number = ++deadlines_](const error_code& failed) {
    if (failed || number != self->deadlines_) return;
    self->timed_out_ = true;
    self->socket_.cancel();
  });
}

asio::awaitable<bool> Connection::write(std::string_view text) {
  arm(network_.limits.write);
  const auto [failed, count] = co_await asio::async_write(socket_, asio::buffer(text.data(), text.size()), kAwaitTuple);
  disarm();
  co_return !failed;
}

asio::awaitable<void> Connection::respond(HttpRequest request) {
  const auto begin = Clock::now();
  auto waker = std::make_shared<Waker>(network_.context);
  // A wake can come after the answer's end, and after this connection's, however it ends.
  struct Asleep {
    Waker& waker;
    ~Asleep() { waker.on_wake = nullptr; }
  } asleep{*waker};
  waker->on_wake = [this] {
    woken_ = true;
    signal_.cancel();
  };
  woken_ = gone_ = streaming_ = false;
  HttpRequest kept{.id = request.id, .method = request.method, .target = request.target};
  auto answer = network_.service.answer(std::move(request), wake_of(waker));
  watch();
  auto outcome = co_await exchange(*answer, kept);
  answer.reset();  // cancels the work behind an answer that has not ended
  waker->on_wake = nullptr;
  ++watches_;
  glance_.cancel();
  socket_.cancel();
  outcome.took = Clock::now() - begin;
  keep_ = keep_ && !outcome.gone && !network_.draining;
  network_.service.ended(kept, outcome);
  if (unread_ && !outcome.gone) {
    co_await linger();
  } else if (!keep_ && !outcome.gone) {
    error_code ignored;
    ignored = socket_.shutdown(asio::ip::tcp::socket::shutdown_send, ignored);
  }
}

/// The next part. An answer that fails is a 500, or ends a stream that has begun.
Answer::Part Connection::poll(Answer& answer) {
  try {
    return answer.poll();
  } catch (const std::exception&) {
    keep_ = false;
    if (streaming_) return {.done = true};
    return {.head = network_.service.refuse(BadHttp::kFailed), .done = true};
  }
}

asio::awaitable<Outcome> Connection::exchange(Answer& answer, const HttpRequest& request) {
  Outcome outcome;
  while (true) {
    woken_ = false;
    const Answer::Part part = poll(answer);
    const bool taken = co_await send(part, request, outcome);
    if (!taken || gone_) {
      outcome.gone = !part.done || !taken;
      co_return outcome;
    }
    if (part.done) co_return outcome;
    const bool silent = co_await pause();
    if (!silent || !streaming_) continue;
    Answer::Part ping;
    ping.data = answer.ping();
    if (ping.data.empty()) continue;
    const bool heard = co_await send(ping, request, outcome);
    outcome.gone = !heard;
    if (!heard) co_return outcome;
  }
}

/// Waits for a wake. True: none came for the ping interval.
asio::awaitable<bool> Connection::pause() {
  if (woken_ || gone_) co_return false;
  signal_.expires_after(network_.limits.ping);
  const auto [cancelled] = co_await signal_.async_wait(kAwaitTuple);
  co_return !cancelled;
}

/// Writes one part, with chunked framing if streaming over HTTP/1.1. False: the client did not take it in time.
asio::awaitable<bool> Connection::send(const Answer::Part& part, const HttpRequest& request, Outcome& outcome) {
  std::string text;
  const bool body = request.method != "HEAD";
  const auto frame = [&](const std::string& data) {
    if (data.empty() || !body) return;
    outcome.bytes += data.size();
    text += streaming_ && http11_ ? fmt::format("{:x}\r\n{}\r\n", data.size(), data) : data;
  };
  if (part.head) {
    outcome.status = part.head->status;
    streaming_ = !part.done || !part.data.empty();
    keep_ = keep_ && !network_.draining && (http11_ || !streaming_);
    const std::string framing = !streaming_ ? fmt::format("Content-Length: {}\r\n", part.head->body.size())
                                : http11_   ? "Transfer-Encoding: chunked\r\n"
                                            : "";
    text = head_text(*part.head, request.id, framing, keep_);
    frame(part.head->body);
  }
  frame(part.data);
  if (part.done && streaming_ && http11_ && body) text += "0\r\n\r\n";
  if (text.empty()) co_return true;
  const bool sent = co_await write(text);
  co_return sent;
}

/// Waits for the socket to become readable while an answer is being produced, and then calls look().
void Connection::watch() {
  socket_.async_wait(asio::ip::tcp::socket::wait_read,
                     [self = shared_from_this(), number = ++watches_](const error_code& failed) {
                       if (failed != asio::error::operation_aborted && number == self->watches_) self->look();
                     });
}

/// The socket is readable: either the client has sent its next request (pipelining), or it has disconnected.
void Connection::look() {
  char byte = 0;
  const auto count = ::recv(socket_.native_handle(), &byte, 1, MSG_PEEK | MSG_DONTWAIT);
  if (count > 0) {  // the next request; it is read after this one has been answered
    pollfd hung_up{.fd = socket_.native_handle(), .events = POLLRDHUP, .revents = 0};
    if (::poll(&hung_up, 1, 0) == 0) return glance();
  } else if (count < 0 && (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR))
    return watch();
  gone_ = true;
  signal_.cancel();
}

/// Calls look() again after kGlance. With unread bytes of a next request the socket stays readable, so watch() would
/// return at once, again and again.
void Connection::glance() {
  glance_.expires_after(kGlance);
  glance_.async_wait([self = shared_from_this(), number = watches_](const error_code& failed) {
    if (!failed && number == self->watches_) self->look();
  });
}

void start_connection(Network& network, asio::ip::tcp::socket socket) {
  error_code ignored;
  ignored = socket.set_option(asio::ip::tcp::no_delay(true), ignored);
  auto connection = std::make_shared<Connection>(network, std::move(socket));
  asio::co_spawn(network.context, [connection] { return connection->run(); }, asio::detached);
}

void close_idle(Network& network) {
  for (auto* connection : network.connections) connection->close_if_idle();
}

}  // namespace forge::serve

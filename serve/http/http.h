#pragma once
// HTTP as the rest of this room sees it: plain values, and answers that come over time. Sockets are in connection.cc.

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace forge::serve {

struct HttpRequest {
  std::string id;              ///< ours: told in X-Request-Id, in logs and in what the answer is called
  std::string method, target;  ///< as they came
  std::string authorization, origin, content_type, asked_headers;  ///< empty: not given
  std::string body;

  /// The target without its query. Nothing is decoded: no route of ours needs it.
  [[nodiscard]] std::string_view path() const {
    return std::string_view(target).substr(0, std::min(target.find('?'), target.size()));
  }
};

struct Response {
  unsigned status = 200;
  std::string body;
  std::string content_type = "application/json";
  std::vector<std::pair<std::string, std::string>> headers;
};

/// Told from any thread that poll() may have something new; never blocks. It may be called after the answer's end.
using Wake = std::function<void()>;

/// What a request gets, whole or piece by piece. Used on the network's thread. When it dies before it is done, the
/// client is gone.
class Answer {
 public:
  struct Part {
    std::optional<Response> head;  ///< once; its body goes first
    std::string data;              ///< what follows
    bool done = false;             ///< with a head, and no data: a whole answer, sent with its length
  };
  Answer() = default;
  Answer(const Answer&) = delete;
  Answer& operator=(const Answer&) = delete;
  virtual ~Answer() = default;
  /// What there is now; never waits.
  virtual Part poll() = 0;
  /// What keeps a stream alive that is silent; empty: nothing may stand between its parts.
  [[nodiscard]] virtual std::string_view ping() const { return {}; }
};

/// An answer that is there at once.
class ReadyAnswer final : public Answer {
 public:
  explicit ReadyAnswer(Response response) : response_(std::move(response)) {}
  Part poll() override { return {.head = std::move(response_), .done = true}; }

 private:
  Response response_;
};

/// Why a connection's bytes are no request.
enum class BadHttp : std::uint8_t { kMalformed, kHeadTooLarge, kBodyTooLarge, kTimeout, kTooManyConnections };

/// How an exchange went, for the log.
struct Outcome {
  unsigned status = 0;  ///< 0: the client was gone before the head
  std::uint64_t bytes = 0;
  std::chrono::nanoseconds took{};
  bool gone = false;  ///< before the end
};

/// What answers requests. All calls come from the network's thread.
class Service {
 public:
  Service() = default;
  Service(const Service&) = delete;
  Service& operator=(const Service&) = delete;
  virtual ~Service() = default;
  [[nodiscard]] virtual std::string new_id() = 0;
  /// False: what answer() says of the request does not depend on its body, which then need not be read.
  [[nodiscard]] virtual bool wants_body(const HttpRequest& head) const = 0;
  [[nodiscard]] virtual std::unique_ptr<Answer> answer(HttpRequest request, Wake wake) = 0;
  [[nodiscard]] virtual Response refuse(BadHttp why) = 0;
  virtual void ended(const HttpRequest& request, const Outcome& outcome) = 0;
};

struct HttpLimits {
  std::size_t head_bytes = 16 << 10;
  std::size_t body_bytes = 4 << 20;
  std::size_t connections = 1024;
  std::chrono::milliseconds idle{75'000};   ///< until a request's head is there
  std::chrono::milliseconds body{30'000};   ///< for a request's body
  std::chrono::milliseconds write{30'000};  ///< for a client to take what is sent
  std::chrono::milliseconds ping{15'000};   ///< of silence in a stream
};

}  // namespace forge::serve

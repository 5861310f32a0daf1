#pragma once
// A server in the test's process on a fake device, and clients that are plain sockets.

#include <arpa/inet.h>
#include <fmt/format.h>
#include <sys/socket.h>
#include <unistd.h>
#include <catch2/catch.hpp>

#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <thread>

#include "serve/api.h"
#include "serve/http/server.h"
#include "tests/runtime/fake_executor.h"
#include "tests/support/gguf_writer.h"

namespace forge::serve::test {

using forge::test::FakeExecutor, forge::test::FakeShape;

constexpr FakeShape kShape{
    .vocab = 259, .step_tokens = 32, .sequences = 4, .context = 512, .block_tokens = 16, .blocks = 128};

struct Vocabulary {
  static std::string image() {
    tests::GgufWriter w("llama");
    std::vector<std::string> tokens{"<unk>", "<s>", "</s>"};
    std::vector<std::int32_t> types{2, 3, 3};
    for (unsigned byte = 0; byte < 256; ++byte) {
      tokens.push_back(fmt::format("<0x{:02X}>", byte));
      types.push_back(6);
    }
    w.add("tokenizer.ggml.model", "llama").add("tokenizer.ggml.tokens", tokens);
    return w.add("tokenizer.ggml.token_type", types).bytes();
  }
  std::string file = image();
  loader::Gguf gguf = loader::Gguf::from(std::as_bytes(std::span(file)));
  std::unique_ptr<text::Tokenizer> tokenizer = text::Tokenizer::open(gguf);
};

/// A connection to a server of this machine; -1: it takes none.
inline int connect_to(std::uint16_t port) {
  const int fd = ::socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in address{.sin_family = AF_INET, .sin_port = htons(port)};
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  if (::connect(fd, reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0) return fd;
  ::close(fd);
  return -1;
}

/// A server on a free port, shut down in the right order on destruction.
class Running {
 public:
  explicit Running(const HttpLimits& limits = {})
      : server_(std::make_unique<HttpServer>(api_, limits)), port_(server_->listen("127.0.0.1", 0)) {
    network_ = std::thread([this] { server_->run(); });
  }
  Running(const Running&) = delete;
  Running& operator=(const Running&) = delete;
  ~Running() {
    if (server_) server_->stop();
    if (network_.joinable()) network_.join();
    api_.stop();
  }
  /// Starts serving the model; `encoder`: one that makes rows only, or that ranks.
  FakeExecutor& load(bool encoder = false, bool ranks = false) {
    auto shape = kShape;
    shape.encoder = encoder;
    return load(shape, *vocabulary_.tokenizer, "{% for m in messages %}{{ m['content'] }}{% endfor %}", ranks);
  }
  /// Starts serving a model of this shape. `tokenizer` must outlive the server.
  FakeExecutor& load(const FakeShape& shape, const text::Tokenizer& tokenizer, std::string_view chat_template,
                     bool ranks = false) {
    blocks_ = shape.blocks;
    auto executor = std::make_unique<FakeExecutor>(shape);
    auto& device = *executor;
    auto model = std::make_unique<ServedModel>(ServedModel::Parts{
        .name = "fake",
        .tokenizer = &tokenizer,
        .chat_template = chat_template,
        .executor = std::move(executor),
        .context = shape.context,
        .pooling = ranks ? engine::OutputKind::kFirstRow : engine::OutputKind::kMeanRow,
        .ranks = ranks,
        .engine = {.retries = 1, .backoff = std::chrono::milliseconds(1), .watchdog = engine::Time::zero()}});
    engine_ = &model->engine();
    api_.serve(std::move(model));
    return device;
  }
  [[nodiscard]] int connect() const { return connect_to(port_); }
  [[nodiscard]] std::uint16_t port() const { return port_; }
  void catch_signals() {
    server_->on_signal([](int) {});
  }
  /// Shuts the network down, whoever is connected.
  void end() {
    server_->stop();
    network_.join();
    server_.reset();
  }
  void drain() {
    api_.drain();
    server_->drain(std::chrono::hours(1));
    network_.join();
  }
  /// Waits until no request is left in the engine.
  [[nodiscard]] engine::EngineStatus idle() const {
    while (true) {
      const auto status = engine_->status();
      if (status.open == 0 && status.metrics.kv_blocks_free == blocks_) return status;
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
  }

 private:
  Vocabulary vocabulary_;
  Log log_{Log::Format::kText, LogLevel::kError};
  Api api_{{}, log_};
  std::unique_ptr<HttpServer> server_;
  std::uint16_t port_;
  std::size_t blocks_ = 0;
  engine::Engine* engine_ = nullptr;
  std::thread network_;
};

inline std::string post(std::string_view path, std::string_view body) {
  return fmt::format(
      "POST {} HTTP/1.1\r\nConnection: close\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n{}", path,
      body.size(), body);
}

/// Sends `request` and reads until the server closes the connection, or until `enough` has been received; then
/// disconnects.
inline std::string ask(std::uint16_t port, const std::string& request, std::string_view enough = {}) {
  const int fd = connect_to(port);
  std::string answer;
  char bytes[4096];
  bool open = fd >= 0 && ::send(fd, request.data(), request.size(), MSG_NOSIGNAL) == std::ssize(request);
  while (open && (enough.empty() || answer.find(enough) == std::string::npos)) {
    const auto count = ::recv(fd, bytes, sizeof bytes, 0);
    open = count > 0;
    if (open) answer.append(bytes, static_cast<std::size_t>(count));
  }
  if (fd >= 0) ::close(fd);
  return answer;
}

inline std::string ask(const Running& server, const std::string& request, std::string_view enough = {}) {
  return ask(server.port(), request, enough);
}

inline bool has(const std::string& text, std::string_view part) {
  return text.find(part) != std::string::npos;
}

/// The body of a 200 answer.
inline nlohmann::json json_of(const std::string& answer) {
  INFO(answer.substr(0, 500));
  REQUIRE(answer.starts_with("HTTP/1.1 200 "));
  return nlohmann::json::parse(answer.substr(answer.find("\r\n\r\n") + 4));
}

}  // namespace forge::serve::test

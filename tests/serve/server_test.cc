// The server in this process, on a fake device that fails on request: loading, device faults, many concurrent clients,
// clients that disconnect, and shutdown. Clients are plain sockets. No test waits for a fixed time.

#include "serve/http/server.h"

#include <fmt/format.h>
#include <sys/socket.h>
#include <unistd.h>
#include <catch2/catch.hpp>

#include <algorithm>
#include <atomic>
#include <cctype>
#include <cmath>
#include <csignal>
#include <cstdlib>
#include <fstream>
#include <functional>
#include <map>
#include <nlohmann/json.hpp>
#include <thread>

#include "tests/serve/running_server.h"

using namespace forge;
using namespace forge::serve;
using namespace forge::serve::test;

TEST_CASE("while the model loads the server is alive but not ready") {
  Running server;
  const std::string health = "GET /health HTTP/1.0\r\n\r\n", ready = "GET /ready HTTP/1.0\r\n\r\n";
  CHECK(has(ask(server, health), R"({"status":"loading"})"));
  CHECK(ask(server, ready).starts_with("HTTP/1.1 503 "));
  const auto refused = ask(server, post("/generate", R"({"prompt":"a"})"));
  CHECK(refused.starts_with("HTTP/1.1 503 "));
  CHECK(has(refused, R"("code":"loading","category":"load","recoverable":true)"));
  CHECK(has(refused, "Retry-After: 1\r\n"));
  CHECK(has(ask(server, "GET /metrics HTTP/1.0\r\n\r\n"), "forge_http_responses_total{status=\"503\"} 2"));
  server.load();
  CHECK(ask(server, ready).starts_with("HTTP/1.1 200 "));
  CHECK(ask(server, post("/generate", R"({"prompt":"a","max_tokens":3})")).starts_with("HTTP/1.1 200 "));
}

TEST_CASE("a failed step is retried or reported as a device error, for whole answers and streams") {
  Running server;
  auto& device = server.load();
  const auto whole = post("/v1/completions", R"({"prompt":"a","max_tokens":3,"temperature":0,"ignore_eos":true})");
  const auto good = ask(server, whole);
  CHECK(good.starts_with("HTTP/1.1 200 "));
  (void)server.idle();
  device.next_fault = FakeExecutor::Fault::kRecoverable;
  const auto again = ask(server, whole);
  CHECK(again.starts_with("HTTP/1.1 200 "));
  CHECK(server.idle().metrics.retries == 1);
  device.next_fault = FakeExecutor::Fault::kFatal;
  const auto failed = ask(server, whole);
  CHECK(failed.starts_with("HTTP/1.1 503 "));
  CHECK(has(failed, R"("code":"device","category":"device","recoverable":true)"));
  CHECK(has(ask(server, "GET /health HTTP/1.0\r\n\r\n"), "degraded"));
  (void)server.idle();
  device.next_fault = FakeExecutor::Fault::kForeign;
  const auto stream = ask(server, post("/v1/completions", R"({"prompt":"a","stream":true})"));
  CHECK(stream.starts_with("HTTP/1.1 200 "));
  CHECK(has(stream, R"(data: {"error":{"message":"a step failed: )"));
  CHECK(has(stream, "data: [DONE]\n\n"));
  CHECK(server.idle().metrics.failed_steps == 3);
}

TEST_CASE("embeddings are the device's rows, more inputs than run at once are queued, and a fault is a device error") {
  Running server;
  auto& device = server.load();
  std::string inputs = "[100,101]";
  for (int i = 0; i < 40; ++i) inputs += fmt::format(R"(,"{}")", std::string(static_cast<std::size_t>(1 + i % 9), 'x'));
  const auto body = post("/v1/embeddings", fmt::format(R"({{"input":[{}]}})", inputs));
  const auto answer = ask(server, body);
  CHECK(answer.starts_with("HTTP/1.1 200 "));
  const auto json = nlohmann::json::parse(answer.substr(answer.find("\r\n\r\n") + 4));
  REQUIRE(json["data"].size() == 41);
  const auto two = FakeExecutor::row_of(std::vector{100, 101}), one = FakeExecutor::row_of(std::vector{100});
  std::vector<double> mean;
  double square = 0;
  for (std::size_t i = 0; i < two.size(); ++i) {
    mean.push_back((one[i] + two[i]) / 2);
    square += mean.back() * mean.back();
  }
  for (std::size_t i = 0; i < mean.size(); ++i)
    CHECK(json["data"][0]["embedding"][i].get<double>() == Approx(mean[i] / std::sqrt(square)));
  CHECK(json["data"][1]["embedding"] == json["data"][10]["embedding"]);
  (void)server.idle();
  device.next_fault = FakeExecutor::Fault::kFatal;
  const auto failed = ask(server, body);
  CHECK(failed.starts_with("HTTP/1.1 503 "));
  CHECK(has(failed, R"("code":"device")"));
  CHECK(server.idle().metrics.failed_steps == 1);
  const auto late = ask(server, post("/v1/embeddings", R"({"input":"ab","timeout":0.001})"));
  CHECK((late.starts_with("HTTP/1.1 504 ") || late.starts_with("HTTP/1.1 200 ")));
  CHECK(ask(server, post("/v1/embeddings", R"({"input":"ab","dimensions":4})")).starts_with("HTTP/1.1 400 "));
  (void)server.idle();
}

TEST_CASE("an encoder embeds and ranks; routes that generate text are refused") {
  Running server;
  auto& device = server.load(true);
  std::string inputs = "[7]";
  for (int i = 0; i < 11; ++i) inputs += fmt::format(",[{},{},9]", 100 + i, i);
  const auto json = json_of(ask(server, post("/v1/embeddings", fmt::format(R"({{"input":[{}]}})", inputs))));
  REQUIRE(json["data"].size() == 12);
  CHECK(json["usage"]["prompt_tokens"] == 34);
  for (int i = 0; i < 11; ++i) {
    std::vector<double> mean(FakeExecutor::kHiddenWidth);
    double square = 0;
    for (std::size_t t = 0; t < 3; ++t) {
      const auto row = FakeExecutor::encoder_row(std::vector{100 + i, i, 9}, t);
      for (std::size_t c = 0; c < mean.size(); ++c) mean[c] += row[c];
    }
    for (const auto value : mean) square += value * value;
    for (std::size_t c = 0; c < mean.size(); ++c)
      CHECK(json["data"][static_cast<std::size_t>(i) + 1]["embedding"][c].get<double>() ==
            Approx(mean[c] / std::sqrt(square)));
  }
  CHECK(device.steps == 3);  // 4 sequences run at once
  for (const auto& [path, body] :
       {std::pair("/v1/completions", R"({"prompt":"a"})"),
        std::pair("/v1/chat/completions", R"({"messages":[{"role":"user","content":"a"}]})"),
        std::pair("/apply-template", R"({"messages":[{"role":"user","content":"a"}]})"),
        std::pair("/generate", R"({"prompt":"a"})"), std::pair("/generate/stream", R"({"prompt":"a"})")}) {
    const auto refused = ask(server, post(path, body));
    INFO(path << " " << refused);
    CHECK(refused.starts_with("HTTP/1.1 400 "));
    CHECK((has(refused, R"("code":"not_supported")") && has(refused, "is an encoder")));
  }
  std::string many = "1";
  for (int i = 1; i < 41; ++i) many += ",1";
  const auto long_one = ask(server, post("/v1/embeddings", fmt::format(R"({{"input":[[5],[{}]]}})", many)));
  CHECK((long_one.starts_with("HTTP/1.1 400 ") && has(long_one, R"("code":"context_length_exceeded")")));
  CHECK((has(long_one, "41 tokens") && has(long_one, "step of 32") && has(long_one, R"("param":"input")")));
  const auto more = ask(server, post("/v1/embeddings", R"({"input":"ab","dimensions":4})"));
  CHECK((more.starts_with("HTTP/1.1 400 ") && has(more, R"("param":"dimensions")")));
  CHECK(json_of(ask(server, post("/v1/embeddings", R"({"input":[5,6],"dimensions":3})")))["data"].size() == 1);
  CHECK(has(ask(server, "GET /v1/models HTTP/1.0\r\n\r\n"), R"("id":"fake")"));
  CHECK(has(ask(server, "GET /metrics HTTP/1.0\r\n\r\n"), "forge_prompt_tokens_total 36"));
}

TEST_CASE("documents are ranked by the cosine of embeddings, or by a reranker's score of each pair") {
  for (const bool ranks : {false, true}) {
    Running server;
    auto& device = server.load(ranks, ranks);
    const auto body = [](std::string_view more) {
      return fmt::format(R"({{"query":"qa","documents":["b",{{"text":"qa"}},"cd","b"]{}}})", more);
    };
    const auto all = json_of(ask(server, post("/v1/rerank", body(R"(,"return_documents":true)"))));
    INFO(all.dump());
    REQUIRE(all["results"].size() == 4);
    CHECK((all["object"] == "list" && all["model"] == "fake" && all["id"].is_string()));
    std::map<std::size_t, double> scores;
    for (std::size_t i = 0; i < 4; ++i) {
      const auto& result = all["results"][i];
      scores[result["index"].get<std::size_t>()] = result["relevance_score"].get<double>();
      CHECK((i == 0 || result["relevance_score"] <= all["results"][i - 1]["relevance_score"]));
    }
    CHECK((scores.size() == 4 && scores[0] == scores[3]));
    if (ranks) {
      const Vocabulary vocabulary;
      auto pair = vocabulary.tokenizer->encode("qa", {.add_special = true});
      for (const auto id : vocabulary.tokenizer->encode("cd")) pair.push_back(id);
      CHECK(scores[2] == static_cast<double>(FakeExecutor::encoder_row(pair, 0)[0]));
    } else {
      CHECK(scores[1] == Approx(1));
      CHECK((all["results"][0]["index"] == 1 && all["results"][0]["document"]["text"] == "qa"));
    }
    const auto top = json_of(ask(server, post("/rerank", body(R"(,"top_n":2)"))));
    CHECK((top["results"].size() == 2 && !top["results"][0].contains("document")));
    CHECK(top["results"][0]["index"] == all["results"][0]["index"]);
    const auto long_one = ask(
        server, post("/v1/rerank", fmt::format(R"({{"query":"q","documents":["a","{}"]}})", std::string(600, 'x'))));
    CHECK((long_one.starts_with("HTTP/1.1 400 ") && has(long_one, R"("param":"documents")")));
    if (ranks) {
      const auto refused = ask(server, post("/v1/embeddings", R"({"input":"a"})"));
      CHECK((refused.starts_with("HTTP/1.1 400 ") && has(refused, "is a reranker")));
    }
    (void)server.idle();
    device.next_fault = FakeExecutor::Fault::kFatal;
    CHECK(ask(server, post("/v1/rerank", body(""))).starts_with("HTTP/1.1 503 "));
  }
}

TEST_CASE("many client threads, some of which disconnect: nothing is left, and the server drains") {
  Running server;
  server.load();
  constexpr std::size_t kThreads = 4, kRequests = 24;
  std::atomic<std::size_t> wrong{0};
  {
    std::vector<std::jthread> clients;
    for (std::size_t t = 0; t < kThreads; ++t)
      clients.emplace_back([&, t] {
        for (std::size_t i = 0; i < kRequests; ++i) {
          const auto body = fmt::format(
              R"({{"prompt":"{}","max_tokens":{},"seed":{},"n":{},"ignore_eos":true,"stop":"never","stream":{}}})",
              std::string(1 + (i * 7 + t) % 40, 'x'), 1 + i % 9, i, 1 + i % 2, i % 3 == 0);
          const auto request = post("/v1/completions", body);
          const bool leaves = i % 4 == 1;
          const auto answer = ask(server, request, leaves && i % 3 == 0 ? "data: " : "");
          if (leaves) (void)ask(server, post("/generate/stream", R"({"prompt":"a","ignore_eos":true})"), "data: ");
          if (!answer.starts_with("HTTP/1.1 200 ")) ++wrong;
          if (ask(server, "GET /metrics HTTP/1.0\r\n\r\n").empty()) ++wrong;
        }
      });
  }
  CHECK(wrong == 0);
  const auto status = server.idle();
  CHECK(status.metrics.finished[static_cast<std::size_t>(engine::FinishReason::kError)] == 0);
  const int idle_connection = server.connect();
  const std::string request = "GET /ready HTTP/1.1\r\n\r\n";
  REQUIRE(::send(idle_connection, request.data(), request.size(), MSG_NOSIGNAL) == std::ssize(request));
  std::string answer(4096, '\0');
  REQUIRE(::recv(idle_connection, answer.data(), answer.size(), 0) > 0);  // a small answer arrives in one piece
  server.drain();
  char byte = 0;
  CHECK(::recv(idle_connection, &byte, 1, 0) == 0);
  ::close(idle_connection);
  CHECK(server.connect() < 0);
}

namespace {

/// Answers of which a poll fails: the first one, or the second one of a stream.
struct FailingService final : Service {
  struct Failing final : Answer {
    explicit Failing(bool streams) : streams_(streams) {}
    Part poll() override {
      if (!std::exchange(streams_, false)) throw std::bad_alloc();
      return {.head = Response{.content_type = "text/event-stream"}, .data = "data: {}\n\n"};
    }
    bool streams_;
  };
  std::string new_id() override { return "1"; }
  bool wants_body(const HttpRequest&) const override { return true; }
  std::unique_ptr<Answer> answer(HttpRequest request, Wake wake) override {
    wakes.push_back(wake);
    wake();
    return std::make_unique<Failing>(request.target == "/stream");
  }
  Response refuse(BadHttp why) override { return {.status = why == BadHttp::kFailed ? 500U : 400U, .body = "x"}; }
  void ended(const HttpRequest&, const Outcome& outcome) override { statuses.push_back(outcome.status); }
  std::vector<Wake> wakes;
  std::vector<unsigned> statuses;
};

}  // namespace

TEST_CASE("an answer that fails is a 500 or the end of its stream, and a wake that comes later touches nothing") {
  FailingService service;
  HttpServer server(service, {});
  const auto port = server.listen("127.0.0.1", 0);
  std::thread network([&] { server.run(); });
  for (int i = 0; i < 4; ++i) {
    CHECK(ask(port, "GET / HTTP/1.1\r\n\r\n").starts_with("HTTP/1.1 500 "));
    const auto stream = ask(port, "GET /stream HTTP/1.1\r\n\r\n");
    CHECK((stream.starts_with("HTTP/1.1 200 ") && has(stream, "data: {}") && stream.ends_with("0\r\n\r\n")));
    for (const auto& wake : service.wakes) wake();
  }
  server.stop();
  network.join();
  CHECK(service.statuses == std::vector<unsigned>{500, 200, 500, 200, 500, 200, 500, 200});
}

TEST_CASE("signals have their default action again once the network has shut down") {
  const auto is_default = [] {
    struct sigaction now{};
    REQUIRE(::sigaction(SIGTERM, nullptr, &now) == 0);
    return now.sa_handler == SIG_DFL;
  };
  Running server;
  server.catch_signals();
  CHECK_FALSE(is_default());
  server.load();
  server.drain();  // what remains is joining threads, which may take as long as a step
  CHECK(is_default());
}

TEST_CASE("a server that stops at once leaves no waiting connection behind") {
  Running server;
  const int open = server.connect();
  const std::string part = "GET /hea";
  REQUIRE(::send(open, part.data(), part.size(), MSG_NOSIGNAL) == std::ssize(part));
  // The other connection is being served by now.
  CHECK(ask(server, "GET /health HTTP/1.0\r\n\r\n").starts_with("HTTP/1.1 200 "));
  server.end();
  char byte = 0;
  CHECK(::recv(open, &byte, 1, 0) <= 0);
  ::close(open);
}

TEST_CASE("connections beyond the limit get an error") {
  Running server({.connections = 1});
  const int first = server.connect();
  CHECK(ask(server, "GET /health HTTP/1.0\r\n\r\n").starts_with("HTTP/1.1 503 "));
  ::close(first);
  while (!ask(server, "GET /health HTTP/1.0\r\n\r\n").starts_with("HTTP/1.1 200 ")) {
  }
}

TEST_CASE("the OpenAPI file lists exactly the server's routes") {
  const char* path = std::getenv("FORGE_OPENAPI");
  REQUIRE(path != nullptr);
  std::ifstream in(path);
  const auto file = nlohmann::json::parse(in);
  std::vector<std::string> described, served;
  for (const auto& [route, methods] : file["paths"].items())
    for (const auto& [method, operation] : methods.items()) {
      const bool open = operation.contains("security") && operation["security"].empty();
      described.push_back(fmt::format("{} {} {}", method, route, open));
    }
  for (const auto& route : routes()) {
    auto method = std::string(route.method);
    for (auto& c : method) c = static_cast<char>(std::tolower(c));
    served.push_back(fmt::format("{} {} {}", method, route.path, route.open));
  }
  std::ranges::sort(described);
  std::ranges::sort(served);
  CHECK(described == served);
}

TEST_CASE("a log entry is one line for any content") {
  const auto line = [](Log::Format format) {
    return Log(format, LogLevel::kInfo)
        .line(LogLevel::kWarning, "request",
              {{"path", std::string_view("/a b\n\"\xff")}, {"ms", 1.5}, {"status", std::int64_t{404}}, {"gone", true}},
              "T");
  };
  CHECK(line(Log::Format::kText) == R"(T warning request path="/a b\\x0a\"\\xff" ms=1.500 status=404 gone=true)");
  CHECK(
      line(Log::Format::kJson) ==
      R"({"time":"T","level":"warning","event":"request","path":"/a b\\x0a\"\\xff","ms":1.5,"status":404,"gone":true})");
}

TEST_CASE("metrics have vLLM's names and types, and cumulative histogram buckets") {
  Metrics metrics;
  for (const int us : {100, 101, 260, 60'000'000}) metrics.between_tokens(std::chrono::microseconds(us));
  for (const unsigned status : {200U, 404U, 200U}) metrics.http_ended(status);
  const auto none = metrics.text(nullptr);
  for (const char* line :
       {"# HELP forge_inter_token_latency_seconds Between two tokens of a sample, as they are sent.",
        "# TYPE forge_inter_token_latency_seconds histogram",
        "forge_inter_token_latency_seconds_bucket{le=\"0.0001\"} 1",
        "forge_inter_token_latency_seconds_bucket{le=\"0.00025\"} 2",
        "forge_inter_token_latency_seconds_bucket{le=\"0.0005\"} 3",
        "forge_inter_token_latency_seconds_bucket{le=\"50\"} 3",
        "forge_inter_token_latency_seconds_bucket{le=\"+Inf\"} 4", "forge_inter_token_latency_seconds_count 4",
        "forge_http_responses_total{status=\"200\"} 2", "forge_http_responses_total{status=\"404\"} 1",
        "forge_time_to_first_token_seconds_bucket{le=\"500\"} 0"})
    CHECK(has(none, line + std::string("\n")));
  CHECK_FALSE(has(none, "forge_health"));

  engine::EngineStatus status;
  status.metrics.kv_blocks = 8;
  status.metrics.kv_blocks_free = 6;
  status.metrics.generated_tokens = 5'000'000'001;
  status.metrics.finished[1] = 7;
  const auto text = metrics.text(&status);
  CHECK(has(text, "\nforge_kv_cache_usage_perc 0.25\n"));
  CHECK(has(text, "\nforge_generation_tokens_total 5000000001\n"));
  CHECK(has(text, fmt::format("\nforge_request_success_total{{finished_reason=\"{}\"}} 7\n",
                              engine::finish_reason_name(static_cast<engine::FinishReason>(1)))));
  for (const char* type : {"num_requests_running gauge",
                           "num_requests_waiting gauge",
                           "kv_cache_usage_perc gauge",
                           "kv_cache_blocks gauge",
                           "kv_cache_blocks_free gauge",
                           "kv_cache_blocks_cached gauge",
                           "requests_open gauge",
                           "health gauge",
                           "prefix_cache_queries_total counter",
                           "prefix_cache_hits_total counter",
                           "prompt_tokens_total counter",
                           "generation_tokens_total counter",
                           "num_preemptions_total counter",
                           "request_retries_total counter",
                           "engine_steps_total counter",
                           "engine_steps_failed_total counter",
                           "engine_steps_ahead_total counter",
                           "device_allocations_total counter",
                           "request_success_total counter",
                           "time_to_first_token_seconds histogram",
                           "inter_token_latency_seconds histogram",
                           "e2e_request_latency_seconds histogram",
                           "request_queue_time_seconds histogram",
                           "request_prefill_time_seconds histogram",
                           "request_decode_time_seconds histogram",
                           "http_responses_total counter"})
    CHECK(has(text, fmt::format("# TYPE forge_{}\n", type)));
}

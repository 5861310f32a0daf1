#include "tools/serve/serve_command.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <memory>
#include <thread>

#include "runtime/engine/engine.h"
#include "serve/api.h"
#include "serve/http/server.h"
#include "session/embedding.h"
#include "session/sampling_defaults.h"
#include "support/error.h"
#include "support/os/console.h"
#include "support/os/interrupt.h"
#include "tools/run/run_report.h"

namespace forge::tools {
namespace {

using serve::LogLevel;

std::chrono::milliseconds milliseconds(float seconds) {
  return std::chrono::milliseconds(static_cast<std::int64_t>(seconds * 1000.0F));
}

serve::Log log_of(const ServeRequest& request) {
  const auto level = request.log_level == "error"     ? LogLevel::kError
                     : request.log_level == "warning" ? LogLevel::kWarning
                                                      : LogLevel::kInfo;
  return {request.log_format == "json" ? serve::Log::Format::kJson : serve::Log::Format::kText, level};
}

serve::ApiOptions api_options(const ServeRequest& request) {
  serve::ApiOptions options{.origins = request.origins, .request_timeout = milliseconds(request.request_timeout)};
  if (request.api_key_file) options.keys = read_api_keys(*request.api_key_file);
  return options;
}

serve::HttpLimits limits(const ServeRequest& request) {
  return {.head_bytes = static_cast<std::size_t>(request.head_kib) << 10,
          .body_bytes = static_cast<std::size_t>(request.body_kib) << 10,
          .connections = static_cast<std::size_t>(request.connections),
          .idle = milliseconds(request.idle_timeout),
          .body = milliseconds(request.body_timeout),
          .write = milliseconds(request.write_timeout),
          .ping = milliseconds(request.ping)};
}

std::optional<engine::OutputKind> output_of(std::optional<session::Pooling> pooling) {
  if (!pooling) return std::nullopt;
  switch (*pooling) {
    case session::Pooling::kMean:
      return engine::OutputKind::kMeanRow;
    case session::Pooling::kLast:
      return engine::OutputKind::kLastRow;
    default:  // kRank: the score of the first token's row
      return engine::OutputKind::kFirstRow;
  }
}

std::unique_ptr<serve::ServedModel> model_of(const ServeRequest& request, session::Session& session) {
  if (!session::has_tokenizer(session.file()))
    throw Error(ErrorCode::kTokenizer, "the model has no vocabulary, so it cannot be served", {},
                "use a model with a vocabulary");
  serve::ServedModel::Parts parts{
      .name = request.alias.empty() ? session.file().stem() : request.alias,
      .tokenizer = &session.tokenizer(),
      .chat_template = session.file().find<std::string_view>("tokenizer.chat_template").value_or(std::string_view()),
      .context = static_cast<std::size_t>(session.context())};
  parts.sampling = session::read_sampling_defaults(session.file());
  const auto slots = static_cast<std::int64_t>(session.executor().state_slots());
  const auto snapshots = slots - std::min(slots, request.session.model.sequences);
  parts.executor = session.take_executor();
  const auto pooling = session::find_pooling(session.model(), request.pooling);
  parts.pooling = output_of(pooling);
  parts.ranks = pooling == session::Pooling::kRank;
  parts.engine.queue = static_cast<std::size_t>(request.queue);
  parts.engine.reuse_prefixes = !request.no_prefix_cache;
  parts.engine.state_snapshots = snapshots > 0;
  parts.engine.state_interval = static_cast<std::size_t>(
      request.state_interval.value_or(session::state_interval_for(session.context(), snapshots)));
  parts.engine.turn_ends = session.tokenizer().end_of_generation();
  parts.engine.watchdog = milliseconds(request.watchdog);
  return std::make_unique<serve::ServedModel>(std::move(parts));
}

/// Runs the server on its own thread. The destructor stops everything in the required order, also after an exception:
/// first the network thread, then the API with its workers and engine.
class Running {
 public:
  Running(serve::HttpServer& server, serve::Api& api)
      : server_(server), api_(api), thread_([&server] { server.run(); }) {}
  Running(const Running&) = delete;
  Running& operator=(const Running&) = delete;
  ~Running() {
    server_.stop();
    wait();
    api_.stop();
  }
  void wait() {
    if (thread_.joinable()) thread_.join();
  }

 private:
  serve::HttpServer& server_;
  serve::Api& api_;
  std::thread thread_;
};

}  // namespace

int serve_command(const ServeRequest& request, session::Stages& stages) {
  const auto log = log_of(request);
  serve::Api api(api_options(request), log);
  serve::HttpServer server(api, limits(request));
  const auto port = server.listen(request.host, static_cast<std::uint16_t>(request.port));
  const bool v6 = request.host.find(':') != std::string::npos;
  const auto url = fmt::format("http://{}:{}", v6 ? "[" + request.host + "]" : request.host, port);
  log.write(LogLevel::kInfo, "listening", {{"url", std::string_view(url)}});
  std::optional<session::Session> session;  // declared before `running`: the served model uses its tokenizer
  Running running(server, api);

  auto options = request.session;
  options.tokenizer = options.embeds = true;
  session.emplace(options, stages);
  note_device(*session);
  const auto device = session->executor().device_name();
  auto model = model_of(request, *session);
  const auto name = model->name();
  for (const auto& line : model->sampling().ignored)
    log.write(LogLevel::kWarning, "sampling", {{"ignored", std::string_view(line)}});
  api.serve(std::move(model));

  std::atomic<bool> draining{false};
  server.on_signal([&](int signal) {
    if (draining.exchange(true)) {
      log.write(LogLevel::kWarning, "forced", {{"signal", std::int64_t{signal}}});
      std::_Exit(128 + signal);
    }
    log.write(LogLevel::kInfo, "draining", {{"signal", std::int64_t{signal}}});
    api.drain();
    server.drain(milliseconds(request.drain_timeout));
  });
  check_interrupt();  // a signal that came before on_signal
  log.write(LogLevel::kInfo, "ready",
            {{"model", std::string_view(name)},
             {"device", std::string_view(device)},
             {"context", std::int64_t{session->context()}},
             {"parallel", std::int64_t{request.session.model.sequences}},
             {"ms", stages.now()}});
  running.wait();
  log.write(LogLevel::kInfo, "ended", {});
  return 0;
}

}  // namespace forge::tools

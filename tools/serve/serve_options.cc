#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>

#include "session/embedding.h"
#include "support/error.h"
#include "support/os/console.h"
#include "tools/cli/options.h"
#include "tools/serve/serve_command.h"

namespace forge::tools {
namespace {

constexpr const char* kServeFooter =
    "Each option can also be set in a TOML file (--config FILE; max-head-kib = 16) or in the environment "
    "(FORGE_MAX_HEAD_KIB=16). The command line overrides the environment, which overrides the file.\n"
    "Exit status: 0 drained after SIGTERM or Ctrl-C, 1 the run failed, 2 wrong usage, 3 bad model or plan, 4 device "
    "error, 5 out of memory.\n";

constexpr float kDay = 86'400;
constexpr std::int64_t kStateSlotsMax = 1 << 16;
constexpr std::size_t kKeyFileBytesMax = 1 << 20;

void check(const ServeRequest& request) {
  if (request.session.model.path.empty())
    throw Error(ErrorCode::kUsage, "MODEL is required", {}, "forge-serve --help lists the options");
}

void add_network(Options& options, ServeRequest& request) {
  options.group("Network")
      .text("--host", request.host, "ADDRESS", "IP address to listen on; default 127.0.0.1 (this machine only)")
      .integer("--port", request.port, 0, 65'535,
               "port to listen on; 0: any free port, shown in the first log line; default 8080")
      .text("--api-key-file", request.api_key_file, "FILE",
            "require one of the API keys in FILE, one key per line; default: no key is required")
      .texts("--cors-origin", request.origins, "ORIGIN",
             "allow requests from web pages of ORIGIN (CORS); *: any origin; may be repeated")
      .integer("--max-connections", request.connections, 1, 1 << 20, "maximum number of open connections; default 1024")
      .integer("--max-body-kib", request.body_kib, 1, 1 << 20, "maximum size of a request body, in KiB; default 4096")
      .integer("--max-head-kib", request.head_kib, 1, 1 << 10,
               "maximum size of a request line and its headers, in KiB; default 16")
      .real("--idle-timeout", request.idle_timeout, 0.01F, kDay,
            "close a connection that sends no complete request headers for this long, in seconds; default 75")
      .real("--body-timeout", request.body_timeout, 0.01F, kDay,
            "maximum time to receive a request body, in seconds; default 30")
      .real("--write-timeout", request.write_timeout, 0.01F, kDay,
            "close a connection whose client reads nothing for this long, in seconds; default 30")
      .real("--ping", request.ping, 0.01F, kDay,
            "send a comment on a stream that was silent for this long, in seconds; default 15");
}

}  // namespace

bool parse_serve_options(int argc, const char* const* argv, ServeRequest& request) {
  auto& session = request.session;
  session.model.sequences = 16;
  session.model.hidden = true;
  session.state_slots = std::nullopt;
  Options options("forge-serve", "Serves a GGUF model or a compiled plan over HTTP, with OpenAI's API.", kServeFooter);
  options.positional("MODEL", session.model.path, "a GGUF file, or a plan made by forge-compile", false)
      .text("--alias", request.alias, "NAME", "model name in the API; default: the file's name")
      .integer("-c,--context", session.model.context, 1, session::kContextMax,
               "context size of each sequence, in tokens; default: the plan's, or the model's up to 4096")
      .integer("--parallel", session.model.sequences, 1, session::kSequencesMax,
               "maximum number of sequences that run at the same time; default 16")
      .integer("--queue", request.queue, 1, 1 << 20,
               "maximum number of waiting requests; more are refused with status 429; default 256")
      .real("--request-timeout", request.request_timeout, 0.01F, 7 * kDay,
            "maximum duration of a request, in seconds; default 600")
      .real("--watchdog", request.watchdog, 0, kDay,
            "fail all requests if one step takes longer than this, in seconds; 0: never; default 60")
      .choice("--pooling", request.pooling, session::kPoolings, session::kPoolingHelp)
      .flag("--no-prefix-cache", request.no_prefix_cache, "do not reuse the KV cache of shared prompt prefixes")
      .integer("--state-slots", session.state_slots, 0, kStateSlotsMax,
               "slots of recurrent state, for models that have it: one per sequence of --parallel, the others for "
               "snapshots that prefixes are reused from; 0: no snapshots; default: snapshots in an eighth of the free "
               "memory, at most 64")
      .integer("--state-interval", request.state_interval, 0, session::kContextMax,
               "keep a snapshot of recurrent state every N tokens of a prompt; 0: only at turns and ends; default: so "
               "that two whole contexts fit, at least 256");
  add_network(options, request);
  options.group("Execution")
      .text("--device", session.device, "NAME", session::kDeviceHelp)
      .integer("-t,--threads", session.threads, 1, 1024, session::kThreadsHelp)
      .choice("--kv-type", session.model.kv_type, session::kKvTypes, session::kKvTypeHelp)
      .text("--attention", session.model.attention, "LIST", session::kAttentionHelp)
      .flag("--no-tuned", session.model.no_tuned, session::kNoTunedHelp)
      .flag("--deterministic", session.model.deterministic, session::kDeterministicHelp)
      .text("--model,--model-file", session.model.model, "FILE", session::kModelHelp)
      .group("Operation")
      .real("--drain-timeout", request.drain_timeout, 0, kDay,
            "time for running requests to finish after SIGTERM, in seconds; default 30")
      .choice("--log-format", request.log_format, "text|json", "format of the log on stderr; default text")
      .choice("--log-level", request.log_level, "error|warning|info", "least severe level to log; default info")
      .text("--config", request.config, "FILE", "read options from a TOML file")
      .flag("--print-config", request.print_config, "print all options and their values as a TOML file and exit");
  auto file = early_value(argc, argv, "--config");
  if (const char* variable = std::getenv("FORGE_CONFIG"); file.empty() && variable != nullptr) file = variable;
  options.take_layers(file);
  if (!options.parse(argc, argv)) return false;
  if (request.print_config) {
    Output().write(options.toml({"config", "print-config"}));
    return false;
  }
  check(request);
  if (request.no_prefix_cache) session.state_slots = 0;  // snapshots would never be used
  return true;
}

std::vector<std::string> read_api_keys(const std::string& path) {
  std::vector<std::string> keys;
  const auto text = read_text(path, kKeyFileBytesMax);
  for (std::size_t begin = 0; begin < text.size();) {
    const auto end = std::min(text.find('\n', begin), text.size());
    auto line = text.substr(begin, end - begin);
    while (line.ends_with('\r') || line.ends_with(' ')) line.pop_back();
    if (!line.empty() && !line.starts_with('#')) keys.push_back(std::move(line));
    begin = end + 1;
  }
  if (keys.empty())
    throw Error(ErrorCode::kUsage, fmt::format("{} has no API key", printable(path, 200)), {},
                "write one key per line");
  return keys;
}

}  // namespace forge::tools

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>

#include "support/error.h"
#include "support/os/console.h"
#include "tools/cli/options.h"
#include "tools/serve/serve_command.h"

namespace forge::tools {
namespace {

constexpr const char* kServeFooter =
    "Each option can also be given in a TOML file (--config FILE, its name without dashes = value) or in the\n"
    "environment (FORGE_NAME, with _ for -); the command line counts before the environment, that before the file.\n"
    "Exit status: 0 drained after SIGTERM or Ctrl-C, 1 run, 2 usage, 3 model, 4 device, 5 memory.\n";

constexpr float kDay = 86'400;
constexpr std::size_t kKeyFileBytesMax = 1 << 20;

void check(const ServeRequest& request) {
  if (request.session.model.path.empty())
    throw Error(ErrorCode::kUsage, "there is no MODEL", {}, "forge-serve --help lists the options");
}

void add_network(Options& options, ServeRequest& request) {
  options.group("Network")
      .text("--host", request.host, "ADDRESS", "listen on this address; default 127.0.0.1: this machine alone")
      .integer("--port", request.port, 0, 65'535, "default 8080; 0: one that is free, told in the first line")
      .text("--api-key-file", request.api_key_file, "FILE", "keys of which a client must send one; a line each")
      .texts("--cors-origin", request.origins, "ORIGIN", "pages from there may call; * for all; may be repeated")
      .integer("--max-connections", request.connections, 1, 1 << 20, "default 1024")
      .integer("--max-body-kib", request.body_kib, 1, 1 << 20, "largest request body; default 4096")
      .integer("--max-head-kib", request.head_kib, 1, 1 << 10, "largest request head; default 16")
      .real("--idle-timeout", request.idle_timeout, 0.01F, kDay, "seconds until a request's head is there; default 75")
      .real("--body-timeout", request.body_timeout, 0.01F, kDay, "seconds for its body; default 30")
      .real("--write-timeout", request.write_timeout, 0.01F, kDay, "seconds for a client to take data; default 30")
      .real("--ping", request.ping, 0.01F, kDay, "seconds of silence before a stream says it is alive; default 15");
}

}  // namespace

bool parse_serve_options(int argc, const char* const* argv, ServeRequest& request) {
  auto& session = request.session;
  session.model.sequences = 16;
  session.model.hidden = true;
  Options options("forge-serve", "Serves a GGUF model, or a plan, by OpenAI's HTTP interface and a plain one.",
                  kServeFooter);
  options.positional("MODEL", session.model.path, "MODEL.gguf, or a plan", false)
      .text("--alias", request.alias, "NAME", "what clients call the model; default its file's name")
      .integer("-c,--context", session.model.context, 1, session::kContextMax,
               "positions of a sequence; default the plan's, or the model's, at most 4096")
      .integer("--parallel", session.model.sequences, 1, session::kSequencesMax,
               "sequences that run at once; default 16")
      .integer("--queue", request.queue, 1, 1 << 20, "requests that wait before more are refused; default 256")
      .real("--request-timeout", request.request_timeout, 0.01F, 7 * kDay, "seconds a request may take; default 600")
      .real("--watchdog", request.watchdog, 0, kDay, "seconds until a step counts as stuck; 0 never, default 60")
      .choice("--pooling", request.pooling, "auto|mean|last",
              "what of a text's rows is its embedding; default auto: the model's")
      .flag("--no-prefix-cache", request.no_prefix_cache, "do not reuse what prompts begin with alike");
  add_network(options, request);
  options.group("Machine")
      .text("--device", session.device, "NAME", "auto, cpu, hip:N, cuda:N; default auto")
      .integer("-t,--threads", session.threads, 1, 1024, "default: what this process may use")
      .text("--attention", session.model.attention, "LIST", session::kAttentionHelp)
      .text("--model,--model-file", session.model.model, "FILE", "where the plan's model is, if not where it was")
      .group("Operation")
      .real("--drain-timeout", request.drain_timeout, 0, kDay, "seconds for what runs at SIGTERM to end; default 30")
      .choice("--log-format", request.log_format, "text|json", "default text")
      .choice("--log-level", request.log_level, "error|warning|info", "default info")
      .text("--config", request.config, "FILE", "read options from a TOML file")
      .flag("--print-config", request.print_config, "print all options with their values as such a file, and stop");
  auto file = early_value(argc, argv, "--config");
  if (const char* variable = std::getenv("FORGE_CONFIG"); file.empty() && variable != nullptr) file = variable;
  options.take_layers(file);
  if (!options.parse(argc, argv)) return false;
  if (request.print_config) {
    Output().write(options.toml({"config", "print-config"}));
    return false;
  }
  check(request);
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
    throw Error(ErrorCode::kUsage, fmt::format("{} has no API key", printable(path, 200)), {}, "write one key a line");
  return keys;
}

}  // namespace forge::tools

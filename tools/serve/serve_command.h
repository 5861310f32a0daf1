#pragma once
// forge-serve: its command line and the server program.

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "session/session.h"

namespace forge::tools {

struct ServeRequest {
  session::Session::Options session;
  std::string host = "127.0.0.1", alias, log_format = "text", log_level = "info", config, pooling = "auto";
  std::optional<std::string> api_key_file;
  std::optional<std::int64_t> state_interval;
  std::vector<std::string> origins;
  std::int64_t port = 8080, queue = 256, body_kib = 4096, head_kib = 16, connections = 1024;
  float request_timeout = 600, drain_timeout = 30, idle_timeout = 75, body_timeout = 30, write_timeout = 30;
  float ping = 15, watchdog = 60;
  bool no_prefix_cache = false, print_config = false;
};

/// Parses command line, environment and TOML file. False when --help, --version or --print-config was printed. Errors:
/// kUsage; kIo for the TOML file.
[[nodiscard]] bool parse_serve_options(int argc, const char* const* argv, ServeRequest& request);

/// Reads API keys, one per line; empty lines and lines that begin with # are skipped. Errors: kIo; kUsage for a file
/// without keys.
[[nodiscard]] std::vector<std::string> read_api_keys(const std::string& path);

/// Serves until SIGTERM or SIGINT, then drains (running requests may finish) and returns. A second signal ends the
/// process at once. Errors: those of listening, opening the model and reading the keys.
int serve_command(const ServeRequest& request, session::Stages& stages);

}  // namespace forge::tools

#pragma once
// What forge-run's command line says.

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "runtime/sampler.h"
#include "session/generate.h"
#include "session/prompt.h"
#include "session/session.h"
#include "tools/cli/options.h"
#include "tools/run/dump_logits.h"
#include "tools/run/prompt_input.h"

namespace forge::tools {

struct RunRequest {
  session::Session::Options session;
  session::PromptOptions prompt;
  std::optional<std::string> tokens, dump, trace;
  std::optional<std::int64_t> seed, predict;
  DumpOptions dump_options;
  runtime::SamplerParams sampler;
  std::int64_t top_k = 40, repeat_window = 64;
  std::vector<std::string> stops;
  bool ignore_eos = false, json = false, verbose = false, show_prompt = false;
};

/// The rows of the sampling options, which write to `request`.
void add_sampling(Options& options, RunRequest& request);

/// What the request says about choosing tokens. `ends`: tokens that end an answer.
[[nodiscard]] session::GenerateOptions generate_options(const RunRequest& request, std::uint64_t seed,
                                                        std::span<const std::int32_t> ends);
/// The seed that was asked for, else a new one.
[[nodiscard]] std::uint64_t choose_seed(const RunRequest& request);

/// False when --help or --version was printed. Errors: kUsage, also for options that exclude each other.
[[nodiscard]] bool parse_run_options(int argc, const char* const* argv, RunRequest& request);

}  // namespace forge::tools

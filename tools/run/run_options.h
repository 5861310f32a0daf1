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

/// A text's answer has at most so many tokens where -n does not say: about 750 words.
inline constexpr std::int64_t kAnswerTokens = 1024;

struct RunRequest {
  session::Session::Options session;
  session::PromptOptions prompt;
  std::optional<std::string> tokens, dump, trace;
  std::optional<std::int64_t> seed, predict;  ///< predict -1: no limit but the context
  DumpOptions dump_options;
  runtime::SamplerParams sampler;  ///< typical_p and the penalties by presence and frequency; the rest is below
  /// Empty: not given. settle_sampling fills them.
  std::optional<float> temperature, top_p, min_p, repeat_penalty;
  std::optional<std::int64_t> top_k, repeat_window;
  std::vector<std::string> stops;
  bool ignore_eos = false, json = false, verbose = false, show_prompt = false;
};

/// The rows of the sampling options, which write to `request`.
void add_sampling(Options& options, RunRequest& request);

/// The row of -n.
void add_limit(Options& options, RunRequest& request);

/// Fills what was not given: for a text by the model's file (general.sampling.*) where it says something, else by
/// llama.cpp's defaults; for token ids, which scripts give, by greedy choice without penalties. A key of the file that
/// is not used is a line on stderr.
void settle_sampling(RunRequest& request, const loader::Gguf& file);

/// What a settled request says about choosing tokens. `ends`: tokens that end an answer.
[[nodiscard]] session::GenerateOptions generate_options(const RunRequest& request, std::uint64_t seed,
                                                        std::span<const std::int32_t> ends);
/// The seed that was asked for, else a new one.
[[nodiscard]] std::uint64_t choose_seed(const RunRequest& request);

/// False when --help or --version was printed. Errors: kUsage, also for options that exclude each other.
[[nodiscard]] bool parse_run_options(int argc, const char* const* argv, RunRequest& request);

}  // namespace forge::tools

#pragma once
// forge-run's command line, and the sampling options that its chat shares (/set).

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

/// Default of -n for text: an answer has at most this many tokens, about 750 words.
inline constexpr std::int64_t kAnswerTokens = 1024;

struct RunRequest {
  session::Session::Options session;
  session::PromptOptions prompt;
  std::optional<std::string> tokens, dump, trace;
  std::string pooling = "auto";
  std::optional<std::string> dump_embedding;  ///< file for the pooled vector of the prompt
  bool embed = false;                         ///< print the embedding of the prompt instead of an answer
  std::optional<std::int64_t> seed, predict;  ///< predict -1: until the model ends its answer or the context is full
  DumpOptions dump_options;
  runtime::SamplerParams sampler;  ///< the settings that no file can give; the others are below
  /// Options whose defaults depend on the model file; settle_sampling fills those that are empty.
  std::optional<float> temperature, top_p, min_p, repeat_penalty;
  std::optional<std::int64_t> top_k, repeat_window;
  std::vector<std::string> stops;
  std::optional<std::string> regex, schema, grammar;  ///< at most one; the last two are files
  bool ignore_eos = false, json = false, verbose = false, show_prompt = false;
};

/// Adds the sampling options, which store their values in `request`.
void add_sampling(Options& options, RunRequest& request);

/// Adds --schema, --grammar and --regex.
void add_constraints(Options& options, RunRequest& request);

/// Adds -n.
void add_limit(Options& options, RunRequest& request);

/// Fills the sampling options that were not given. For text: the model file's defaults (general.sampling.*), else those
/// of llama.cpp. For --tokens, which scripts use: greedy, without penalties. Prints a warning for each key of the file
/// that is not used.
void settle_sampling(RunRequest& request, const loader::Gguf& file);

/// The generation options of a request after settle_sampling. `ends`: token ids that end an answer; must outlive the
/// result.
[[nodiscard]] session::GenerateOptions generate_options(const RunRequest& request, std::uint64_t seed,
                                                        std::span<const std::int32_t> ends);
/// --seed, or else a random seed.
[[nodiscard]] std::uint64_t choose_seed(const RunRequest& request);

/// Parses the command line. False when --help or --version was printed. Errors: kUsage, also for options that exclude
/// each other.
[[nodiscard]] bool parse_run_options(int argc, const char* const* argv, RunRequest& request);

}  // namespace forge::tools

#include "tools/run/run_options.h"

#include <fmt/format.h>

#include <limits>
#include <random>

#include "session/sampling_defaults.h"
#include "support/error.h"
#include "support/os/atomic_file.h"
#include "support/os/console.h"

namespace forge::tools {
namespace {

constexpr std::int64_t kTokensMax = std::int64_t{1} << 31;

constexpr const char* kRunFooter =
    "* the model's own where its file has one (general.sampling.*); with --tokens the default is greedy.\n"
    "The text goes to stdout and nothing else does. Without -p or -f the prompt is read from standard input;\n"
    "on a terminal that is a chat: /help lists its commands, Ctrl-C ends an answer, Ctrl-D leaves.\n"
    "Exit status: 0 ok, 1 run, 2 usage, 3 model, 4 device, 5 memory, 130 Ctrl-C.\n";

void check(const RunRequest& request) {
  const auto refuse = [](std::string what, std::string fix) {
    throw Error(ErrorCode::kUsage, std::move(what), {}, std::move(fix));
  };
  if (request.dump && !request.tokens) refuse("--dump-logits needs --tokens", "say which tokens");
  if (!request.dump && (request.dump_options.decode || request.dump_options.last > 0))
    refuse("--decode and --logits-last go with --dump-logits", "name a file for the logits");
  if (request.dump && request.predict) refuse("-n and --dump-logits exclude each other", "give one of them");
  if (request.tokens && (request.prompt.text || request.prompt.file || request.prompt.system))
    refuse("--tokens and a prompt exclude each other", "give one of them");
  if (request.dump && request.show_prompt)
    refuse("--show-prompt and --dump-logits exclude each other", "give one of them");
  const auto& model = request.session.model;
  const auto prompt_file = request.prompt.file.value_or("");
  if (request.dump) check_output_path(*request.dump, {model.path, model.model, prompt_file});
  if (request.trace)
    check_output_path(*request.trace, {model.path, model.model, prompt_file, request.dump.value_or("")});
}

}  // namespace

void add_sampling(Options& options, RunRequest& request) {
  auto& sampler = request.sampler;
  options.group("Sampling")
      .real("--temp", request.temperature, 0, 100, "temperature; default 0.8*; 0: the likeliest token, always")
      .integer("--top-k", request.top_k, 0, kTokensMax - 1, "draw from the N likeliest; 0 off, default 40*")
      .real("--top-p", request.top_p, 0, 1, "draw from the likeliest up to this mass; 1 off, default 0.95*")
      .real("--min-p", request.min_p, 0, 1, "draw from those this likely, relative to the first; default 0.05*")
      .real("--typical-p", sampler.typical_p, 0, 1, "locally typical sampling up to this mass; default 1: off")
      .real("--repeat-penalty", request.repeat_penalty, 0.01F, 100, "penalty on repeated tokens; default 1*: off")
      .real("--presence-penalty", sampler.presence_penalty, -100, 100, "subtracted once from repeated tokens")
      .real("--frequency-penalty", sampler.frequency_penalty, -100, 100, "subtracted for each repetition")
      .integer("--repeat-last-n", request.repeat_window, 0, 1 << 20, "tokens that penalties look at; default 64*")
      .integer("--seed", request.seed, 0, std::numeric_limits<std::int64_t>::max(),
               "the same seed gives the same text; default: a new one each time")
      .texts("--stop", request.stops, "TEXT", "end before this text; may be repeated")
      .flag("--ignore-eos", request.ignore_eos, "go on when the model ends its answer");
}

void add_limit(Options& options, RunRequest& request) {
  options.integer("-n,--predict", request.predict, -1, kTokensMax - 1,
                  fmt::format("tokens at most; -1: until the model ends or the context is full; default {}, with "
                              "--tokens -1",
                              kAnswerTokens));
}

void settle_sampling(RunRequest& request, const loader::Gguf& file) {
  session::SamplingDefaults given{.temperature = 0.0F};
  if (!request.tokens) given = session::read_sampling_defaults(file);
  for (const auto& line : given.ignored) warn(line);
  const auto fill = [](auto& into, const auto& of_file, auto fallback) {
    if (!into) into = of_file.value_or(fallback);
  };
  // llama.cpp's (common_params_sampling), as of the end of 2025.
  fill(request.temperature, given.temperature, 0.8F);
  fill(request.top_k, given.top_k, 40);
  fill(request.top_p, given.top_p, 0.95F);
  fill(request.min_p, given.min_p, 0.05F);
  fill(request.repeat_penalty, given.repeat_penalty, 1.0F);
  fill(request.repeat_window, given.penalty_window, 64);
}

session::GenerateOptions generate_options(const RunRequest& request, std::uint64_t seed,
                                          std::span<const std::int32_t> ends) {
  session::GenerateOptions options{.tokens_max = request.predict.value_or(request.tokens ? -1 : kAnswerTokens),
                                   .sampler = request.sampler};
  auto& sampler = options.sampler;
  sampler.temperature = request.temperature.value();
  sampler.top_k = static_cast<std::int32_t>(request.top_k.value());
  sampler.top_p = request.top_p.value();
  sampler.min_p = request.min_p.value();
  sampler.repeat_penalty = request.repeat_penalty.value();
  sampler.penalty_window = static_cast<std::size_t>(request.repeat_window.value());
  sampler.seed = seed;
  if (!request.ignore_eos) options.ends = ends;
  return options;
}

std::uint64_t choose_seed(const RunRequest& request) {
  if (request.seed) return static_cast<std::uint64_t>(*request.seed);
  std::random_device device;
  return (std::uint64_t{device()} << 32 | device()) >> 1;
}

bool parse_run_options(int argc, const char* const* argv, RunRequest& request) {
  auto& session = request.session;
  Options options("forge-run", "Runs a GGUF model, or a plan that forge-compile made of one.", kRunFooter);
  options.positional("MODEL", session.model.path, "MODEL.gguf, or a plan")
      .text("-p,--prompt", request.prompt.text, "TEXT", "the prompt")
      .text("-f,--file", request.prompt.file, "FILE", "read the prompt from a file; - is standard input")
      .text("--system", request.prompt.system, "TEXT", "the system message")
      .flag("--raw", request.prompt.raw, "give the prompt as it stands, without the model's chat template");
  add_limit(options, request);
  options.integer("-c,--context", session.model.context, 1, session::kContextMax,
                  "positions; default the plan's, or the model's, at most 4096");
  add_sampling(options, request);
  options.group("Machine")
      .text("--device", session.device, "NAME", "auto, cpu, hip:N, cuda:N; default auto")
      .integer("-t,--threads", session.threads, 1, 1024, "default: what this process may use")
      .text("--model", session.model.model, "FILE", "where the plan's model is, if not where it was")
      .choice("--kv-type", session.model.kv_type, session::kKvTypes, session::kKvTypeHelp)
      .text("--attention", session.model.attention, "LIST", session::kAttentionHelp)
      .flag("--repack-cache", session.repack_cache, session::kRepackCacheHelp)
      .texts("--skip-pass", session.model.skip, "NAME", "leave an optional pass out; may be repeated")
      .group("Output")
      .flag("--json", request.json, "one JSON object with text, tokens, timings and memory")
      .flag("--profile", session.profile, "time each kind of step; a table on stderr, and a slower run")
      .text("--profile-trace", request.trace, "FILE", session::kTraceHelp)
      .flag("--show-prompt", request.show_prompt, "write the prompt as the model gets it to stderr")
      .flag("-v,--verbose", request.verbose, "say on stderr when each stage was done")
      .group("Tokens and logits")
      .text("--tokens", request.tokens, "IDS", "token ids as the prompt: 1,2,3")
      .text("--dump-logits", request.dump, "FILE", "write float32 [tokens, vocabulary], a row a position")
      .integer("--logits-last", request.dump_options.last, 1, kTokensMax, "keep the last N rows")
      .flag("--decode", request.dump_options.decode, "feed one token a step");
  if (!options.parse(argc, argv)) return false;
  check(request);
  return true;
}

}  // namespace forge::tools

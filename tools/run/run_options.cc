#include "tools/run/run_options.h"

#include <fmt/format.h>

#include <limits>
#include <random>

#include "session/embedding.h"
#include "session/sampling_defaults.h"
#include "support/error.h"
#include "support/os/atomic_file.h"
#include "support/os/console.h"

namespace forge::tools {
namespace {

constexpr std::int64_t kTokensMax = std::int64_t{1} << 31;

constexpr const char* kRunFooter =
    "* unless the model file sets it (general.sampling.*). With --tokens the default is greedy sampling.\n"
    "Only the generated text goes to stdout. Without -p or -f the prompt is read from stdin; if stdin is a terminal, a "
    "chat starts: /help lists its commands, Ctrl-C stops an answer, Ctrl-D exits.\n"
    "Exit status: 0 success, 1 the run failed, 2 wrong usage, 3 bad model or plan, 4 device error, 5 out of memory, "
    "130 Ctrl-C.\n";

void check(const RunRequest& request) {
  const auto refuse = [](std::string what, std::string fix) {
    throw Error(ErrorCode::kUsage, std::move(what), {}, std::move(fix));
  };
  if (request.dump && !request.tokens) refuse("--dump-logits needs --tokens", "give token ids: --tokens 1,2,3");
  if (!request.dump && (request.dump_options.decode || request.dump_options.last > 0))
    refuse("--decode and --logits-last need --dump-logits", "give --dump-logits FILE");
  if (request.dump && request.predict) refuse("-n and --dump-logits exclude each other", "give one of them");
  if (request.tokens && (request.prompt.text || request.prompt.file || request.prompt.system))
    refuse("--tokens and a prompt exclude each other", "give one of them");
  const int constraints = (request.regex ? 1 : 0) + (request.schema ? 1 : 0) + (request.grammar ? 1 : 0);
  if (constraints > 1) refuse("--regex, --schema and --grammar exclude each other", "give one of them");
  if (constraints > 0 && (request.dump || request.embed || request.dump_embedding))
    refuse("--regex, --schema and --grammar are for generated text", "leave them out");
  if (request.dump && request.show_prompt)
    refuse("--show-prompt and --dump-logits exclude each other", "give one of them");
  const bool embeds = request.embed || request.dump_embedding;
  if (embeds && (request.dump || request.predict || request.show_prompt))
    refuse("--embed and --dump-embedding exclude --dump-logits, -n and --show-prompt", "give one of them");
  const auto& model = request.session.model;
  const auto prompt_file = request.prompt.file.value_or("");
  if (request.dump) check_output_path(*request.dump, {model.path, model.model, prompt_file});
  if (request.dump_embedding) check_output_path(*request.dump_embedding, {model.path, model.model, prompt_file});
  if (request.trace)
    check_output_path(*request.trace, {model.path, model.model, prompt_file, request.dump.value_or("")});
}

}  // namespace

void add_sampling(Options& options, RunRequest& request) {
  auto& sampler = request.sampler;
  options.group("Sampling")
      .real("--temp", request.temperature, 0, 100, "sampling temperature; 0: greedy; default 0.8*")
      .integer("--top-k", request.top_k, 0, kTokensMax - 1,
               "sample from the N most probable tokens; 0: off; default 40*")
      .real("--top-p", request.top_p, 0, 1,
            "sample from the most probable tokens that together reach this probability; 1: off; default 0.95*")
      .real("--min-p", request.min_p, 0, 1,
            "drop tokens whose probability is below this fraction of the highest; 0: off; default 0.05*")
      .real("--typical-p", sampler.typical_p, 0, 1,
            "locally typical sampling up to this total probability; 1: off; default 1")
      .real("--repeat-penalty", request.repeat_penalty, 0.01F, 100,
            "factor that lowers logits of repeated tokens; 1: off; default 1*")
      .real("--presence-penalty", sampler.presence_penalty, -100, 100,
            "subtracted from the logit of each token that has occurred; 0: off; default 0")
      .real("--frequency-penalty", sampler.frequency_penalty, -100, 100,
            "subtracted from a token's logit for each time it has occurred; 0: off; default 0")
      .integer("--repeat-last-n", request.repeat_window, 0, 1 << 20,
               "number of last tokens that the penalties consider; default 64*")
      .integer("--seed", request.seed, 0, std::numeric_limits<std::int64_t>::max(),
               "seed of the random generator: the same seed gives the same text; default: random")
      .texts("--stop", request.stops, "TEXT", "stop before this text, which is not printed; may be repeated")
      .flag("--ignore-eos", request.ignore_eos, "continue after an end-of-generation token");
}

void add_constraints(Options& options, RunRequest& request) {
  options.group("Structured output")
      .text("--schema", request.schema, "FILE", "generate JSON that fits this JSON schema; - is stdin")
      .text("--grammar", request.grammar, "FILE", "generate text of this GBNF grammar; - is stdin")
      .text("--regex", request.regex, "TEXT",
            "generate text that this regular expression (ECMA-262) matches as a whole");
}

void add_limit(Options& options, RunRequest& request) {
  options.integer("-n,--predict", request.predict, -1, kTokensMax - 1,
                  fmt::format("maximum number of tokens to generate; -1: until the model ends its answer or the "
                              "context is full; default {}, with --tokens -1",
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
  Options options("forge-run", "Generates text with a GGUF model or a compiled plan.", kRunFooter);
  options.positional("MODEL", session.model.path, "a GGUF file, or a plan made by forge-compile")
      .text("-p,--prompt", request.prompt.text, "TEXT", "the prompt")
      .text("-f,--file", request.prompt.file, "FILE", "read the prompt from FILE; - is stdin")
      .text("--system", request.prompt.system, "TEXT", "the system message; needs a model with a chat template")
      .flag("--raw", request.prompt.raw, "use the prompt as it is, without the model's chat template");
  add_limit(options, request);
  options.integer("-c,--context", session.model.context, 1, session::kContextMax,
                  "context size in tokens; default: the plan's, or the model's up to 4096");
  add_sampling(options, request);
  add_constraints(options, request);
  options.group("Execution")
      .text("--device", session.device, "NAME", session::kDeviceHelp)
      .integer("-t,--threads", session.threads, 1, 1024, session::kThreadsHelp)
      .text("--model", session.model.model, "FILE", session::kModelHelp)
      .choice("--kv-type", session.model.kv_type, session::kKvTypes, session::kKvTypeHelp)
      .text("--attention", session.model.attention, "LIST", session::kAttentionHelp)
      .flag("--no-tuned", session.model.no_tuned, session::kNoTunedHelp)
      .flag("--deterministic", session.model.deterministic, session::kDeterministicHelp)
      .flag("--repack-cache", session.repack_cache, session::kRepackCacheHelp)
      .texts("--skip-pass", session.model.skip, "NAME",
             "skip an optional compiler pass (forge-compile --list-passes); may be repeated")
      .group("Output")
      .flag("--json", request.json, "print one JSON object with text, tokens, timings and memory")
      .flag("--profile", session.profile, "time each kind of step and print a table to stderr; slows the run down")
      .text("--profile-trace", request.trace, "FILE", session::kTraceHelp)
      .flag("--show-prompt", request.show_prompt, "print the prompt with the chat template applied to stderr")
      .flag("-v,--verbose", request.verbose, "print to stderr when each stage of the start was finished, in ms")
      .group("Tokens and logits")
      .text("--tokens", request.tokens, "IDS", "use these token ids as the prompt: 1,2,3")
      .text("--dump-logits", request.dump, "FILE",
            "write the logits as float32 [tokens, vocabulary], one row per token of --tokens, and exit")
      .flag("--embed", request.embed, "print the embedding of the prompt, a vector of length 1, as a JSON list")
      .text("--dump-embedding", request.dump_embedding, "FILE",
            "write the pooled vector of the prompt, not normalised, as float32 and exit")
      .choice("--pooling", request.pooling, session::kPoolings, session::kPoolingHelp)
      .integer("--logits-last", request.dump_options.last, 1, kTokensMax, "write the last N rows of logits only")
      .flag("--decode", request.dump_options.decode,
            "compute the logits with decode steps of one token instead of prefill");
  if (!options.parse(argc, argv)) return false;
  check(request);
  return true;
}

}  // namespace forge::tools

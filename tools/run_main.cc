// forge-run: text, tokens or logits from a model.

#include <fmt/format.h>
#include <unistd.h>

#include <limits>
#include <optional>
#include <random>

#include "loader/tok/detokenizer.h"
#include "support/error.h"
#include "tools/atomic_file.h"
#include "tools/console.h"
#include "tools/dump_logits.h"
#include "tools/entry.h"
#include "tools/generate.h"
#include "tools/options.h"
#include "tools/prompt.h"
#include "tools/run_report.h"
#include "tools/session.h"

namespace {

using namespace forge;
using namespace forge::tools;

constexpr std::int64_t kTokensMax = std::int64_t{1} << 31;

struct Request {
  Session::Options session;
  PromptOptions prompt;
  std::optional<std::string> tokens, dump;
  std::optional<std::int64_t> seed, predict;
  DumpOptions dump_options;
  runtime::SamplerParams sampler;
  std::int64_t top_k = 40, repeat_window = 64;
  std::vector<std::string> stops;
  bool ignore_eos = false, json = false, verbose = false;
};

constexpr const char* kFooter =
    "The text goes to stdout and nothing else does. Without -p or -f the prompt is read from standard input.\n"
    "Exit status: 0 ok, 1 run, 2 usage, 3 model, 4 device, 5 memory, 130 Ctrl-C.\n";

void add_sampling(Options& options, Request& request) {
  auto& sampler = request.sampler;
  options.group("Sampling")
      .real("--temp", sampler.temperature, 0, 100, "temperature; default 0: the likeliest token, always")
      .integer("--top-k", request.top_k, 0, kTokensMax - 1, "draw from the N likeliest; 0 off, default 40")
      .real("--top-p", sampler.top_p, 0, 1, "draw from the likeliest up to this mass; 1 off, default 0.95")
      .real("--min-p", sampler.min_p, 0, 1, "draw from those this likely, relative to the first; default 0.05")
      .real("--typical-p", sampler.typical_p, 0, 1, "locally typical sampling up to this mass; default 1: off")
      .real("--repeat-penalty", sampler.repeat_penalty, 0.01F, 100, "penalty on repeated tokens; default 1: off")
      .real("--presence-penalty", sampler.presence_penalty, -100, 100, "subtracted once from repeated tokens")
      .real("--frequency-penalty", sampler.frequency_penalty, -100, 100, "subtracted for each repetition")
      .integer("--repeat-last-n", request.repeat_window, 0, 1 << 20, "tokens that penalties look at; default 64")
      .integer("--seed", request.seed, 0, std::numeric_limits<std::int64_t>::max(),
               "the same seed gives the same text; default: a new one each time")
      .texts("--stop", request.stops, "TEXT", "end before this text; may be repeated")
      .flag("--ignore-eos", request.ignore_eos, "go on when the model ends its answer");
}

bool parse(int argc, char** argv, Request& request) {
  request.sampler.top_p = 0.95F;
  request.sampler.min_p = 0.05F;
  auto& session = request.session;
  Options options("forge-run", "Runs a GGUF model, or a plan that forge-compile made of one.", kFooter);
  options.positional("MODEL", session.model.path, "MODEL.gguf, or a plan")
      .text("-p,--prompt", request.prompt.text, "TEXT", "the prompt")
      .text("-f,--file", request.prompt.file, "FILE", "read the prompt from a file; - is standard input")
      .text("--system", request.prompt.system, "TEXT", "the system message")
      .flag("--raw", request.prompt.raw, "give the prompt as it stands, without the model's chat template")
      .integer("-n,--predict", request.predict, 0, kTokensMax - 1, "tokens at most; default: until the model ends")
      .integer("-c,--context", session.model.context, 1, kContextMax,
               "positions; default the plan's, or the model's, at most 4096");
  add_sampling(options, request);
  options.group("Machine")
      .text("--device", session.model.device, "NAME", "auto, cpu, hip:N, cuda:N; default auto")
      .integer("-t,--threads", session.threads, 1, 1024, "default: what this process may use")
      .text("--model", session.model.model, "FILE", "where the plan's model is, if not where it was")
      .texts("--skip-pass", session.model.skip, "NAME", "leave an optional pass out; may be repeated")
      .group("Output")
      .flag("--json", request.json, "one JSON object with text, tokens, timings and memory")
      .flag("--profile", session.profile, "time each kind of step; a table on stderr")
      .flag("-v,--verbose", request.verbose, "say on stderr when each stage was done")
      .group("Tokens and logits")
      .text("--tokens", request.tokens, "IDS", "token ids as the prompt: 1,2,3")
      .text("--dump-logits", request.dump, "FILE", "write float32 [tokens, vocabulary], a row a position")
      .integer("--logits-last", request.dump_options.last, 1, kTokensMax, "keep the last N rows")
      .flag("--decode", request.dump_options.decode, "feed one token a step");
  return options.parse(argc, argv);
}

void check(const Request& request) {
  const auto refuse = [](std::string what, std::string fix) {
    throw Error(ErrorCode::kUsage, std::move(what), {}, std::move(fix));
  };
  if (request.dump && !request.tokens) refuse("--dump-logits needs --tokens", "say which tokens");
  if (!request.dump && (request.dump_options.decode || request.dump_options.last > 0))
    refuse("--decode and --logits-last go with --dump-logits", "name a file for the logits");
  if (request.dump && request.predict) refuse("-n and --dump-logits exclude each other", "give one of them");
  if (request.tokens && (request.prompt.text || request.prompt.file || request.prompt.system))
    refuse("--tokens and a prompt exclude each other", "give one of them");
  if (request.dump) check_output_path(*request.dump);
}

std::uint64_t choose_seed(const Request& request) {
  if (request.seed) return static_cast<std::uint64_t>(*request.seed);
  std::random_device device;
  return (std::uint64_t{device()} << 32 | device()) >> 1;
}

void note_stages(const Stages& stages) {
  note(fmt::format("plan open after {:.1f} ms, weights {:.1f} ms, tokenizer {:.1f} ms, first token {:.1f} ms",
                   stages.plan_ms, stages.weights_ms, stages.tokenizer_ms, stages.first_token_ms));
}

void finish(const Request& request, Session& session, const Stages& stages) {
  if (request.session.profile) fmt::print(stderr, "{}", profile_text(session.executor()));
  if (request.verbose) note_stages(stages);
}

/// Text of generated tokens as it becomes certain, into `text` and, unless JSON is wanted, to stdout.
class TextStream {
 public:
  TextStream(const loader::Tokenizer* tokenizer, const Request& request)
      : stops_(request.stops), print_(!request.json) {
    if (tokenizer != nullptr) detokenizer_.emplace(*tokenizer);
  }

  std::optional<Finish> push(std::int32_t id) {
    if (detokenizer_) emit(stops_.push(detokenizer_->push(id)));
    if (stops_.matched()) return Finish::kStop;
    if (output_.closed()) return Finish::kReaderGone;
    return std::nullopt;
  }
  void flush() {
    if (detokenizer_) emit(stops_.push(detokenizer_->flush()));
    emit(stops_.flush());
    const bool open_line = !text_.empty() && !text_.ends_with('\n');
    if (print_ && open_line && ::isatty(STDOUT_FILENO) == 1) output_.write("\n");  // for the shell's prompt
  }
  [[nodiscard]] const std::string& text() const { return text_; }
  Output& output() { return output_; }

 private:
  void emit(const std::string& text) {
    text_ += text;
    if (print_ && !text.empty()) output_.write(text);
  }

  std::optional<loader::Detokenizer> detokenizer_;
  loader::StopMatcher stops_;
  Output output_;
  std::string text_;
  bool print_;
};

int run_text(Request& request, Stages& stages) {
  std::string prompt_text;
  if (!request.tokens) prompt_text = read_prompt(request.prompt);
  request.session.tokenizer = !request.tokens;
  Session session(request.session, stages);
  const bool text = !request.tokens || has_tokenizer(session.file());
  if (!text && !request.json)
    throw Error(ErrorCode::kTokenizer, "the model has no vocabulary to write text with", {},
                "give --json for the token ids");
  const auto* tokenizer = text ? &session.tokenizer() : nullptr;
  const auto vocab = session.executor().vocab();
  const auto prompt = request.tokens ? parse_tokens(*request.tokens, vocab)
                                     : encode_prompt(session.file(), *tokenizer, prompt_text, request.prompt);
  check_prompt(prompt, session.context());

  GenerateOptions options{.tokens_max = request.predict.value_or(-1), .sampler = request.sampler};
  options.sampler.top_k = static_cast<std::int32_t>(request.top_k);
  options.sampler.penalty_window = static_cast<std::size_t>(request.repeat_window);
  options.sampler.seed = choose_seed(request);
  if (tokenizer != nullptr && !request.ignore_eos) options.ends = tokenizer->end_of_generation();
  Sequences sequences(session.executor(), session.context(), 1);
  TextStream stream(tokenizer, request);
  progress("reading the prompt");
  const auto generated = generate(sequences, vocab, prompt, options, [&](std::int32_t id) {
    if (stages.first_token_ms == 0) {
      end_progress();
      stages.first_token_ms = stages.now();
    }
    return stream.push(id);
  });
  stream.flush();
  if (request.json) {
    stream.output().write(run_json(generated, stream.text(), session, stages));
  } else {
    note(closing_line(generated, session));
    if (request.sampler.temperature > 0 && !request.seed) note(fmt::format("seed {}", options.sampler.seed));
  }
  finish(request, session, stages);
  return 0;
}

int run_dump(Request& request, Stages& stages) {
  Session session(request.session, stages);
  const auto ids = parse_tokens(*request.tokens, session.executor().vocab());
  check_prompt(ids, session.context());
  Sequences sequences(session.executor(), session.context(), 1);
  request.dump_options.file = *request.dump;
  dump_logits(sequences, ids, request.dump_options);
  finish(request, session, stages);
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  Stages stages;
  return run_tool([&] {
    Request request;
    if (!parse(argc, argv, request)) return 0;
    check(request);
    return request.dump ? run_dump(request, stages) : run_text(request, stages);
  });
}

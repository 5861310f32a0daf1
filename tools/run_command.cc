#include "tools/run_command.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <optional>
#include <random>

#include "loader/tok/detokenizer.h"
#include "support/error.h"
#include "tools/console.h"
#include "tools/generate.h"
#include "tools/run_report.h"

namespace forge::tools {
namespace {

std::uint64_t choose_seed(const RunRequest& request) {
  if (request.seed) return static_cast<std::uint64_t>(*request.seed);
  std::random_device device;
  return (std::uint64_t{device()} << 32 | device()) >> 1;
}

void note_stages(const Stages& stages, const runtime::LoadReport& load) {
  auto weights = fmt::format("{} at {:.1f} GB/s", human_bytes(load.bytes),
                             load.seconds > 0 ? static_cast<double>(load.bytes) / load.seconds * 1e-9 : 0);
  if (load.kernels_seconds > 0)
    weights +=
        fmt::format(", kernels {:.1f} ms, graphs {:.1f} ms", load.kernels_seconds * 1e3, load.graphs_seconds * 1e3);
  note(fmt::format("plan open after {:.1f} ms, weights {:.1f} ms ({}), tokenizer {:.1f} ms, first token {:.1f} ms",
                   stages.plan_ms, stages.weights_ms, weights, stages.tokenizer_ms, stages.first_token_ms));
}

void finish(const RunRequest& request, Session& session, const Stages& stages) {
  if (request.session.profile) fmt::print(stderr, "{}", profile_text(session.executor()));
  if (request.verbose) note_stages(stages, session.executor().load_report());
}

/// Text of generated tokens as it becomes certain, into `text` and, unless JSON is wanted, to stdout.
class TextStream {
 public:
  TextStream(const loader::Tokenizer* tokenizer, const RunRequest& request)
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

int write_text(RunRequest& request, Stages& stages) {
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
  if (std::ranges::any_of(prompt, [&](std::int32_t id) { return static_cast<std::size_t>(id) >= vocab; }))
    throw Error(ErrorCode::kTokenizer, "the prompt has tokens that the model does not know",
                fmt::format("its vocabulary has more than the {} rows of its embedding", vocab),
                "the model file is broken: fetch it again");

  GenerateOptions options{.tokens_max = request.predict.value_or(-1), .sampler = request.sampler};
  options.sampler.top_k = static_cast<std::int32_t>(request.top_k);
  options.sampler.penalty_window = static_cast<std::size_t>(request.repeat_window);
  options.sampler.seed = choose_seed(request);
  if (tokenizer != nullptr && !request.ignore_eos) options.ends = tokenizer->end_of_generation();
  Sequences sequences(session.executor(), session.context(), 1);
  TextStream stream(tokenizer, request);
  note_device(session);
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

int write_logits(RunRequest& request, Stages& stages) {
  Session session(request.session, stages);
  const auto ids = parse_tokens(*request.tokens, session.executor().vocab());
  check_prompt(ids, session.context());
  Sequences sequences(session.executor(), session.context(), 1);
  request.dump_options.file = *request.dump;
  note_device(session);
  dump_logits(sequences, ids, request.dump_options);
  finish(request, session, stages);
  return 0;
}

}  // namespace

int run_command(RunRequest& request, Stages& stages) {
  return request.dump ? write_logits(request, stages) : write_text(request, stages);
}

}  // namespace forge::tools

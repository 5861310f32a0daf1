#include "tools/run/run_command.h"

#include <fmt/format.h>
#include <unistd.h>

#include "session/model_file.h"
#include "support/error.h"
#include "support/os/console.h"
#include "support/os/interrupt.h"
#include "tools/run/chat_command.h"
#include "tools/run/embed_command.h"
#include "tools/run/run_constraint.h"
#include "tools/run/run_report.h"
#include "tools/run/text_stream.h"

namespace forge::tools {
namespace {

int write_text(RunRequest& request, session::Stages& stages) {
  std::string prompt_text;
  if (!request.tokens) prompt_text = read_prompt(request.prompt);
  request.session.tokenizer = !request.tokens;
  session::Session session(request.session, stages);
  if (request.dump) session::check_output_path(*request.dump, session.file());
  const bool text = !request.tokens || session::has_tokenizer(session.file());
  if (!text && !request.json)
    throw Error(ErrorCode::kTokenizer, "the model has no vocabulary, so its tokens have no text", {},
                "give --json for the token ids");
  const auto* tokenizer = text ? &session.tokenizer() : nullptr;
  const auto vocab = session.executor().vocab();
  const auto prompt = request.tokens ? parse_tokens(*request.tokens, vocab)
                                     : encode_prompt(session.file(), *tokenizer, prompt_text, request.prompt);
  if (request.show_prompt) show_prompt(tokenizer, prompt);
  session::check_prompt(prompt, session.context());
  session::check_known(prompt, vocab);
  settle_sampling(request, session.file());

  auto options = generate_options(
      request, choose_seed(request),
      tokenizer != nullptr ? std::span(tokenizer->end_of_generation()) : std::span<const std::int32_t>());
  options.constraint = constraint_of(request, session);
  session::Sequences sequences(session.executor(), session.context(), 1);
  Output output;
  TextStream stream(tokenizer, request.stops, request.json ? nullptr : &output);
  note_device(session);
  progress("reading the prompt");
  const auto generated = generate(sequences, vocab, prompt, options, [&](std::int32_t id) {
    if (stages.first_token_ms == 0) {
      end_progress();
      stages.first_token_ms = stages.now();
    }
    return stream.push(id);
  });
  if (generated.finish == session::Finish::kInterrupted) check_interrupt();
  stream.flush();
  if (request.json) {
    output.write(run_json(generated, stream.text(), session, stages));
  } else {
    if (::isatty(STDOUT_FILENO) == 1) stream.end_line();  // the shell's prompt starts on a new line
    note_end(request, generated, session);
    const bool drawn = options.sampler.temperature > 0 && !request.seed;
    note(closing_line(generated, session) + (drawn ? fmt::format("; seed {}", options.sampler.seed) : ""));
  }
  report_run(request, session, stages);
  return 0;
}

int write_logits(RunRequest& request, session::Stages& stages) {
  session::Session session(request.session, stages);
  if (request.dump) session::check_output_path(*request.dump, session.file());
  const auto ids = parse_tokens(*request.tokens, session.executor().vocab());
  session::check_prompt(ids, session.context());
  session::Sequences sequences(session.executor(), session.context(), 1);
  request.dump_options.file = *request.dump;
  note_device(session);
  dump_logits(sequences, ids, request.dump_options);
  report_run(request, session, stages);
  return 0;
}

}  // namespace

int run_command(RunRequest& request, session::Stages& stages) {
  std::optional<session::TraceFile> trace;  // opened before any work
  if (request.trace) request.session.trace = &trace.emplace(*request.trace);
  const bool embeds = request.embed || request.dump_embedding;
  const int status = embeds                ? embed_command(request, stages)
                     : request.dump        ? write_logits(request, stages)
                     : wants_chat(request) ? chat_command(request, stages)
                                           : write_text(request, stages);
  if (trace) trace->finish();
  return status;
}

}  // namespace forge::tools

#include "tools/run/chat_command.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <array>

#include "session/constraint/reasoning_gate.h"
#include "session/conversation.h"
#include "support/error.h"
#include "support/os/console.h"
#include "support/os/interrupt.h"
#include "tools/cli/line_reader.h"
#include "tools/cli/options.h"
#include "tools/run/answer_view.h"
#include "tools/run/chat_history.h"
#include "tools/run/run_constraint.h"
#include "tools/run/run_report.h"
#include "tools/run/text_stream.h"

namespace forge::tools {
namespace {

constexpr std::string_view kSpaces = " \t";

std::string_view strip(std::string_view text) {
  const auto begin = text.find_first_not_of(kSpaces);
  return begin == std::string_view::npos ? std::string_view()
                                         : text.substr(begin, text.find_last_not_of(kSpaces) + 1 - begin);
}

class Chat {
 public:
  Chat(RunRequest& request, session::Session& session, session::Stages& stages)
      : request_(request),
        session_(session),
        stages_(stages),
        seed_(choose_seed(request)),
        sequences_(session.executor(), session.context(), 1),
        conversation_(
            sequences_, session.executor().vocab(),
            [this](std::span<const session::Message> messages) { return encode(messages); }, request.prompt.system),
        settings_("/set", "") {
    add_sampling(settings_, request);
    add_limit(settings_, request);
    const auto chat_template = session.file().find<std::string_view>("tokenizer.chat_template");
    if (!chat_template || chat_template->empty() || request.prompt.raw) return;
    format_ = session::answer_format_of(session.tokenizer(), *chat_template);
    shown_ = session::answer_tokens(session.tokenizer(), *format_);
  }

  int run() {
    ChatHistory history(ChatHistory::default_path());
    LineReader reader(attempt([&] { return history.load(); }).value_or(std::vector<std::string>{}));
    bool keeps_history = true;
    note("/help lists the commands, Ctrl-C stops an answer, Ctrl-D exits");
    std::string line;
    while (!output_.closed()) {
      const auto event = read_message(reader, line);
      if (event == LineReader::Event::kEnd) break;
      if (event == LineReader::Event::kCancelled || strip(line).empty()) continue;
      reader.remember(line);
      keeps_history = keeps_history && attempt([&] { return history.append(line), true; }).has_value();
      attempt([&] { return take(line), true; });
    }
    if (::isatty(STDERR_FILENO) == 1) say("\n");
    return 0;
  }

 private:
  struct Command {
    std::string_view name, arguments, help;
    void (Chat::*run)(const ChatLine& line);
  };
  static constexpr std::size_t kCommands = 4;
  static const std::array<Command, kCommands> kTable;

  /// The result of `body`; nullopt after an error that does not end the chat, which is printed.
  template <class Body>
  static auto attempt(Body&& body) -> std::optional<decltype(body())> {
    try {
      return body();
    } catch (const Error& error) {
      const auto code = error.code();
      if (code != ErrorCode::kUsage && code != ErrorCode::kPrompt && code != ErrorCode::kTemplate &&
          code != ErrorCode::kIo)
        throw;
      note(error.line());
      return std::nullopt;
    }
  }

  /// Reads a message: one line, or several if all but the last end in a backslash.
  static LineReader::Event read_message(LineReader& reader, std::string& message) {
    message.clear();
    std::string line;
    while (true) {
      const auto event = reader.read(message.empty() ? "> " : "... ", line);
      if (event == LineReader::Event::kCancelled && ::isatty(STDERR_FILENO) == 1) say("\n");
      if (event != LineReader::Event::kLine) return event;
      message += line;
      if (!message.ends_with('\\')) return event;
      message.back() = '\n';
    }
  }

  void take(std::string_view line) {
    const auto parsed = parse_chat_line(line);
    if (parsed.command.empty()) return answer(std::string(line));
    const auto* const command = std::ranges::find(kTable, parsed.command, &Command::name);
    if (command == kTable.end())
      throw Error(ErrorCode::kUsage, fmt::format("there is no command /{}", printable(parsed.command)), {},
                  "/help lists the commands; begin the line with a space to send it as a message");
    (this->*command->run)(parsed);
  }

  std::vector<std::int32_t> encode(std::span<const session::Message> messages) {
    auto ids = encode_messages(session_.file(), session_.tokenizer(), messages, request_.prompt.raw);
    if (request_.show_prompt) show_prompt(&session_.tokenizer(), ids);
    session::check_known(ids, session_.executor().vocab());
    if (format_) prompt_ = session_.tokenizer().decode(ids, true);
    return ids;
  }

  void answer(std::string question) {
    TextStream stream(&session_.tokenizer(), request_.stops, &output_);
    auto options = generate_options(request_, seed_ + turns_, std::span(session_.tokenizer().end_of_generation()));
    options.constraint = constraint_;
    std::optional<AnswerView> view;
    progress("reading the prompt");
    const auto begun = conversation_.ask(std::move(question), options,
                                         {.take =
                                              [&](std::int32_t id) {
                                                end_progress();
                                                if (stages_.first_token_ms == 0) stages_.first_token_ms = stages_.now();
                                                if (format_ && !view) {
                                                  view.emplace(*format_, prompt_, &output_, styled());
                                                  stream.show_by(*view, shown_);
                                                }
                                                return stream.push(id);
                                              },
                                          .finish =
                                              [&] {
                                                end_progress();
                                                stream.flush();
                                                if (!view) {
                                                  stream.end_line();
                                                  return stream.text();
                                                }
                                                view->finish();
                                                // Calls stay in the conversation as the model wrote them.
                                                const auto& message = view->message();
                                                return message.calls.empty() ? message.content : stream.text();
                                              }});
    last_ = begun.generated;
    ++turns_;
    if (last_->finish == session::Finish::kInterrupted) (void)consume_interrupt();
    if (last_->finish == session::Finish::kContext)
      note(fmt::format(
          "the context of {} tokens is full: start a new conversation with /reset, or restart with a larger "
          "context (-c)",
          session_.context()));
    if (last_->finish == session::Finish::kLength && !request_.predict)
      note(fmt::format("stopped at the limit of {} tokens; /set predict N raises it, /set predict -1 removes it",
                       last_->tokens.size()));
    if (request_.verbose) note(closing_line(*last_, session_));
  }

  static bool styled() { return ::isatty(STDOUT_FILENO) == 1 && !terminal_is_dumb(); }

  void help(const ChatLine&) {
    for (const auto& command : kTable)
      say(fmt::format("  {:18} {}\n", fmt::format("/{} {}", command.name, command.arguments), command.help));
    say(fmt::format("  {:18} {}\n  {:18} {}\n  {:18} {}\n", "Ctrl-C",
                    "stop the answer; its text so far stays in the conversation", "Ctrl-D", "exit",
                    "\\ at the line's end", "continue the message on the next line"));
  }

  void reset(const ChatLine&) { conversation_.reset(); }

  void stats(const ChatLine&) {
    const auto row = [](std::string_view name, std::string_view text) {
      say(fmt::format("  {:10} {}\n", name, printable(text, 300)));
    };
    row("model", session_.model().path.filename().native());
    row("device", session_.executor().device_name());
    row("context", fmt::format("{} of {} tokens, {} messages", conversation_.held(), session_.context(),
                               conversation_.messages().size()));
    if (!last_) return;
    row("prompt", fmt::format("{} tokens, {} of them held in the KV cache", last_->prompt_tokens, last_->held_tokens));
    row("last", closing_line(*last_, session_));
    row("ended by", finish_name(last_->finish));
  }

  void set(const ChatLine& line) {
    if (line.key.empty()) {
      for (const auto& row : settings_.rows())
        say(fmt::format("  {:18} {:8} {}\n", row.name(), printable(row.show(), 40), row.help));
      return;
    }
    settings_.set(line.key, line.argument);
    if (line.key != "seed") return;
    seed_ = choose_seed(request_);
    turns_ = 0;
  }

  RunRequest& request_;
  session::Session& session_;
  session::Stages& stages_;
  std::uint64_t seed_, turns_ = 0;  ///< a turn samples with the seed plus the number of turns before it
  session::Sequences sequences_;
  session::Conversation conversation_;
  Options settings_;
  decltype(session::GenerateOptions::constraint) constraint_ = constraint_of(request_, session_);
  Output output_;
  std::optional<text::AnswerFormat> format_;  ///< of the model's answers; none with --raw or without a template
  std::vector<std::int32_t> shown_;           ///< control tokens in their text
  std::string prompt_;
  std::optional<session::Generated> last_;
};

constexpr std::array<Chat::Command, Chat::kCommands> Chat::kTable{
    {{"help", "", "print this list", &Chat::help},
     {"reset", "", "start a new conversation; the system message stays", &Chat::reset},
     {"set", "[KEY [VALUE]]", "list the sampling options, set one to VALUE, or restore its default", &Chat::set},
     {"stats", "", "print token counts, speed and memory", &Chat::stats}}};

}  // namespace

ChatLine parse_chat_line(std::string_view line) {
  if (!line.starts_with('/')) return {};
  ChatLine parsed;
  const auto word = [&line] {
    const auto begin = line.substr(0, line.find_first_of(kSpaces));
    line = strip(line.substr(begin.size()));
    return begin;
  };
  line.remove_prefix(1);
  line = line.substr(0, line.find_last_not_of(kSpaces) + 1);
  parsed.command = word();
  if (parsed.command.empty()) parsed.command = "/";
  parsed.key = word();
  if (!line.empty()) parsed.argument = std::string(line);
  return parsed;
}

/// Recurrent states of a chat: the end and the turns of the last few prompts and answers.
constexpr std::int64_t kChatSnapshots = 8;

bool wants_chat(const RunRequest& request) {
  return !request.tokens && !request.json && !request.prompt.text && !request.prompt.file &&
         ::isatty(STDIN_FILENO) == 1;
}

int chat_command(RunRequest& request, session::Stages& stages) {
  request.session.tokenizer = true;
  request.session.state_slots = std::nullopt;
  request.session.snapshots_max = kChatSnapshots;
  session::Session session(request.session, stages);
  if (!session::has_tokenizer(session.file()))
    throw Error(ErrorCode::kTokenizer, "the model has no vocabulary, so it cannot chat", {},
                "give token ids with --tokens");
  (void)session.tokenizer();
  (void)uses_template(session.file(), request.prompt);
  settle_sampling(request, session.file());
  note_device(session);
  const int status = Chat(request, session, stages).run();
  report_run(request, session, stages);
  return status;
}

}  // namespace forge::tools

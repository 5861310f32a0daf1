#include "session/conversation.h"

#include <fmt/format.h>

#include <algorithm>
#include <csignal>

#include "support/error.h"
#include "support/os/interrupt.h"

namespace forge::session {

Conversation::Conversation(Sequences& sequences, std::size_t vocab, Encode encode,
                           const std::optional<std::string>& system)
    : sequences_(sequences), vocab_(vocab), encode_(std::move(encode)) {
  if (system) messages_.push_back({"system", *system});
  system_messages_ = messages_.size();
  sequences_.trim(0, 0);
}

void Conversation::reset() {
  messages_.resize(system_messages_);
}

Answer Conversation::ask(std::string question, GenerateOptions options, const AnswerSink& sink) {
  messages_.push_back({"user", std::move(question)});
  try {
    const auto ids = encode_(messages_);
    if (static_cast<std::int64_t>(ids.size()) > sequences_.context())
      throw Error(ErrorCode::kPrompt, "the conversation is longer than the context",
                  fmt::format("it has {} tokens with this message, and the context is {} tokens", ids.size(),
                              sequences_.context()),
                  "start a new one with /reset, or restart with a larger context (-c)");
    auto answer = run(ids, std::move(options), sink);
    if (answer.generated.finish == Finish::kInterrupted && answer.text.empty())
      messages_.pop_back();
    else
      messages_.push_back({"assistant", answer.text});
    return answer;
  } catch (...) {
    messages_.pop_back();
    throw;
  }
}

Answer Conversation::run(const std::vector<std::int32_t>& ids, GenerateOptions options, const AnswerSink& sink) {
  Answer answer;
  options.held = keep_prefix(ids);
  held_ = ids;
  try {
    answer.generated = generate(sequences_, vocab_, ids, options, sink.take);
    held_.insert(held_.end(), answer.generated.tokens.begin(), answer.generated.tokens.end());
  } catch (const Interrupted& interrupt) {  // during prefill: no token yet
    if (interrupt.signal != SIGINT) throw;
    answer.generated.finish = Finish::kInterrupted;
  } catch (...) {
    held_.clear();  // a failed step may have written any part of the KV cache
    sequences_.forget(0);
    throw;
  }
  held_.resize(static_cast<std::size_t>(sequences_.length(0)));
  sequences_.keep_state(0);
  answer.text = sink.finish();
  return answer;
}

/// Trims the sequence to its common prefix with `ids` and returns the prefix's length. It is at most ids.size() - 1,
/// because the last token has to be fed for its logits, and 0 if layers with a sliding window have already released
/// positions that the next token would see. With recurrent state it is the length at the deepest snapshot.
std::size_t Conversation::keep_prefix(std::span<const std::int32_t> ids) {
  if (sequences_.keeps_states() && !ids.empty())
    return static_cast<std::size_t>(sequences_.resume(0, ids.first(ids.size() - 1)));
  const auto same = static_cast<std::size_t>(std::ranges::mismatch(held_, ids).in1 - held_.begin());
  const std::size_t kept = std::min(same, ids.empty() ? 0 : ids.size() - 1);
  return static_cast<std::size_t>(sequences_.trim(0, static_cast<std::int64_t>(kept)));
}

}  // namespace forge::session

#pragma once
// A multi-turn chat with one model, for forge-run's chat. Every turn renders the whole conversation with the chat
// template and tokenises it, but only the tokens after the longest common prefix with the previous turn are prefilled:
// the KV cache of that prefix is kept.

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "session/generate.h"
#include "session/prompt.h"

namespace forge::session {

/// Receives an answer token by token.
struct AnswerSink {
  TakeToken take;                       ///< called with each token; may end the answer
  std::function<std::string()> finish;  ///< called once after the last token; returns the answer's whole text
};

struct Answer {
  Generated generated;
  std::string text;
};

/// Uses sequence 0 of `sequences`, which must outlive it.
class Conversation {
 public:
  /// Converts the messages to the token ids of the model's prompt (chat template and tokenizer).
  using Encode = std::function<std::vector<std::int32_t>(std::span<const Message>)>;

  Conversation(Sequences& sequences, std::size_t vocab, Encode encode, const std::optional<std::string>& system);

  /// One turn: appends `question`, generates the answer and appends it. Ctrl-C ends the answer
  /// (Finish::kInterrupted); the partial answer stays in the conversation. If there was no text yet, or on any error,
  /// the question is removed again. Other signals throw Interrupted.
  /// Errors: kPrompt when the conversation does not fit into the context; those of `encode` and generate.
  [[nodiscard]] Answer ask(std::string question, GenerateOptions options, const AnswerSink& sink);

  /// Removes all turns. The system message stays, and its KV cache is reused by the next turn.
  void reset();

  [[nodiscard]] std::span<const Message> messages() const { return messages_; }
  /// Number of tokens in the KV cache of the sequence.
  [[nodiscard]] std::int64_t held() const { return static_cast<std::int64_t>(held_.size()); }

 private:
  [[nodiscard]] Answer run(const std::vector<std::int32_t>& ids, GenerateOptions options, const AnswerSink& sink);
  [[nodiscard]] std::size_t keep_prefix(std::span<const std::int32_t> ids);

  Sequences& sequences_;
  std::size_t vocab_;
  Encode encode_;
  std::vector<Message> messages_;
  std::size_t system_messages_;
  std::vector<std::int32_t> held_;  ///< token ids whose keys and values are in the KV cache of sequence 0
};

}  // namespace forge::session

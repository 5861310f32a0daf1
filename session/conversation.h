#pragma once
// Several turns with one model. Every turn gives the model the whole conversation, but feeds only what it does not hold
// yet: keys and values of the longest common prefix of token ids stay where they are.

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "session/generate.h"
#include "session/prompt.h"

namespace forge::session {

/// Where an answer goes while it comes.
struct AnswerSink {
  TakeToken take;
  std::function<std::string()> finish;  ///< called once at the end; the whole text
};

struct Answer {
  Generated generated;
  std::string text;
};

/// In sequence 0 of `sequences`, which outlive it.
class Conversation {
 public:
  /// The messages as the ids that the model is given.
  using Encode = std::function<std::vector<std::int32_t>(std::span<const Message>)>;

  Conversation(Sequences& sequences, std::size_t vocab, Encode encode, const std::optional<std::string>& system);

  /// One turn. Ctrl-C ends the answer (Finish::kInterrupted), which stays in the conversation as far as it came; with
  /// no text yet the question goes too, as it does with every error. Other signals: Interrupted.
  /// Errors: kPrompt when the conversation does not fit into the context; those of `encode` and generate.
  [[nodiscard]] Answer ask(std::string question, GenerateOptions options, const AnswerSink& sink);

  /// Forgets all turns; the system message stays, and so do its keys and values.
  void reset();

  [[nodiscard]] std::span<const Message> messages() const { return messages_; }
  /// Positions that the sequence holds now.
  [[nodiscard]] std::int64_t held() const { return static_cast<std::int64_t>(held_.size()); }

 private:
  [[nodiscard]] Answer run(const std::vector<std::int32_t>& ids, GenerateOptions options, const AnswerSink& sink);
  [[nodiscard]] std::size_t keep_prefix(std::span<const std::int32_t> ids);

  Sequences& sequences_;
  std::size_t vocab_;
  Encode encode_;
  std::vector<Message> messages_;
  std::size_t system_messages_;
  std::vector<std::int32_t> held_;  ///< ids whose keys and values are in sequence 0
};

}  // namespace forge::session

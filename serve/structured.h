#pragma once
// Structured output of one model: from a request's members to what the engine takes.

#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>

#include "serve/protocol/request_json.h"
#include "session/constraint/constraints.h"
#include "session/constraint/reasoning_gate.h"

namespace forge::serve {

/// Makes the constraint of a sample (engine::Request::constraint).
using MakeConstraint = std::function<std::unique_ptr<runtime::TokenConstraint>()>;

/// Thread-safe: requests compile their constraints on their own workers.
class StructuredAnswers {
 public:
  /// `tokenizer` must outlive this and what it makes. `vocab`: columns of the model's logits.
  StructuredAnswers(const text::Tokenizer& tokenizer, std::size_t vocab, std::string_view chat_template)
      : tokenizer_(tokenizer), chat_template_(chat_template), constraints_(tokenizer, vocab) {}

  /// What makes the constraints of a request's samples. `prompt`: the text of a chat's prompt, whose answer may begin
  /// with reasoning that is not constrained; nullopt where all text is. Errors: 400 that names the member for a
  /// constraint that is refused.
  [[nodiscard]] Read<MakeConstraint> start(const StructuredOutput& output, std::optional<std::string_view> prompt);

 private:
  const text::Tokenizer& tokenizer_;
  std::string chat_template_;
  session::Constraints constraints_;
  std::once_flag once_;
  text::AnswerFormat format_;  ///< of the chat's answers, found when it is first needed
};

}  // namespace forge::serve

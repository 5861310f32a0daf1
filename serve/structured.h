#pragma once
// Structured output of one model: from a request's members to what the engine takes.

#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
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
      : tokenizer_(tokenizer), vocab_(vocab), chat_template_(chat_template), constraints_(tokenizer, vocab) {}

  /// What makes the constraints of a request's samples. `prompt`: the text of a chat's prompt, whose answer may begin
  /// with reasoning that is not constrained; nullopt where all text is. Errors: 400 that names the member for a
  /// constraint that is refused.
  [[nodiscard]] Read<MakeConstraint> start(const StructuredOutput& output, std::optional<std::string_view> prompt);
  /// The same for the calls of an answer: those that tool_choice requires, or those of strict tools once the model
  /// begins one. Empty if nothing constrains them. `format`: of the answers; `shown`: the control tokens in them.
  /// Errors: 400 for a schema that is refused, and for calls of a form that is not known.
  [[nodiscard]] Read<MakeConstraint> start_calls(const ChatBody& body, const text::AnswerFormat& format,
                                                 std::span<const std::int32_t> shown, std::string_view prompt);

 private:
  const text::Tokenizer& tokenizer_;
  std::size_t vocab_;
  std::string chat_template_;
  session::Constraints constraints_;
  std::unique_ptr<session::Constraints> calls_;  ///< their vocabulary has the markers of calls; made when first needed
  std::once_flag once_, calls_once_;
  text::AnswerFormat format_;  ///< of the chat's answers, found when it is first needed
};

}  // namespace forge::serve

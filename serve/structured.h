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
  StructuredAnswers(const text::Tokenizer& tokenizer, std::size_t vocab)
      : tokenizer_(tokenizer), vocab_(vocab), constraints_(tokenizer, vocab) {}

  /// What makes the constraints of a request's samples. `prompt`: the text of a chat's prompt, whose answer, of this
  /// format, may begin with reasoning that is not constrained; nullopt where all text is. Errors: 400 that names the
  /// member for a constraint that is refused.
  [[nodiscard]] Read<MakeConstraint> start(const StructuredOutput& output, const text::AnswerFormat& format,
                                           std::optional<std::string_view> prompt);
  /// The same for the calls of an answer (session/constraint/call_rules.h): those that tool_choice requires, or, with a
  /// strict tool, those that the model begins. Where tools may be called and the answer must be JSON by a schema, it is
  /// either. Empty if nothing constrains them. `shown`: the control tokens in the
  /// answers. Errors: 400 for a schema that is refused, and for calls of a form that is not known.
  [[nodiscard]] Read<MakeConstraint> start_calls(const ChatBody& body, const text::AnswerFormat& format,
                                                 std::span<const std::int32_t> shown, std::string_view prompt);

 private:
  const text::Tokenizer& tokenizer_;
  std::size_t vocab_;
  session::Constraints constraints_;
  std::unique_ptr<session::Constraints> calls_;  ///< their vocabulary has the markers of calls; made when first needed
  std::once_flag calls_once_;
};

}  // namespace forge::serve

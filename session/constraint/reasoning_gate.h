#pragma once
// Where the constraint of an answer begins in models that reason before they answer.

#include <optional>
#include <string_view>

#include "session/constraint/constraints.h"
#include "text/answer/answer_format.h"

namespace forge::session {

/// The gate of an answer whose constraint is for its content, not for the reasoning before it. `prompt`: the prompt's
/// text with its control tokens. None if no reasoning can come: the model has none, or the prompt has closed it.
[[nodiscard]] std::optional<ConstraintGate> reasoning_gate(const text::AnswerFormat& format, std::string_view prompt);

/// The format of a model's answers, from its chat template and vocabulary. Takes milliseconds.
[[nodiscard]] text::AnswerFormat answer_format_of(const text::Tokenizer& tokenizer, std::string_view chat_template);

}  // namespace forge::session

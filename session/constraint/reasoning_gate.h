#pragma once
// Where the constraint of an answer begins in models that reason before they answer.

#include <array>
#include <optional>
#include <string_view>
#include <vector>

#include "session/constraint/constraints.h"
#include "text/answer/answer_format.h"

namespace forge::session {

/// What stands before Harmony's content.
inline constexpr std::array<std::string_view, 2> kFinalHeaders{"<|channel|>final<|message|>",
                                                               "<|channel|>final <|constrain|>json<|message|>"};

/// The gate of an answer whose constraint is for its content, not for the reasoning before it. `prompt`: the prompt's
/// text with its control tokens. None if no reasoning can come: the model has none, or the prompt has closed it.
[[nodiscard]] std::optional<ConstraintGate> reasoning_gate(const text::AnswerFormat& format, std::string_view prompt);

/// The format of a model's answers, from its chat template and vocabulary. Takes milliseconds.
[[nodiscard]] text::AnswerFormat answer_format_of(const text::Tokenizer& tokenizer, std::string_view chat_template);

/// Sorted ids of the control tokens that answers of this format are written with, and that are part of their text. What
/// ends the generation is not.
[[nodiscard]] std::vector<std::int32_t> answer_tokens(const text::Tokenizer& tokenizer,
                                                      const text::AnswerFormat& format);

}  // namespace forge::session

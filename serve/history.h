#pragma once
// Fits a conversation to what the model's chat template prints, so that nothing of it gets lost.

#include <string>
#include <string_view>

#include "text/answer/answer_format.h"

namespace forge::serve {

/// True if every conversation of this form is right as it is.
[[nodiscard]] bool is_plain(const text::HistoryForm& form);

/// `conversation`: as read_chat made it. Arguments, ids, empty contents and reasoning get the form that the template
/// wants. Calls and results that it would not print become text of the assistant and of the user, and tools that it
/// would not print become a note in the system message.
[[nodiscard]] std::string fit_history(std::string_view conversation, const text::AnswerFormat& format);

}  // namespace forge::serve

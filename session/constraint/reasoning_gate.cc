#include "session/constraint/reasoning_gate.h"

#include <algorithm>

#include "text/answer/white_space.h"

namespace forge::session {

/// Harmony's content is the final channel's. Elsewhere reasoning is between two markers: the prompt may open it, or
/// the model may.
std::optional<ConstraintGate> reasoning_gate(const text::AnswerFormat& format, std::string_view prompt) {
  if (format.channels) return ConstraintGate{.markers = {kFinalHeaders.begin(), kFinalHeaders.end()}, .opener = {}};
  if (format.think_close.empty()) return std::nullopt;
  if (text::trimmed_end(prompt).ends_with(format.think_close)) return std::nullopt;
  ConstraintGate gate{.markers = {format.think_close}, .opener = format.think_open};
  if (text::prompt_opens_reasoning(format, prompt)) gate.opener.clear();
  return gate;
}

text::AnswerFormat answer_format_of(const text::Tokenizer& tokenizer, std::string_view chat_template) {
  std::vector<std::string> control;
  for (std::int32_t id = 0; id < tokenizer.vocab_size(); ++id)
    if (tokenizer.is_control(id)) control.emplace_back(tokenizer.token_text(id));
  return text::find_answer_format(chat_template, control, tokenizer.token_text(tokenizer.bos()),
                                  tokenizer.token_text(tokenizer.eos()));
}

std::vector<std::int32_t> answer_tokens(const text::Tokenizer& tokenizer, const text::AnswerFormat& format) {
  std::vector<std::int32_t> ids;
  const auto& ends = tokenizer.end_of_generation();
  for (std::int32_t id = 0; id < tokenizer.vocab_size() && !format.tokens.empty(); ++id)
    if (tokenizer.is_control(id) && std::ranges::find(ends, id) == ends.end() &&
        std::ranges::find(format.tokens, tokenizer.token_text(id)) != format.tokens.end())
      ids.push_back(id);
  return ids;
}

}  // namespace forge::session

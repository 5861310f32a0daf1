#include "serve/served_model.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <random>
#include <utility>

#include "serve/history.h"
#include "session/constraint/reasoning_gate.h"
#include "session/constraint/thinking_budget.h"

namespace forge::serve {
ServedModel::ServedModel(Parts parts)
    : name_(std::move(parts.name)),
      created_(std::chrono::duration_cast<std::chrono::seconds>(std::chrono::system_clock::now().time_since_epoch())
                   .count()),
      context_(parts.context),
      pooling_(parts.pooling),
      ranks_(parts.ranks),
      sampling_(std::move(parts.sampling)),
      tokenizer_(parts.tokenizer),
      engine_(std::move(parts.executor), parts.engine),
      structured_(*tokenizer_, engine_.executor().vocab()) {
  if (parts.chat_template.empty()) return;
  template_ = text::ChatTemplate::parse(parts.chat_template);
  answers_ = session::answer_format_of(*tokenizer_, parts.chat_template);
  plain_answers_ = answers_.without_calls();
  if (!answers_.has_calls()) answers_ = answers_.with_described_calls();
  shown_ = session::answer_tokens(*tokenizer_, answers_);
  plain_shown_ = session::answer_tokens(*tokenizer_, plain_answers_);
}

Read<std::vector<std::int32_t>> ServedModel::encode(const Prompt& prompt) const {
  const auto* given = std::get_if<std::vector<std::int32_t>>(&prompt);
  auto ids = given != nullptr ? *given : tokenizer_->encode(std::get<std::string>(prompt), {.parse_special = true});
  const auto bos = tokenizer_->bos();
  const bool wants_bos = given == nullptr && tokenizer_->add_bos() && bos >= 0;
  if (wants_bos && (ids.empty() || ids.front() != bos)) ids.insert(ids.begin(), bos);
  if (ids.empty()) return std::unexpected(bad_request("invalid_value", "the prompt is empty", "prompt"));
  return ids;
}

Read<std::vector<std::int32_t>> ServedModel::encode_input(const Prompt& input) const {
  const auto* given = std::get_if<std::vector<std::int32_t>>(&input);
  auto ids = given != nullptr ? *given : tokenizer_->encode(std::get<std::string>(input), {.add_special = true});
  if (ids.empty()) return std::unexpected(bad_request("invalid_value", "an input is empty", "input"));
  return ids;
}

std::optional<std::string> ServedModel::refuses_dimensions(std::size_t dimensions) const {
  const auto width = engine_.executor().hidden_width();
  if (dimensions > width) return fmt::format("dimensions is {}, and the model has {}", dimensions, width);
  return std::nullopt;
}

Read<std::vector<std::int32_t>> ServedModel::encode_pair(const std::string& query, const std::string& document) const {
  auto ids = tokenizer_->encode_pair(query, document);
  if (ids.empty()) return std::unexpected(bad_request("invalid_value", "a document is empty", "documents"));
  return ids;
}

Read<std::string> ServedModel::render(const ChatBody& body) const {
  if (!template_)
    return std::unexpected(bad_request("not_supported", "the model has no chat template: use /v1/completions"));
  try {
    const bool fits = is_plain(answers_.history) && !body.has_cut_calls;
    auto request = text::parse_chat_request(fits ? body.conversation : fit_history(body.conversation, answers_));
    request.bos_token = tokenizer_->token_text(tokenizer_->bos());
    request.eos_token = tokenizer_->token_text(tokenizer_->eos());
    return text::render_chat(*template_, request);
  } catch (const Error& error) {
    return std::unexpected(error_of(error));
  }
}

std::shared_ptr<const AnswerRules> ServedModel::answer_rules(const ChatBody& body, std::string prompt,
                                                             bool calls_bound) const {
  const bool calls = !body.tools.empty();
  AnswerRules rules{.format = calls ? answers_ : plain_answers_,
                    .tools = text::ToolTypes::parse(calls ? body.tools : "[]"),
                    .prompt = std::move(prompt),
                    .shown = calls ? &shown_ : &plain_shown_,
                    .one_call = calls && !body.parallel_tool_calls,
                    .calls_bound = calls_bound,
                    .calls_forced = calls_bound && body.tool_choice.kind != ToolChoice::Kind::kAuto};
  if (body.reasoning_in_content)
    for (auto* marker : {&rules.format.think_open, &rules.format.think_close, &rules.format.opened_by_prompt})
      marker->clear();
  return std::make_shared<const AnswerRules>(std::move(rules));
}

MakeConstraint ServedModel::with_thinking_budget(MakeConstraint inner, const AnswerRules& rules,
                                                 std::size_t tokens) const {
  auto marks = session::thinking_marks(answers_, rules.prompt, !rules.tools.empty());
  if (!marks) return inner;
  return [this, inner = std::move(inner), marks = *std::move(marks), tokens] {
    return std::make_unique<session::ThinkingBudget>(inner ? inner() : nullptr, *tokenizer_, engine_.executor().vocab(),
                                                     marks, tokens);
  };
}

std::uint64_t ServedModel::new_seed() {
  thread_local std::mt19937_64 seeds{std::random_device{}()};
  return seeds();
}

}  // namespace forge::serve

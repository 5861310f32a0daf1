#include "serve/served_model.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <random>
#include <utility>

#include "serve/history.h"

namespace forge::serve {
namespace {

/// Sorted ids of the control tokens that answers are written with. What ends the generation is no part of the text.
std::vector<std::int32_t> ids_of(const text::Tokenizer& tokenizer, const text::AnswerFormat& format) {
  std::vector<std::int32_t> ids;
  const auto& ends = tokenizer.end_of_generation();
  for (std::int32_t id = 0; id < tokenizer.vocab_size() && !format.tokens.empty(); ++id)
    if (tokenizer.is_control(id) && std::ranges::find(ends, id) == ends.end() &&
        std::ranges::find(format.tokens, tokenizer.token_text(id)) != format.tokens.end())
      ids.push_back(id);
  return ids;
}

}  // namespace

ServedModel::ServedModel(Parts parts)
    : name_(std::move(parts.name)),
      created_(std::chrono::duration_cast<std::chrono::seconds>(std::chrono::system_clock::now().time_since_epoch())
                   .count()),
      context_(parts.context),
      pooling_(parts.pooling),
      ranks_(parts.ranks),
      sampling_(std::move(parts.sampling)),
      tokenizer_(parts.tokenizer),
      engine_(std::move(parts.executor), parts.engine) {
  if (parts.chat_template.empty()) return;
  template_ = text::ChatTemplate::parse(parts.chat_template);
  std::vector<std::string> control;
  for (std::int32_t id = 0; id < tokenizer_->vocab_size(); ++id)
    if (tokenizer_->is_control(id)) control.emplace_back(tokenizer_->token_text(id));
  answers_ = text::find_answer_format(parts.chat_template, control, tokenizer_->token_text(tokenizer_->bos()),
                                      tokenizer_->token_text(tokenizer_->eos()));
  plain_answers_ = answers_.without_calls();
  if (!answers_.has_calls()) answers_ = answers_.with_described_calls();
  shown_ = ids_of(*tokenizer_, answers_);
  plain_shown_ = ids_of(*tokenizer_, plain_answers_);
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

Read<std::string> ServedModel::render(std::string_view conversation) const {
  if (!template_)
    return std::unexpected(bad_request("not_supported", "the model has no chat template: use /v1/completions"));
  try {
    auto request = is_plain(answers_.history) ? text::parse_chat_request(conversation)
                                              : text::parse_chat_request(fit_history(conversation, answers_));
    request.bos_token = tokenizer_->token_text(tokenizer_->bos());
    request.eos_token = tokenizer_->token_text(tokenizer_->eos());
    return text::render_chat(*template_, request);
  } catch (const Error& error) {
    return std::unexpected(error_of(error));
  }
}

std::shared_ptr<const AnswerRules> ServedModel::answer_rules(const ChatBody& body, std::string prompt) const {
  const bool calls = !body.tools.empty();
  return std::make_shared<const AnswerRules>(AnswerRules{.format = calls ? answers_ : plain_answers_,
                                                         .tools = text::ToolTypes::parse(calls ? body.tools : "[]"),
                                                         .prompt = std::move(prompt),
                                                         .shown = calls ? &shown_ : &plain_shown_,
                                                         .one_call = calls && !body.parallel_tool_calls});
}

std::uint64_t ServedModel::new_seed() {
  thread_local std::mt19937_64 seeds{std::random_device{}()};
  return seeds();
}

}  // namespace forge::serve

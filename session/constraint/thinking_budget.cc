#include "session/constraint/thinking_budget.h"

#include <algorithm>
#include <utility>

#include "session/constraint/reasoning_gate.h"
#include "support/error.h"
#include "text/answer/white_space.h"

namespace forge::session {

/// Harmony reasons in messages of the channel analysis; the next message is the answer, or a call.
std::optional<ThinkingMarks> thinking_marks(const text::AnswerFormat& format, std::string_view prompt, bool calls) {
  if (format.channels)
    return ThinkingMarks{
        .opener = "<|channel|>analysis<|message|>",
        .closer = "<|end|>",
        .closing = std::string("<|end|><|start|>assistant<|channel|>") + (calls ? "commentary" : "final<|message|>")};
  const auto gate = reasoning_gate(format, prompt);
  if (!gate) return std::nullopt;
  return ThinkingMarks{.opener = gate->opener, .closer = format.think_close, .closing = "\n" + format.think_close};
}

ThinkingBudget::ThinkingBudget(std::unique_ptr<runtime::TokenConstraint> inner, const text::Tokenizer& tokenizer,
                               std::size_t vocab, ThinkingMarks marks, std::size_t tokens_max)
    : inner_(std::move(inner)),
      tokenizer_(&tokenizer),
      marks_(std::move(marks)),
      tokens_max_(tokens_max),
      closing_(tokenizer.encode(marks_.closing, {.parse_special = true})),
      mask_(text::constraint::mask_words(vocab)) {
  if (closing_.empty() || std::ranges::any_of(closing_, [&](auto id) { return static_cast<std::size_t>(id) >= vocab; }))
    state_.part = Part::kAfter;  // the model cannot write it
  else if (marks_.opener.empty())
    state_.part = Part::kThinking;
  begin_closing();
}

void ThinkingBudget::begin_closing() {
  if (state_.part != Part::kThinking || state_.tokens < tokens_max_) return;
  state_.part = Part::kClosing;
  state_.tokens = 0;
}

std::span<const std::uint32_t> ThinkingBudget::mask() {
  if (state_.part != Part::kClosing) return inner_ ? inner_->mask() : std::span<const std::uint32_t>();
  std::ranges::fill(mask_, 0);
  text::constraint::allow(mask_, static_cast<std::size_t>(closing_[state_.tokens]));
  return mask_;
}

bool ThinkingBudget::accept(std::int32_t token) {
  if (state_.part == Part::kClosing && token != closing_[state_.tokens]) return false;
  if (inner_ && !inner_->accept(token)) return false;
  states_.push_back(state_);
  read(token);
  return true;
}

void ThinkingBudget::read(std::int32_t token) {
  if (state_.part == Part::kAfter) return;
  if (state_.part == Part::kClosing) {
    if (++state_.tokens == closing_.size()) state_.part = Part::kAfter;
    return;
  }
  const std::size_t before = text_.size();
  text_ += tokenizer_->decode_piece(token, true);
  state_.text = text_.size();
  if (state_.part == Part::kBefore) {
    const std::string_view begun =
        std::string_view(text_).substr(std::min(text_.find_first_not_of(text::kWhiteSpace), text_.size()));
    if (begun.starts_with(marks_.opener))
      state_.part = Part::kThinking;
    else if (!marks_.opener.starts_with(begun))
      state_.part = Part::kAfter;
  } else {
    ++state_.tokens;
    const std::size_t from = before - std::min(before, marks_.closer.size() - 1);
    if (text_.find(marks_.closer, from) != std::string::npos) state_.part = Part::kAfter;
  }
  begin_closing();
}

void ThinkingBudget::roll_back(std::size_t tokens) {
  invariant(tokens <= states_.size(), "SES-001", "tokens are taken back that were accepted");
  if (tokens == 0) return;
  state_ = states_[states_.size() - tokens];
  states_.resize(states_.size() - tokens);
  text_.resize(state_.text);
  if (inner_) inner_->roll_back(tokens);
}

std::vector<std::int32_t> ThinkingBudget::forced(std::size_t tokens_max) {
  if (state_.part != Part::kClosing) return inner_ ? inner_->forced(tokens_max) : std::vector<std::int32_t>();
  const auto rest = std::span(closing_).subspan(state_.tokens);
  return {rest.begin(), rest.begin() + static_cast<std::ptrdiff_t>(std::min(rest.size(), tokens_max))};
}

}  // namespace forge::session

#include "session/constraint/gated_constraint.h"

#include <algorithm>
#include <utility>

#include "support/error.h"
#include "text/answer/white_space.h"

namespace forge::session {

GatedConstraint::GatedConstraint(std::unique_ptr<runtime::TokenConstraint> inner,
                                 std::shared_ptr<const ConstraintVocabulary> vocabulary, const ConstraintGate& gate)
    : inner_(std::move(inner)), vocabulary_(std::move(vocabulary)), gate_(gate), text_(gate.before) {
  std::erase(gate_.markers, "");
  if (gate_.markers.empty()) {
    state_ = State::kActive;
  } else if (!gate_.opener.empty()) {
    opener_ = vocabulary_->tokenizer->encode(gate_.opener, {.parse_special = true});
    state_ = opener_.empty() ? State::kActive : State::kOpener;
  } else if (!gate_.reasoning_close.empty()) {
    state_ = State::kReasoning;
  }
}

std::span<const std::uint32_t> GatedConstraint::mask() {
  if (state_ == State::kActive) return inner_->mask();
  if (state_ != State::kOpener && (state_ == State::kFree || gate_.may_end)) return {};
  mask_.assign(vocabulary_->ends.size(), 0);
  if (state_ != State::kOpener) {
    std::ranges::transform(vocabulary_->ends, mask_.begin(), [](std::uint32_t ends) { return ~ends; });
    return mask_;
  }
  if (inner_follows_) std::ranges::copy(inner_->mask(), mask_.begin());
  text::constraint::allow(mask_, static_cast<std::size_t>(opener_[opened_]));
  return mask_;
}

bool GatedConstraint::accept(std::int32_t token) {
  Step step{.state = state_, .opened = opened_, .text = text_.size(), .begin = begin_};
  bool accepted = false;
  switch (state_) {
    case State::kOpener:
      accepted = accept_opener(token, step);
      break;
    case State::kReasoning:
    case State::kWaiting:
      accepted = accept_text(token, step);
      break;
    case State::kActive:
      accepted = inner_->accept(token);
      step.inner = accepted ? 1 : 0;
      inner_tokens_ += step.inner;
      break;
    case State::kFree:
      accepted = true;
  }
  if (accepted) steps_.push_back(step);
  return accepted;
}

/// A text may begin as the opener does and still be the constraint's own: `<` of <think>, or of <tool_call>.
bool GatedConstraint::accept_opener(std::int32_t token, Step& step) {
  const bool opens = token == opener_[opened_];
  const bool taken = inner_follows_ && inner_->accept(token);
  if (!opens && !taken) return false;
  inner_tokens_ += taken ? 1 : 0;
  step.inner = taken ? 1 : 0;
  if (!opens) {
    state_ = State::kActive;
    return true;
  }
  if (++opened_ == opener_.size()) state_ = State::kWaiting;
  inner_follows_ = taken;
  if (state_ == State::kWaiting || !taken) take_back_inner(inner_tokens_);
  return true;
}

void GatedConstraint::take_back_inner(std::size_t tokens) {
  inner_->roll_back(tokens);
  inner_tokens_ -= tokens;
}

bool GatedConstraint::accept_text(std::int32_t token, Step& step) {
  if (!gate_.may_end && vocabulary_->trie->is_end(token)) return false;
  const auto before = text_.size();
  text_ += vocabulary_->tokenizer->decode_piece(token, true);
  if (state_ == State::kReasoning) read_reasoning(before);
  if (state_ == State::kWaiting) find_marker(before, step);
  return true;
}

/// Reasoning comes first or not at all.
void GatedConstraint::read_reasoning(std::size_t before) {
  const auto& open = gate_.reasoning_open;
  const auto& close = gate_.reasoning_close;
  const auto text = std::string_view(text_).substr(gate_.before.size());
  const auto begun = text.substr(std::min(text.find_first_not_of(text::kWhiteSpace), text.size()));
  if (!open.empty() && !begun.starts_with(open)) {
    if (!open.starts_with(begun)) state_ = State::kWaiting;
    return;
  }
  const auto from = std::max(gate_.before.size(), before - std::min(before, close.size() - 1));
  const auto at = text_.find(close, from);
  if (at == std::string::npos) return;
  begin_ = at + close.size();
  state_ = State::kWaiting;
}

void GatedConstraint::find_marker(std::size_t before, Step& step) {
  std::size_t at = std::string::npos, end = at;  // of the marker that is complete first
  const auto found = [&](std::size_t begin, std::size_t size) {
    if (begin == std::string::npos || (end != std::string::npos && begin + size >= end)) return;
    at = begin;
    end = begin + size;
  };
  if (gate_.at_start) {
    const auto first = std::min(text_.find_first_not_of(text::kWhiteSpace, begin_), text_.size());
    const auto begun = std::string_view(text_).substr(first);
    bool open = begun.empty();
    for (const auto& marker : gate_.markers) {
      if (begun.starts_with(marker)) found(first, marker.size());
      open = open || marker.starts_with(begun);
    }
    if (end == std::string::npos && !open) state_ = State::kFree;
  } else {
    for (const auto& marker : gate_.markers)
      found(text_.find(marker, std::max(begin_, before - std::min(before, marker.size() - 1))), marker.size());
  }
  if (end == std::string::npos) return;
  state_ = State::kActive;
  step.inner = begin_inner(std::string_view(text_).substr(gate_.keeps_marker ? at : end));
  inner_tokens_ += step.inner;
}

/// Returns how many tokens the inner constraint has taken of the text at the marker.
std::size_t GatedConstraint::begin_inner(std::string_view text) {
  const auto take = [&](std::string_view rest) -> std::size_t {
    const auto ids = vocabulary_->trie->spelled(rest);
    for (std::size_t i = 0; i < ids.size(); ++i)
      if (!inner_->accept(ids[i])) {
        inner_->roll_back(i);
        return 0;
      }
    return ids.size();
  };
  if (text.empty()) return 0;
  if (const auto taken = take(text); taken > 0) return taken;
  if (gate_.keeps_marker) {  // the marker at least
    for (const auto& marker : gate_.markers)
      if (text.starts_with(marker)) return take(marker);
    return 0;
  }
  const auto first = text.find_first_not_of(text::kWhiteSpace);
  return first == std::string_view::npos || first == 0 ? 0 : take(text.substr(first));
}

void GatedConstraint::roll_back(std::size_t tokens) {
  invariant(tokens <= steps_.size(), "SES-001", "tokens are taken back that were accepted");
  if (tokens == 0) return;
  std::size_t inner = 0;
  for (; tokens > 0; --tokens, steps_.pop_back()) {
    const auto& step = steps_.back();
    inner += step.inner;
    state_ = step.state;
    opened_ = step.opened;
    begin_ = step.begin;
    text_.resize(step.text);
  }
  if (state_ != State::kOpener) return take_back_inner(inner);
  take_back_inner(inner_tokens_);
  inner_follows_ = true;
  for (; inner_follows_ && inner_tokens_ < opened_; inner_tokens_ += inner_follows_ ? 1 : 0)
    inner_follows_ = inner_->accept(opener_[inner_tokens_]);
  if (!inner_follows_) take_back_inner(inner_tokens_);
}

std::vector<std::int32_t> GatedConstraint::forced(std::size_t tokens_max) {
  if (state_ == State::kActive) return inner_->forced(tokens_max);
  if (state_ != State::kOpener || opened_ == 0 || inner_follows_) return {};
  const auto rest = std::span(opener_).subspan(opened_);
  return {rest.begin(), rest.begin() + static_cast<std::ptrdiff_t>(std::min(rest.size(), tokens_max))};
}

}  // namespace forge::session

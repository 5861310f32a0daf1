#include "session/constraint/gated_constraint.h"

#include <algorithm>
#include <utility>

#include "support/error.h"

namespace forge::session {
namespace {

bool allows(std::span<const std::uint32_t> mask, std::int32_t token) {
  const auto id = static_cast<std::size_t>(token);
  return mask.empty() || (id / 32 < mask.size() && (mask[id / 32] >> id % 32 & 1U) != 0);
}

}  // namespace

GatedConstraint::GatedConstraint(std::unique_ptr<runtime::TokenConstraint> inner,
                                 std::shared_ptr<const ConstraintVocabulary> vocabulary, const ConstraintGate& gate)
    : inner_(std::move(inner)), vocabulary_(std::move(vocabulary)), gate_(gate) {
  std::erase(gate_.markers, "");
  if (gate_.markers.empty()) {
    state_ = State::kActive;
  } else if (!gate_.opener.empty()) {
    opener_ = vocabulary_->tokenizer->encode(gate_.opener, {.parse_special = true});
    // A text that begins as the opener does is the constraint's own.
    if (!opener_.empty() && !allows(inner_->mask(), opener_.front()))
      state_ = State::kOpener;
    else
      state_ = State::kActive;
  }
}

std::span<const std::uint32_t> GatedConstraint::mask() {
  if (state_ == State::kActive) return inner_->mask();
  if (state_ == State::kWaiting && gate_.may_end) return {};
  mask_.assign(vocabulary_->ends.size(), 0);
  if (state_ == State::kWaiting) {
    std::ranges::transform(vocabulary_->ends, mask_.begin(), [](std::uint32_t ends) { return ~ends; });
    return mask_;
  }
  if (opened_ == 0) std::ranges::copy(inner_->mask(), mask_.begin());
  const auto next = static_cast<std::size_t>(opener_[opened_]);
  mask_[next / 32] |= 1U << next % 32;
  return mask_;
}

bool GatedConstraint::accept(std::int32_t token) {
  Step step{.state = state_, .opened = opened_, .text = text_.size()};
  bool accepted = false;
  switch (state_) {
    case State::kOpener:
      accepted = accept_opener(token, step);
      break;
    case State::kWaiting:
      accepted = accept_waiting(token, step);
      break;
    case State::kActive:
      accepted = inner_->accept(token);
      step.inner = 1;
  }
  if (accepted) steps_.push_back(step);
  return accepted;
}

bool GatedConstraint::accept_opener(std::int32_t token, Step& step) {
  if (token == opener_[opened_]) {
    if (++opened_ == opener_.size()) state_ = State::kWaiting;
    return true;
  }
  if (opened_ > 0 || !inner_->accept(token)) return false;
  step.inner = 1;
  state_ = State::kActive;
  return true;
}

bool GatedConstraint::accept_waiting(std::int32_t token, Step& step) {
  if (!gate_.may_end && vocabulary_->trie->is_end(token)) return false;
  const auto before = text_.size();
  text_ += vocabulary_->tokenizer->decode_piece(token, true);
  std::size_t end = std::string::npos;  // of the marker that is complete first
  for (const auto& marker : gate_.markers) {
    const auto from = before - std::min(before, marker.size() - 1);
    if (const auto at = text_.find(marker, from); at != std::string::npos) end = std::min(end, at + marker.size());
  }
  if (end == std::string::npos) return true;
  state_ = State::kActive;
  step.inner = begin_inner(std::string_view(text_).substr(end));
  return true;
}

/// Returns how many tokens the inner constraint has taken of the text behind the marker.
std::size_t GatedConstraint::begin_inner(std::string_view text) {
  constexpr std::string_view kSpace = " \t\r\n";
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
  const auto first = text.find_first_not_of(kSpace);
  return first == std::string_view::npos || first == 0 ? 0 : take(text.substr(first));
}

void GatedConstraint::roll_back(std::size_t tokens) {
  invariant(tokens <= steps_.size(), "SES-001", "tokens are taken back that were accepted");
  std::size_t inner = 0;
  for (; tokens > 0; --tokens, steps_.pop_back()) {
    const auto& step = steps_.back();
    inner += step.inner;
    state_ = step.state;
    opened_ = step.opened;
    text_.resize(step.text);
  }
  inner_->roll_back(inner);
}

std::vector<std::int32_t> GatedConstraint::forced(std::size_t tokens_max) {
  if (state_ == State::kActive) return inner_->forced(tokens_max);
  if (state_ == State::kWaiting || opened_ == 0) return {};
  const auto rest = std::span(opener_).subspan(opened_);
  return {rest.begin(), rest.begin() + static_cast<std::ptrdiff_t>(std::min(rest.size(), tokens_max))};
}

}  // namespace forge::session

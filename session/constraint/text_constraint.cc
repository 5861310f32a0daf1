#include "session/constraint/text_constraint.h"

#include <algorithm>

#include "text/tokenizer/unicode.h"

namespace forge::session {
namespace {

constexpr std::size_t kForcedBytesMax = 1024;

}  // namespace

/// Kept until the next token: ended() may have computed it before the step that it is for.
std::span<const std::uint32_t> TextConstraint::mask() {
  if (mask_at_ == constraint_.accepted()) return mask_;
  const auto mask = constraint_.mask();
  mask_.assign(text::constraint::mask_words(vocabulary_->vocab), 0);
  std::ranges::copy(mask.first(std::min(mask_.size(), mask.size())), mask_.begin());
  mask_at_ = constraint_.accepted();
  return mask_;
}

bool TextConstraint::accept(std::int32_t token) {
  mask_at_.reset();
  if (end_ || !constraint_.accept(token)) return false;
  if (vocabulary_->trie->is_end(token)) end_ = constraint_.accepted();
  return true;
}

void TextConstraint::roll_back(std::size_t tokens) {
  if (tokens > 0) mask_at_.reset();
  constraint_.roll_back(tokens);
  if (end_ && constraint_.accepted() < *end_) end_.reset();
}

bool TextConstraint::ended() {
  if (end_) return true;
  if (!constraint_.can_end()) return false;
  const auto mask = this->mask();
  const auto& ends = vocabulary_->ends;
  for (std::size_t i = 0; i < mask.size(); ++i)
    if ((mask[i] & ~ends[i]) != 0) return false;
  return true;
}

std::vector<std::int32_t> TextConstraint::forced(std::size_t tokens_max) {
  auto text = constraint_.forced(kForcedBytesMax);
  text.resize(text::complete_utf8_prefix(text));
  if (end_ || text.empty()) return {};
  auto ids = vocabulary_->trie->spelled_by(*vocabulary_->tokenizer, text, vocabulary_->shows_control);
  std::size_t accepted = 0;
  while (accepted < ids.size() && constraint_.accept(ids[accepted])) ++accepted;
  const bool whole = accepted == ids.size() && ended();
  mask_at_.reset();
  constraint_.roll_back(accepted);
  ids.resize(whole || accepted == 0 ? accepted : accepted - 1);
  if (ids.size() > tokens_max) ids.resize(tokens_max);
  return ids;
}

}  // namespace forge::session

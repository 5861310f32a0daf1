#include "text/constraint/constraint.h"

#include <algorithm>
#include <new>

#include "support/error.h"

namespace forge::text::constraint {

Constraint::Constraint(std::shared_ptr<CompiledConstraint> compiled)
    : compiled_(std::move(compiled)), mask_(compiled_->trie().mask_words()) {
  locked([] {});
}

/// Runs `work` with the compiled constraint locked and states_ valid in it. A pool that is full is made again once; one
/// that is spent was too complex for some sequence, and is made again for the others.
void Constraint::locked(const std::function<void()>& work) {
  auto& shared = *compiled_;
  const std::scoped_lock lock(shared.mutex_);
  try {
    if (shared.must_build()) shared.build();
    try {
      catch_up();
      work();
    } catch (const Error& error) {
      if (error.code() != ErrorCode::kMemory || shared.pool_->is_spent()) throw;
      shared.build();
      catch_up();
      work();
    }
    shared.measure();
  } catch (const std::bad_alloc&) {
    shared.built_ = false;
    throw Error(ErrorCode::kMemory, "there is no memory for the constraint");
  }
}

/// Expressions are numbers in a pool: in a new pool, the states come from the tokens. What is counted as work then
/// begins, for each token as when it came.
void Constraint::catch_up() {
  auto& pool = *compiled_->pool_;
  if (generation_ != compiled_->generation_) {
    states_ = {compiled_->language_.start};
    for (const auto token : tokens_) {
      pool.begin_work();
      states_.push_back(after(states_.back(), token));
    }
    can_end_.clear();
    for (const auto state : states_) can_end_.push_back(pool.nullable(state));
    generation_ = compiled_->generation_;
  }
  pool.begin_work();
}

/// The state after a token, kEmpty if it is not allowed or ends the text.
Expr Constraint::after(Expr state, std::int32_t token) {
  return compiled_->trie().is_end(token) ? RegularPool::kEmpty
                                         : compiled_->masks_->after(state, compiled_->trie().bytes(token));
}

std::span<const std::uint32_t> Constraint::mask() {
  locked([&] {
    std::ranges::fill(mask_, 0);
    compiled_->masks_->add(states_.back(), mask_);
  });
  return mask_;
}

bool Constraint::accept(std::int32_t token) {
  const bool is_end = compiled_->trie().is_end(token);
  if (is_end ? !can_end() : compiled_->trie().bytes(token).empty()) return false;
  bool allowed = false;
  locked([&] {
    const auto next = after(states_.back(), token);
    allowed = is_end || next != RegularPool::kEmpty;
    if (!allowed) return;
    tokens_.push_back(token);
    states_.push_back(next);
    can_end_.push_back(compiled_->pool_->nullable(next));
  });
  return allowed;
}

void Constraint::roll_back(std::size_t tokens) {
  invariant(tokens <= tokens_.size(), "TXT-003", "tokens taken back that were accepted");
  tokens_.resize(tokens_.size() - tokens);
  states_.resize(tokens_.size() + 1);
  can_end_.resize(tokens_.size() + 1);
}

std::string Constraint::forced(std::size_t bytes_max) {
  std::string text;
  locked([&] { text = forced_after(states_.back(), bytes_max); });
  return text;
}

std::string Constraint::forced_after(Expr state, std::size_t bytes_max) {
  auto& pool = *compiled_->pool_;
  std::string text;
  while (text.size() < bytes_max && state != RegularPool::kEmpty && !pool.nullable(state)) {
    Expr next = RegularPool::kEmpty;
    std::uint8_t forced = 0;
    unsigned ways = 0;
    for (unsigned byte = 0; byte < 256 && ways < 2; ++byte) {
      const auto one = static_cast<std::uint8_t>(byte);
      if (!pool.first(state).has(one)) continue;
      const auto after = compiled_->dfa_->step(state, one);
      if (after == RegularPool::kEmpty) continue;
      next = after;
      forced = one;
      ++ways;
    }
    if (ways != 1) break;
    text += static_cast<char>(forced);
    state = next;
  }
  return text;
}

}  // namespace forge::text::constraint

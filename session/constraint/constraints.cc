#include "session/constraint/constraints.h"

#include <algorithm>
#include <utility>

#include "session/constraint/gated_constraint.h"
#include "session/constraint/text_constraint.h"

namespace forge::session {

/// The tree of the tokens is built when the first constraint is compiled: it takes tens of megabytes.
std::shared_ptr<const ConstraintVocabulary> Constraints::vocabulary() {
  std::call_once(once_, [&] {
    auto made = std::make_shared<ConstraintVocabulary>(
        ConstraintVocabulary{.tokenizer = tokenizer_,
                             .trie = std::make_shared<const text::constraint::TokenTrie>(*tokenizer_, shown_),
                             .vocab = vocab_,
                             .ends = std::vector<std::uint32_t>((vocab_ + 31) / 32),
                             .shows_control = !shown_.empty()});
    for (const auto token : made->trie->end_tokens())
      if (const auto id = static_cast<std::size_t>(token); id < vocab_) made->ends[id / 32] |= 1U << id % 32;
    vocabulary_ = std::move(made);
  });
  return vocabulary_;
}

/// The lock is not held while a source is compiled. Others that want the same source wait for the first; one that is
/// refused is not kept.
std::shared_ptr<CompiledConstraint> Constraints::compile(const ConstraintSource& source) {
  const auto trie = vocabulary()->trie;
  std::promise<std::shared_ptr<CompiledConstraint>> promise;
  {
    std::unique_lock lock(mutex_);
    const auto found = std::ranges::find_if(entries_, [&](const Entry& entry) {
      return entry.source.syntax == source.syntax && entry.source.text == source.text;
    });
    if (found != entries_.end()) {
      entries_.splice(entries_.begin(), entries_, found);
      const auto compiled = found->compiled;
      lock.unlock();
      return compiled.get();
    }
    ++compilations_;
    entries_.push_front(
        {.source = source, .bytes = kEntryBytes + 2 * source.text.size(), .compiled = promise.get_future().share()});
    bytes_ += entries_.front().bytes;
    for (; bytes_ > bytes_max_ && entries_.size() > 1; entries_.pop_back()) bytes_ -= entries_.back().bytes;
  }
  try {
    auto compiled = text::constraint::compile(source, trie);
    promise.set_value(compiled);
    return compiled;
  } catch (...) {
    promise.set_exception(std::current_exception());
    forget(source);
    throw;
  }
}

void Constraints::forget(const ConstraintSource& source) {
  const std::lock_guard lock(mutex_);
  std::erase_if(entries_, [&](const Entry& entry) {
    const bool is_it = entry.source.syntax == source.syntax && entry.source.text == source.text;
    if (is_it) bytes_ -= entry.bytes;
    return is_it;
  });
}

std::unique_ptr<runtime::TokenConstraint> Constraints::start(const std::shared_ptr<CompiledConstraint>& compiled,
                                                             const ConstraintGate* gate) {
  auto inner = std::make_unique<TextConstraint>(compiled, vocabulary());
  if (gate == nullptr) return inner;
  return std::make_unique<GatedConstraint>(std::move(inner), vocabulary(), *gate);
}

std::size_t Constraints::kept() const {
  const std::lock_guard lock(mutex_);
  return entries_.size();
}

std::size_t Constraints::compilations() const {
  const std::lock_guard lock(mutex_);
  return compilations_;
}

}  // namespace forge::session

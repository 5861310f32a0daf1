#include "session/constraint/constraints.h"

#include <fmt/core.h>

#include <algorithm>
#include <chrono>
#include <unordered_set>
#include <utility>

#include "session/constraint/gated_constraint.h"
#include "session/constraint/text_constraint.h"
#include "support/error.h"

namespace forge::session {

/// The tree of the tokens is built when the first constraint is compiled: it takes tens of megabytes.
std::shared_ptr<const ConstraintVocabulary> Constraints::vocabulary() {
  std::call_once(once_, [&] {
    auto made = std::make_shared<ConstraintVocabulary>(
        ConstraintVocabulary{.tokenizer = tokenizer_,
                             .trie = std::make_shared<const text::constraint::TokenTrie>(*tokenizer_, shown_),
                             .vocab = vocab_,
                             .ends = std::vector<std::uint32_t>(text::constraint::mask_words(vocab_)),
                             .shows_control = !shown_.empty()});
    for (const auto token : made->trie->end_tokens())
      if (const auto id = static_cast<std::size_t>(token); id < vocab_) text::constraint::allow(made->ends, id);
    vocabulary_ = std::move(made);
  });
  return vocabulary_;
}

bool Constraints::is_ready(const Entry& entry) {
  return entry.compiled.wait_for(std::chrono::seconds(0)) == std::future_status::ready;
}

std::list<Constraints::Entry>::iterator Constraints::find(const ConstraintSource& source) {
  return std::ranges::find(entries_, source, &Entry::source);
}

/// The lock is not held while a source is compiled. Others that want the same source wait for the first.
std::shared_ptr<CompiledConstraint> Constraints::compile(const ConstraintSource& source) {
  const auto trie = vocabulary()->trie;
  std::promise<std::shared_ptr<CompiledConstraint>> promise;
  {
    std::unique_lock lock(mutex_);
    const auto now = std::chrono::steady_clock::now();
    std::erase_if(entries_, [&](const Entry& entry) { return entry.refused_until && *entry.refused_until <= now; });
    const auto found = find(source);
    if (found != entries_.end()) {
      entries_.splice(entries_.begin(), entries_, found);
      const auto compiled = found->compiled;
      lock.unlock();
      return compiled.get();
    }
    if (const auto bytes = bytes_in_use(); bytes > kBusyFactor * bytes_max_)
      throw Error(ErrorCode::kMemory, fmt::format("constraints of other requests take {} MiB", bytes >> 20),
                  fmt::format("{} MiB may be in use before a new one is compiled", kBusyFactor * bytes_max_ >> 20),
                  "try again when these requests have ended");
    ++compilations_;
    entries_.push_front({.source = source, .compiled = promise.get_future().share()});
  }
  std::shared_ptr<CompiledConstraint> compiled;
  try {
    compiled = text::constraint::compile(source, trie);
  } catch (...) {
    const std::lock_guard lock(mutex_);
    if (const auto entry = find(source); entry != entries_.end())  // before others see the error
      entry->refused_until = std::chrono::steady_clock::now() + refused_for_;
    promise.set_exception(std::current_exception());
    throw;
  }
  promise.set_value(compiled);
  forget_unused();
  const std::lock_guard lock(mutex_);
  alive_.push_back(compiled);
  return compiled;
}

std::size_t Constraints::bytes_in_use() {
  std::erase_if(alive_, [](const auto& one) { return one.expired(); });
  std::unordered_set<const CompiledConstraint*> kept;
  for (const auto& entry : entries_)
    if (is_ready(entry) && !entry.refused_until) kept.insert(entry.compiled.get().get());
  std::size_t bytes = 0;
  for (const auto& one : alive_)
    if (const auto compiled = one.lock(); compiled && one.use_count() > (kept.contains(compiled.get()) ? 2 : 1))
      bytes += compiled->memory_bytes() + compiled->source().text.size();
  return bytes;
}

/// Compiled constraints grow while they are used (automaton, masks), so all are measured whenever one is added.
void Constraints::forget_unused() {
  const std::lock_guard lock(mutex_);
  std::size_t bytes = 0;
  for (auto entry = entries_.begin(); entry != entries_.end();) {
    const bool ready = is_ready(*entry);
    if (ready) bytes += entry->source.text.size();
    if (ready && !entry->refused_until) bytes += entry->compiled.get()->memory_bytes();
    entry = ready && bytes > bytes_max_ && entry != entries_.begin() ? entries_.erase(entry) : std::next(entry);
  }
}

std::unique_ptr<runtime::TokenConstraint> Constraints::start(const std::shared_ptr<CompiledConstraint>& compiled,
                                                             const ConstraintGate* gate) {
  auto inner = std::make_unique<TextConstraint>(compiled, vocabulary());
  if (gate == nullptr) return inner;
  return std::make_unique<GatedConstraint>(std::move(inner), vocabulary(), *gate);
}

std::size_t Constraints::kept() const {
  const std::lock_guard lock(mutex_);
  return static_cast<std::size_t>(
      std::ranges::count_if(entries_, [](const Entry& entry) { return !entry.refused_until; }));
}

std::size_t Constraints::compilations() const {
  const std::lock_guard lock(mutex_);
  return compilations_;
}

}  // namespace forge::session

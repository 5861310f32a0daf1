// Recurrent state in the pool of KV blocks: which slots a step uses, snapshots, and prefixes that end at one.

#include "runtime/kv/kv_blocks.h"
#include "support/error.h"

namespace forge::runtime {

bool KvSequence::has_state_to_append() const {
  return !pool_->states_ || pool_->states_->can_append(slot_);
}

std::int32_t KvSequence::state_read() const {
  return pool_->states_ ? pool_->states_->read(slot_) : StateSlots::kNone;
}

std::int32_t KvSequence::state_write() const {
  return pool_->states_ ? pool_->states_->written(slot_) : StateSlots::kNone;
}

bool KvSequence::can_run_ahead() const {
  if (!pool_->states_) return true;
  const auto& slot = pool_->slots_[slot_];
  return pool_->states_->in_place(slot_) && !pool_->must_copy(slot, slot_, 1) &&
         !pool_->must_copy_for_snapshot(slot, slot_, 1);
}

std::size_t KvSequence::run_ahead(std::size_t from) {
  if (!pool_->states_) return SIZE_MAX;
  pool_->slots_[slot_].loop_from = from;
  const std::size_t most = pool_->states_->begin_loop(slot_) ? 2 : 1;
  pool_->free_released();  // the second slot may have held a snapshot
  return most;
}

bool KvSequence::keep_state(std::span<const std::int32_t> ids) {
  auto& slot = pool_->slots_[slot_];
  invariant(ids.size() == slot.tokens, "KV-052", "a snapshot is the state after all tokens of its sequence");
  const std::size_t size = pool_->limits_.block_tokens, blocks = ids.size() / size;
  if (!pool_->states_ || ids.empty() || (!pool_->windows_.empty() && ids.size() % size != 0)) return false;
  if (!pool_->states_->limits().snapshots) return false;
  publish(ids);
  const auto table = pool_->table(slot_);
  StateSlots::Key key{.extra = slot.extra_hash, .position = ids.size(), .tail = ids.subspan(blocks * size)};
  if (blocks > 0) {
    key.block = table[blocks - 1];
    key.birth = pool_->prefixes_.chain_of(key.block).birth;
  }
  if (!key.tail.empty()) key.tail_block = table[blocks];
  const bool kept = pool_->states_->keep(slot_, key);
  pool_->free_released();
  return kept;
}

std::size_t KvSequence::state_kept() const {
  const auto snapshot = pool_->states_ ? pool_->states_->nearest(slot_, tokens()) : StateSlots::kNone;
  return snapshot == StateSlots::kNone ? 0 : pool_->states_->position(snapshot);
}

/// The newest snapshot at or before `tokens` whose windows are still there; `tokens` becomes its position, or 0.
std::int32_t KvSequence::fall_back(std::size_t& tokens) const {
  while (true) {
    const auto snapshot = pool_->states_->nearest(slot_, tokens);
    tokens = snapshot == StateSlots::kNone ? 0 : pool_->states_->position(snapshot);
    if (snapshot == StateSlots::kNone || holds_window_at(tokens)) return snapshot;
    --tokens;
  }
}

/// With recurrent state the prefix ends at a snapshot: the deepest one whose windows are still there.
KvBlockPool::Prefix KvBlockPool::state_prefix_of(std::span<const std::int32_t> ids, std::uint64_t extra_hash,
                                                 std::span<const std::int32_t> blocks) const {
  const std::size_t size = limits_.block_tokens, indexed = blocks.size() * size;
  for (std::size_t most = ids.size();; --most) {
    const auto state = states_->deepest(prefixes_, blocks, ids, extra_hash, most);
    if (state == StateSlots::kNone) return {.blocks = {}, .indexed = indexed};
    most = states_->position(state);
    const auto prefix = blocks.first(most / size);
    Prefix found{.blocks = prefix, .idle = idle_of(prefix), .state = state, .indexed = indexed};
    if (!windows_cover(prefix)) continue;
    const KvPrefixIndex::PartialMatch next{.block = states_->tail_block(state), .tokens = most % size};
    if (next.tokens == 0 || with_next(found, next, ids.size())) return found;
  }
}

/// Frees unreferenced blocks that no snapshot needs any more.
void KvBlockPool::free_released() {
  if (!states_) return;
  states_->drain_released([&](std::int32_t block) {
    if (kept_.holds(block)) {
      kept_.remove(block);
      free_blocks_.push_back(block);  // never exceeds the reserved capacity
    }
  });
}

/// True if the next positions go into a block that nothing else refers to, over positions that a snapshot needs.
bool KvBlockPool::must_copy_for_snapshot(const Slot& slot, std::uint32_t index, std::size_t tokens) const {
  if (!states_ || tokens == 0 || slot.tokens % limits_.block_tokens == 0) return false;
  return states_->keeps_beyond(table(index)[slot.blocks - 1], slot.tokens);
}

}  // namespace forge::runtime

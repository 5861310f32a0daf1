#include "runtime/kv/state_slots.h"

#include <algorithm>
#include <utility>

#include "support/error.h"

namespace forge::runtime {

std::size_t last_turn_end(std::span<const std::int32_t> prompt, std::span<const std::int32_t> ends) {
  for (std::size_t end = prompt.size() - 1; end > 0; --end)
    if (std::ranges::find(ends, prompt[end - 1]) != ends.end()) return end;
  return 0;
}

StateSlots::StateSlots(const Limits& limits, const Shape& shape)
    : limits_(limits), block_tokens_(shape.block_tokens), idle_(limits.slots) {
  invariant(limits.slots >= shape.sequences_max && limits.slots < (std::size_t{1} << 31), "KV-040",
            "there is a slot of recurrent state for each sequence");
  slots_.resize(limits.slots);
  tails_.resize(limits.slots * shape.block_tokens);
  free_.resize(limits.slots);
  for (std::size_t i = 0; i < limits.slots; ++i)
    free_[i] = static_cast<std::int32_t>(limits.slots - 1 - i);  // the lowest comes first
  sequences_.resize(shape.sequences_max);
  remembered_.resize(shape.sequences_max * kRememberedMax);
  kept_by_.resize(shape.pool_blocks);
  released_.reserve(limits.slots);
}

std::span<std::int32_t> StateSlots::tail(std::int32_t slot) {
  return std::span(tails_).subspan(at(slot) * block_tokens_, position(slot) % block_tokens_);
}
std::span<const std::int32_t> StateSlots::tail(std::int32_t slot) const {
  return std::span(tails_).subspan(at(slot) * block_tokens_, position(slot) % block_tokens_);
}

std::span<StateSlots::Remembered> StateSlots::remembered(std::uint32_t sequence) {
  return std::span(remembered_).subspan(sequence * kRememberedMax, sequences_[sequence].remembered);
}
std::span<const StateSlots::Remembered> StateSlots::remembered(std::uint32_t sequence) const {
  return std::span(remembered_).subspan(sequence * kRememberedMax, sequences_[sequence].remembered);
}

bool StateSlots::can_append(std::uint32_t sequence) const {
  return slots_free() > 0 || alone(sequences_[sequence].current);
}

/// In place if only this sequence uses its slot and no snapshot needs it; else in another slot. If there is none, the
/// sequence gives up its own snapshot.
void StateSlots::append(std::uint32_t sequence) {
  release_read(sequence);
  auto& s = sequences_[sequence];
  s.read = s.current;
  if (in_place(sequence)) return;
  if (slots_free() == 0) {
    invariant(alone(s.current), "KV-041", "slots are counted before they are taken");
    forget_snapshot(s.current);
    ++evictions_;
    return;
  }
  s.held = s.current;
  s.current = take();
}

bool StateSlots::in_place(std::uint32_t sequence) const {
  const auto& s = sequences_[sequence];
  return alone(s.current) && slots_[at(s.current)].stamp == 0;
}

/// Of the snapshots that wait for a prompt, the last one is not given up.
bool StateSlots::begin_loop(std::uint32_t sequence) {
  auto& s = sequences_[sequence];
  invariant(in_place(sequence) && s.read == s.current && s.other == kNone, "KV-051",
            "a decode loop starts with a step that writes the state in place");
  if (slots_free() < 2 && free_.empty()) return false;
  s.other = take();
  return true;
}

void StateSlots::end_loop(std::uint32_t sequence, std::size_t steps) {
  auto& s = sequences_[sequence];
  if (s.other == kNone) return;
  if (steps % 2 == 1) std::swap(s.current, s.other);
  s.read = s.current;
  drop(std::exchange(s.other, kNone));
}

void StateSlots::release_read(std::uint32_t sequence) noexcept {
  if (const auto held = std::exchange(sequences_[sequence].held, kNone); held != kNone) drop(held);
}

void StateSlots::close(std::uint32_t sequence) noexcept {
  release_read(sequence);
  end_loop(sequence, 0);
  if (const auto current = sequences_[sequence].current; current != kNone) drop(current);
  sequences_[sequence] = {};
}

bool StateSlots::keep(std::uint32_t sequence, const Key& key) {
  auto& s = sequences_[sequence];
  if (!limits_.snapshots || s.current == kNone) return false;
  release_read(sequence);
  const auto known = find(key);
  if (known != kNone) {
    if (known != s.current) {
      share(known);
      drop(std::exchange(s.current, known));
    }
    remember(sequence, known);
    return true;
  }
  if (slots_[at(s.current)].stamp != 0) forget_snapshot(s.current);
  auto& slot = slots_[at(s.current)];
  slot.stamp = ++stamps_;
  slot.birth = key.birth;
  slot.extra = key.extra;
  slot.block = key.block;
  slot.tail_block = key.tail_block;
  slot.position = key.position;
  std::ranges::copy(key.tail, tail(s.current).begin());
  if (key.tail_block != kNone) ++kept_by_[at(key.tail_block)];
  ++snapshots_;
  remember(sequence, s.current);
  return true;
}

std::int32_t StateSlots::find(const Key& key) const {
  for (std::size_t i = 0; i < slots_.size(); ++i) {
    const auto& slot = slots_[i];
    if (slot.stamp == 0 || slot.position != key.position || slot.birth != key.birth || slot.extra != key.extra)
      continue;
    if (const auto number = static_cast<std::int32_t>(i); std::ranges::equal(tail(number), key.tail)) return number;
  }
  return kNone;
}

std::int32_t StateSlots::deepest(const KvPrefixIndex& index, std::span<const std::int32_t> prefix,
                                 std::span<const std::int32_t> ids, std::uint64_t extra, std::size_t tokens_max) const {
  std::int32_t best = kNone;
  for (std::size_t i = 0; i < slots_.size(); ++i) {
    const auto& slot = slots_[i];
    const std::size_t blocks = slot.position / block_tokens_;
    if (slot.stamp == 0 || slot.extra != extra || slot.position > std::min(tokens_max, ids.size())) continue;
    if (blocks > prefix.size() || (best != kNone && slot.position <= position(best))) continue;
    if (slot.birth != (blocks == 0 ? 0 : index.chain_of(prefix[blocks - 1]).birth)) continue;
    const auto number = static_cast<std::int32_t>(i);
    const auto same = tail(number);
    if (std::ranges::equal(same, ids.subspan(blocks * block_tokens_, same.size()))) best = number;
  }
  return best;
}

std::int32_t StateSlots::nearest(std::uint32_t sequence, std::size_t tokens) const {
  std::int32_t best = kNone;
  for (const auto& one : remembered(sequence))
    if (one.position <= tokens && slots_[at(one.slot)].stamp == one.stamp &&
        (best == kNone || one.position > position(best)))
      best = one.slot;
  return best;
}

/// Replaces an entry of the same position, else the oldest if there is no room.
void StateSlots::remember(std::uint32_t sequence, std::int32_t slot) {
  auto& s = sequences_[sequence];
  const auto known = std::ranges::find(remembered(sequence), position(slot), &Remembered::position);
  if (known != remembered(sequence).end() || s.remembered == kRememberedMax) {
    const auto gone = known != remembered(sequence).end() ? known : remembered(sequence).begin();
    std::move(gone + 1, remembered(sequence).end(), gone);
    --s.remembered;
  }
  ++s.remembered;
  remembered(sequence).back() = {.slot = slot, .stamp = slots_[at(slot)].stamp, .position = position(slot)};
}

void StateSlots::open(std::uint32_t sequence, std::int32_t snapshot) {
  restore(sequence, snapshot);
  remember(sequence, snapshot);
  ++hits_;
}

void StateSlots::restore(std::uint32_t sequence, std::int32_t snapshot) {
  release_read(sequence);
  auto& s = sequences_[sequence];
  if (snapshot != kNone) share(snapshot);
  if (s.current != kNone) drop(s.current);
  s.current = s.read = snapshot;
  const std::size_t tokens = snapshot == kNone ? 0 : position(snapshot);
  const auto beyond = [&](const Remembered& one) { return one.position > tokens; };
  s.remembered -= std::ranges::remove_if(remembered(sequence), beyond).size();
}

void StateSlots::fork(std::uint32_t parent, std::uint32_t child, std::int32_t from) {
  const auto& s = sequences_[parent];
  auto& to = sequences_[child];
  if (from != kNone) share(from);
  to = {.current = from, .read = from};
  if (from == kNone) return;
  const std::size_t tokens = from == s.current ? SIZE_MAX : position(from);
  for (const auto& one : remembered(parent))
    if (one.position <= tokens) remembered_[child * kRememberedMax + to.remembered++] = one;
}

bool StateSlots::keeps_beyond(std::int32_t block, std::size_t tokens) const {
  return keeps(block) && std::ranges::any_of(slots_, [&](const Slot& slot) {
           return slot.stamp != 0 && slot.tail_block == block && slot.position > tokens;
         });
}

void StateSlots::forget_beyond(std::int32_t block, std::size_t tokens) {
  for (std::size_t i = 0; i < slots_.size(); ++i)
    if (slots_[i].stamp != 0 && slots_[i].tail_block == block && slots_[i].position > tokens) {
      forget_snapshot(static_cast<std::int32_t>(i));
      ++evictions_;
    }
}

void StateSlots::forget(std::int32_t block) {
  for (std::size_t i = 0; i < slots_.size(); ++i)
    if (slots_[i].stamp != 0 && (slots_[i].block == block || slots_[i].tail_block == block)) {
      forget_snapshot(static_cast<std::int32_t>(i));
      ++evictions_;
    }
}

void StateSlots::forget_all() {
  for (std::size_t i = 0; i < slots_.size(); ++i)
    if (slots_[i].stamp != 0) forget_snapshot(static_cast<std::int32_t>(i));
}

/// The slot is no longer found. Without references it is free.
void StateSlots::forget_snapshot(std::int32_t number) {
  auto& slot = slots_[at(number)];
  if (slot.tail_block != kNone && --kept_by_[at(slot.tail_block)] == 0) released_.push_back(slot.tail_block);
  slot = {.references = slot.references};
  --snapshots_;
  if (!idle_.holds(number)) return;
  idle_.remove(number);
  free_.push_back(number);  // never exceeds the reserved capacity
}

/// A free slot, else that of the snapshot that was not used for the longest time.
std::int32_t StateSlots::take() {
  if (free_.empty()) {
    forget_snapshot(idle_.oldest());
    ++evictions_;
  }
  const auto slot = free_.back();
  free_.pop_back();
  slots_[at(slot)].references = 1;
  return slot;
}

void StateSlots::share(std::int32_t slot) noexcept {
  if (slots_[at(slot)].references++ == 0) idle_.remove(slot);
}

void StateSlots::drop(std::int32_t number) noexcept {
  auto& slot = slots_[at(number)];
  if (slot.references == 0) {
    ++double_releases_;
    return;
  }
  if (--slot.references > 0) return;
  if (slot.stamp != 0)
    idle_.push(number);
  else
    free_.push_back(number);  // never exceeds the reserved capacity
}

void StateSlots::retain(std::int32_t slot) {
  invariant(slots_[at(slot)].references > 0, "KV-042", "a free slot of recurrent state is not shared");
  ++slots_[at(slot)].references;
}

void StateSlots::release(std::int32_t slot) {
  invariant(slots_[at(slot)].references > 0, "KV-043", "a slot of recurrent state is not released twice");
  drop(slot);
}

void StateSlots::audit(const KvPrefixIndex& index, std::span<const bool> is_open,
                       std::span<const std::int32_t> held_outside) const {
  std::vector<std::uint32_t> counted(slots_.size()), kept(kept_by_.size());
  const auto count = [&](std::int32_t slot) {
    if (slot != kNone) ++counted.at(at(slot));
  };
  for (std::uint32_t i = 0; i < sequences_.size(); ++i) {
    const auto& s = sequences_[i];
    invariant(is_open[i] || (s.current == kNone && s.held == kNone && s.other == kNone), "KV-044",
              "a sequence that is not open has no recurrent state");
    count(s.current);
    count(s.held);
    count(s.other);
  }
  for (const auto slot : held_outside) count(slot);
  invariant(double_releases_ == 0, "KV-043", "a slot of recurrent state is not released twice");
  std::size_t snapshots = 0, idle = 0;
  for (std::size_t i = 0; i < slots_.size(); ++i) {
    const auto& slot = slots_[i];
    const auto number = static_cast<std::int32_t>(i);
    invariant(slot.references == counted[i], "KV-045", "a slot of recurrent state counts its holders");
    invariant(idle_.holds(number) == (slot.references == 0 && slot.stamp != 0), "KV-046",
              "idle slots of recurrent state are snapshots");
    idle += idle_.holds(number) ? 1 : 0;
    if (slot.stamp == 0) continue;
    ++snapshots;
    const bool whole = slot.position % block_tokens_ == 0, first = slot.position < block_tokens_;
    invariant((slot.block == kNone) == first && (first ? slot.birth == 0 : index.holds(slot.block)) &&
                  (first || index.chain_of(slot.block).birth == slot.birth),
              "KV-047", "the last full block of a snapshot is in the prefix index");
    invariant((slot.tail_block == kNone) == whole, "KV-048", "a snapshot within a block knows the block");
    if (!whole) ++kept.at(at(slot.tail_block));
  }
  invariant(kept == kept_by_, "KV-048", "a block counts the snapshots that need it");
  invariant(idle_.is_sound() && idle == idle_.size() && snapshots == snapshots_, "KV-046",
            "idle snapshots are listed once, the oldest first");
  for (const auto slot : free_) {
    auto& seen = counted.at(at(slot));
    invariant(seen == 0 && slots_[at(slot)].stamp == 0, "KV-049", "a slot on the free list is free and listed once");
    seen = 1;
  }
  for (std::size_t i = 0; i < slots_.size(); ++i)
    invariant(counted[i] > 0 || idle_.holds(static_cast<std::int32_t>(i)), "KV-050", "no slot is lost");
}

}  // namespace forge::runtime

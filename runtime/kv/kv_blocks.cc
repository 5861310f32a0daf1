#include "runtime/kv/kv_blocks.h"

#include <algorithm>
#include <memory>
#include <utility>

#include "support/error.h"

namespace forge::runtime {

KvSequence::KvSequence(KvSequence&& other) noexcept : pool_(std::exchange(other.pool_, nullptr)), slot_(other.slot_) {}

KvSequence& KvSequence::operator=(KvSequence&& other) noexcept {
  std::swap(pool_, other.pool_);
  std::swap(slot_, other.slot_);
  return *this;
}

KvSequence::~KvSequence() {
  if (pool_ != nullptr) pool_->close(slot_);
}

std::size_t KvSequence::tokens() const {
  return pool_->slots_[slot_].tokens;
}

std::span<const std::int32_t> KvSequence::blocks() const {
  return std::as_const(*pool_).table(slot_).first(pool_->slots_[slot_].blocks);
}

std::span<const std::int32_t> KvSequence::table(std::size_t group) const {
  for (const auto& window : pool_->windows_)
    if (window.group() == static_cast<std::int32_t>(group)) return window.table(slot_);
  return blocks();
}

bool KvSequence::holds_window_at(std::size_t tokens) const {
  return std::ranges::all_of(pool_->windows_, [&](const auto& w) { return w.holds_window_at(slot_, tokens); });
}

/// One extra block when the last one must be copied first (copy on write).
std::size_t KvSequence::blocks_to_append(std::size_t tokens) const {
  const auto& slot = pool_->slots_[slot_];
  return pool_->blocks_for(slot.tokens + tokens) - slot.blocks + (pool_->must_copy(slot, slot_, tokens) ? 1 : 0);
}

/// All checks come before any change, so a refused append leaves the sequence untouched.
AppendResult KvSequence::append(std::size_t tokens) {
  auto& slot = pool_->slots_[slot_];
  if (tokens > pool_->limits_.tokens_max - slot.tokens) return {};
  if (tokens > 0 && !has_state_to_append()) return {};
  const std::size_t needed = blocks_to_append(tokens);
  if (needed > pool_->blocks_free()) return {};
  for (const auto& window : pool_->windows_)
    if (window.blocks_to_append(slot_, slot.tokens, slot.tokens + tokens) > window.blocks_free()) return {};
  AppendResult result{.ok = true, .copy = std::nullopt};
  pool_->window_copies_.clear();
  for (auto& window : pool_->windows_)
    if (const auto copy = window.append(slot_, slot.tokens, slot.tokens + tokens))
      pool_->window_copies_.push_back(*copy);  // never exceeds the reserved capacity
  result.window_copies = pool_->window_copies_;
  const auto table = pool_->table(slot_);
  if (pool_->states_ && tokens > 0) pool_->states_->append(slot_);
  // A block that only a snapshot needs is copied too if there is room, else the snapshot goes.
  bool copies = pool_->must_copy(slot, slot_, tokens);
  if (!copies && pool_->must_copy_for_snapshot(slot, slot_, tokens)) {
    copies = needed < pool_->blocks_free();
    if (!copies) pool_->states_->forget_beyond(table[slot.blocks - 1], slot.tokens);
  }
  // Copy on write: the sequence continues in a block of its own, the executor copies the old contents into it.
  if (copies) {
    std::int32_t& last = table[slot.blocks - 1];
    result.copy = BlockCopy{.from = last, .to = pool_->take()};
    pool_->release(last);
    last = result.copy->to;
  } else if (tokens > 0 && pool_->continues_tail(slot, slot_)) {
    pool_->prefixes_.remove(table[slot.blocks - 1]);
  }
  slot.tokens += tokens;
  for (const std::size_t blocks = pool_->blocks_for(slot.tokens); slot.blocks < blocks; ++slot.blocks)
    table[slot.blocks] = pool_->take();
  pool_->free_released();
  return result;
}

/// Reserves positions for a decode loop on the device. No copies are possible then, so no block may be shared.
bool KvSequence::append_ring(std::size_t tokens) {
  auto& slot = pool_->slots_[slot_];
  if (tokens > pool_->limits_.tokens_max - slot.tokens || blocks_to_append(tokens) > pool_->blocks_free()) return false;
  const std::size_t after = slot.tokens + tokens;
  for (const auto& window : pool_->windows_)
    if (window.blocks_to_append_ring(slot_, after) > window.blocks_free()) return false;
  invariant(!pool_->must_copy(slot, slot_, tokens), "KV-014", "a decode loop's sequence shares no block");
  for (auto& window : pool_->windows_) window.append_ring(slot_, after);
  if (pool_->states_) pool_->states_->append(slot_);
  slot.tokens = after;
  for (const std::size_t blocks = pool_->blocks_for(after); slot.blocks < blocks; ++slot.blocks)
    pool_->table(slot_)[slot.blocks] = pool_->take();
  return true;
}

void KvSequence::release_outside_window() {
  for (auto& window : pool_->windows_) window.release_outside_window(slot_, tokens());
  if (pool_->states_) pool_->states_->release_read(slot_);
}

/// A sequence that has lost a part of the window that position `tokens` needs cannot continue from there; it is emptied
/// and its tokens must be computed again.
std::size_t KvSequence::trim(std::size_t tokens) {
  auto& slot = pool_->slots_[slot_];
  // Equal lengths do not return here: that ends a ring which was used up to its last position.
  if (tokens > slot.tokens) return slot.tokens;
  bool exact = false;  // the loop that ends here left the state after `tokens` tokens
  if (const auto from = std::exchange(slot.loop_from, std::nullopt)) {
    exact = tokens >= *from;
    pool_->states_->end_loop(slot_, exact ? tokens - *from : 0);
  }
  if (pool_->states_ && tokens < slot.tokens && !exact) {
    const auto snapshot = fall_back(tokens);
    pool_->states_->restore(slot_, snapshot);
  }
  if (!holds_window_at(tokens)) tokens = 0;
  for (auto& window : pool_->windows_) window.trim(slot_, tokens);
  slot.tokens = tokens;
  const auto table = pool_->table(slot_);
  for (const std::size_t blocks = pool_->blocks_for(tokens); slot.blocks > blocks; --slot.blocks)
    pool_->release(table[slot.blocks - 1]);
  slot.published = std::min(slot.published, tokens / pool_->limits_.block_tokens);
  return tokens;
}

/// Moves full blocks into the prefix index, in order. If an equal block is in the index already (two sequences computed
/// the same prefix), the duplicate is dropped and the sequence uses the indexed one.
void KvSequence::publish(std::span<const std::int32_t> ids) {
  auto& slot = pool_->slots_[slot_];
  invariant(ids.size() <= slot.tokens, "KV-011", "published tokens have been appended before");
  auto& index = pool_->prefixes_;
  const auto table = pool_->table(slot_);
  const std::size_t size = pool_->limits_.block_tokens;
  for (; (slot.published + 1) * size <= ids.size(); ++slot.published) {
    const auto chain = pool_->published_chain(slot, slot_);
    const auto content = ids.subspan(slot.published * size, size);
    std::int32_t& own = table[slot.published];
    const std::int32_t known = index.find(chain, content);
    if (known == KvPrefixIndex::kNone) {
      if (index.holds(own) && index.tokens_of(own) == size) {
        index.rejoin(chain, own);
      } else {
        if (index.holds(own)) index.remove(own);  // as the tail of a shorter fork
        index.insert(chain, content, own);
      }
    } else {
      pool_->share(known);
      pool_->release(own);
      own = known;
    }
    for (auto& window : pool_->windows_) window.publish(slot_, slot.published, own);
  }
}

void KvSequence::publish_end(std::span<const std::int32_t> ids) {
  publish(ids);
  const auto& slot = pool_->slots_[slot_];
  auto& index = pool_->prefixes_;
  const auto rest = ids.subspan(slot.published * pool_->limits_.block_tokens);
  if (rest.empty() || !pool_->windows_.empty() || pool_->states_) return;
  const auto chain = pool_->published_chain(slot, slot_);
  const std::int32_t last = pool_->table(slot_)[slot.published];
  if (index.find_partial(chain, rest).tokens == rest.size()) return;
  if (index.holds(last)) {
    if (index.tokens_of(last) >= rest.size()) return;  // full, or an equal tail behind another chain
    index.remove(last);
  }
  index.insert(chain, rest, last);
}

/// Shares blocks by reference. The partly filled last block is shared too; whichever sequence writes into it first gets
/// a copy.
std::optional<KvSequence> KvSequence::fork(std::size_t tokens) const {
  const auto child = pool_->open_slot();
  if (!child) return std::nullopt;
  const auto& parent = pool_->slots_[slot_];
  std::size_t shared = std::min(tokens, parent.tokens);
  if (pool_->states_) {
    auto& states = *pool_->states_;
    const auto from = shared == parent.tokens ? states.current(slot_) : fall_back(shared);
    states.fork(slot_, *child, from);
  }
  if (!holds_window_at(shared)) shared = 0;
  for (auto& window : pool_->windows_) window.fork(slot_, *child, shared);
  const auto blocks = this->blocks().first(pool_->blocks_for(shared));
  for (const std::int32_t block : blocks) pool_->share(block);
  std::ranges::copy(blocks, pool_->table(*child).begin());
  pool_->slots_[*child] = {.tokens = shared,
                           .blocks = blocks.size(),
                           .published = std::min(parent.published, shared / pool_->limits_.block_tokens),
                           .extra_hash = parent.extra_hash,
                           .open = true};
  return KvSequence(*pool_, *child);
}

namespace {

KvBlockPool::Limits checked(const KvBlockPool::Limits& limits) {
  const auto sane = [](std::size_t n) { return n > 0 && n < (std::size_t{1} << 31); };
  invariant(sane(limits.blocks) && sane(limits.block_tokens) && sane(limits.sequences_max) && sane(limits.tokens_max),
            "KV-001", "limits of a block pool are positive and below 2^31");
  return limits;
}

}  // namespace

KvBlockPool::KvBlockPool(const Limits& limits)
    : limits_(checked(limits)),
      prefixes_(limits.blocks, limits.block_tokens, limits.group),
      kept_(limits.states.slots > 0 ? limits.blocks : 0) {
  table_blocks_ = blocks_for(limits.tokens_max);
  references_.resize(limits.blocks);
  tables_.resize(limits.sequences_max * table_blocks_);
  slots_.resize(limits.sequences_max);
  free_blocks_.resize(limits.blocks);
  free_slots_.resize(limits.sequences_max);
  found_.resize(table_blocks_);
  windows_.reserve(limits.windows.size());
  window_copies_.reserve(limits.windows.size());
  for (const auto& window : limits.windows)
    windows_.emplace_back(window, KvWindow::Shape{.block_tokens = limits.block_tokens,
                                                  .sequences_max = limits.sequences_max,
                                                  .table_blocks = table_blocks_,
                                                  .pool_blocks = limits.blocks});
  if (limits.states.slots > 0) {
    states_.emplace(limits.states, StateSlots::Shape{.block_tokens = limits.block_tokens,
                                                     .sequences_max = limits.sequences_max,
                                                     .pool_blocks = limits.blocks});
    idle_since_.resize(limits.blocks);
  }
  // Free lists are stacks; the lowest number is on top.
  for (std::size_t i = 0; i < limits.blocks; ++i) free_blocks_[i] = static_cast<std::int32_t>(limits.blocks - 1 - i);
  for (std::size_t i = 0; i < limits.sequences_max; ++i)
    free_slots_[i] = static_cast<std::uint32_t>(limits.sequences_max - 1 - i);
}

std::uint32_t KvBlockPool::references(std::int32_t block) const {
  return references_.at(static_cast<std::size_t>(block));
}

/// Finds the longest published prefix of `ids`, block by block from the root of the index. Two adjustments follow: With
/// sliding windows the prefix is shortened until every window group still has the blocks that the next token sees.
/// Without windows one more block may match partly; it is used if that saves at least min_partial_tokens tokens.
KvBlockPool::Prefix KvBlockPool::prefix_of(std::span<const std::int32_t> ids, std::uint64_t extra_hash) const {
  const std::size_t size = limits_.block_tokens;
  ids = ids.first(std::min(ids.size(), limits_.tokens_max));
  std::size_t count = 0;
  auto chain = prefixes_.root(extra_hash);
  for (; (count + 1) * size <= ids.size(); ++count) {
    found_[count] = prefixes_.find(chain, ids.subspan(count * size, size));
    if (found_[count] == KvPrefixIndex::kNone) break;
    chain = prefixes_.chain_of(found_[count]);
  }
  auto prefix = std::span<const std::int32_t>(found_).first(count);
  if (states_) return state_prefix_of(ids, extra_hash, prefix);
  while (!windows_cover(prefix)) prefix = prefix.first(prefix.size() - 1);
  Prefix found{.blocks = prefix, .idle = idle_of(prefix), .indexed = count * size};
  if (!windows_.empty()) return found;
  const auto next = prefixes_.find_partial(chain, ids.subspan(count * size));
  // A whole tail may be continued in place, which takes no copy.
  const bool whole = next.tokens > 0 && next.tokens == prefixes_.tokens_of(next.block);
  const std::size_t least = whole ? 1 : std::max<std::size_t>(limits_.min_partial_tokens, 1);
  if (next.tokens >= least) (void)with_next(found, next, ids.size());
  return found;
}

KvPrefixIndex::Chain KvBlockPool::published_chain(const Slot& slot, std::uint32_t index) const {
  if (slot.published == 0) return prefixes_.root(slot.extra_hash);
  return prefixes_.chain_of(table(index)[slot.published - 1]);
}

bool KvBlockPool::windows_cover(std::span<const std::int32_t> prefix) const {
  return std::ranges::all_of(windows_, [&](const auto& window) { return window.covers(prefix); });
}

std::size_t KvBlockPool::idle_of(std::span<const std::int32_t> blocks) const {
  const auto is_idle = [&](std::int32_t block) { return references(block) == 0; };
  return static_cast<std::size_t>(std::ranges::count_if(blocks, is_idle));
}

/// Adds a partly matching block to `found`, if the pool can afford it: it stays referenced until the first append has
/// copied it, in addition to the sequence's own new blocks (`fresh`, with room for one generated token).
bool KvBlockPool::with_next(Prefix& found, KvPrefixIndex::PartialMatch next, std::size_t ids) const {
  const std::size_t fresh = blocks_for(ids + 1) - found.blocks.size(), held = idle_of(std::span(&next.block, 1));
  if (fresh + found.idle + held > blocks_free()) return false;
  found.next = next;
  found.idle += held;
  return true;
}

PrefixMatch KvBlockPool::match(std::span<const std::int32_t> ids, std::uint64_t extra_hash) const {
  const auto prefix = prefix_of(ids, extra_hash);
  return {.blocks = prefix.blocks.size(),
          .tokens = prefix.blocks.size() * limits_.block_tokens + prefix.next.tokens,
          .idle = prefix.idle,
          .indexed = prefix.indexed};
}

/// A match takes references to the shared blocks. The partly matching block becomes the last block of the table; append
/// copies it because it is in the index (must_copy).
std::optional<KvSequence> KvBlockPool::open(std::span<const std::int32_t> ids, std::uint64_t extra_hash) {
  const auto slot = open_slot();
  if (!slot) return std::nullopt;
  const auto [prefix, next, idle, state, indexed] = prefix_of(ids, extra_hash);
  if (state != StateSlots::kNone) states_->open(*slot, state);
  const std::size_t blocks = prefix.size();
  std::ranges::copy(prefix, table(*slot).begin());
  for (const std::int32_t block : prefix) share(block);
  for (auto& window : windows_) window.open(*slot, prefix);
  slots_[*slot] = {.tokens = blocks * limits_.block_tokens,
                   .blocks = blocks,
                   .published = blocks,
                   .extra_hash = extra_hash,
                   .open = true};
  if (next.tokens > 0) {
    share(next.block);
    table(*slot)[slots_[*slot].blocks++] = next.block;
    slots_[*slot].tokens += next.tokens;
  }
  return KvSequence(*this, *slot);
}

/// After a failed step the contents of memory are unknown, so no block may be found again.
void KvBlockPool::evict_idle() {
  if (states_) states_->forget_all();
  free_released();
  while (prefixes_.idle() > 0) {
    free_blocks_.push_back(evict());  // never exceeds the reserved capacity
  }
}

void KvBlockPool::retain(std::int32_t block) {
  invariant(references(block) > 0, "KV-003", "a free block is not shared");
  ++references_[static_cast<std::size_t>(block)];
}

void KvBlockPool::release(std::int32_t block) {
  invariant(references(block) > 0, "KV-004", "a block is not released twice");
  drop(block);
}

/// Removes a reference. An unreferenced block stays findable (idle) if it is in the index, otherwise it is free.
/// noexcept, because destructors call it: a double release is counted and reported by audit().
void KvBlockPool::drop(std::int32_t block) noexcept {
  auto& references = references_[static_cast<std::size_t>(block)];
  if (references == 0) {
    ++double_releases_;
    return;
  }
  if (--references > 0) return;
  if (states_) idle_since_[static_cast<std::size_t>(block)] = ++idle_clock_;
  if (prefixes_.holds(block))
    prefixes_.set_idle(block);
  else if (states_ && states_->keeps(block))
    kept_.push(block);
  else
    free_blocks_.push_back(block);  // never exceeds the reserved capacity
}

/// Adds a reference to a block that is in use or idle in the index.
void KvBlockPool::share(std::int32_t block) {
  if (references_[static_cast<std::size_t>(block)]++ > 0) return;
  if (prefixes_.holds(block))
    prefixes_.set_busy(block);
  else
    kept_.remove(block);
}

/// Takes the least recently used idle block out of the index, with its companion blocks in the window groups and the
/// snapshots that need it; or one that only snapshots need.
std::int32_t KvBlockPool::evict() {
  const auto since = [&](std::int32_t block) { return idle_since_[static_cast<std::size_t>(block)]; };
  std::int32_t block = kept_.oldest();
  if (block == KvIdleList::kNone || (prefixes_.idle() > 0 && since(prefixes_.oldest_idle()) < since(block)))
    block = prefixes_.evict();
  else
    kept_.remove(block);
  for (auto& window : windows_) window.forget(block);
  if (states_) states_->forget(block);
  ++evictions_;
  return block;
}

/// Returns a free block with one reference, evicting an idle one if necessary. Callers have checked that there is one.
std::int32_t KvBlockPool::take() {
  invariant(blocks_free() > 0, "KV-005", "blocks are counted before they are taken");
  std::int32_t block = 0;
  if (free_blocks_.empty()) {
    block = evict();
  } else {
    block = free_blocks_.back();
    free_blocks_.pop_back();
  }
  references_[static_cast<std::size_t>(block)] = 1;
  return block;
}

std::optional<std::uint32_t> KvBlockPool::open_slot() {
  if (free_slots_.empty()) return std::nullopt;
  const std::uint32_t slot = free_slots_.back();
  free_slots_.pop_back();
  return slot;
}

std::span<std::int32_t> KvBlockPool::table(std::uint32_t slot) {
  return std::span(tables_).subspan(slot * table_blocks_, table_blocks_);
}
std::span<const std::int32_t> KvBlockPool::table(std::uint32_t slot) const {
  return std::span(tables_).subspan(slot * table_blocks_, table_blocks_);
}

std::size_t KvBlockPool::blocks_for(std::size_t tokens) const {
  return (tokens + limits_.block_tokens - 1) / limits_.block_tokens;
}

/// True if the next positions go into a partly filled block that another sequence reads or that is in the index.
/// Published contents never change.
bool KvBlockPool::must_copy(const Slot& slot, std::uint32_t index, std::size_t tokens) const {
  if (tokens == 0 || slot.tokens % limits_.block_tokens == 0) return false;
  const std::int32_t last = table(index)[slot.blocks - 1];
  return (references(last) > 1 || prefixes_.holds(last)) && !continues_tail(slot, index);
}

/// True if the sequence's last block is a tail that no other one uses, and the sequence ends where it does.
bool KvBlockPool::continues_tail(const Slot& slot, std::uint32_t index) const {
  if (slot.blocks == 0) return false;
  const std::int32_t last = table(index)[slot.blocks - 1];
  return prefixes_.holds(last) && references(last) == 1 &&
         prefixes_.tokens_of(last) == slot.tokens % limits_.block_tokens;  // a full block has more
}

void KvBlockPool::close(std::uint32_t slot) noexcept {
  // Last block first, so that it becomes idle before its prefix and is evicted before it.
  for (std::size_t i = slots_[slot].blocks; i > 0; --i) drop(table(slot)[i - 1]);
  for (auto& window : windows_) window.trim(slot, 0);
  if (states_) states_->close(slot);
  slots_[slot] = {};
  free_slots_.push_back(slot);
}

/// Recounts references from the tables and compares every derived structure with the result.
void KvBlockPool::audit(std::span<const std::int32_t> held_outside,
                        std::span<const std::int32_t> states_outside) const {
  std::vector<std::uint32_t> counted(limits_.blocks);
  const auto count = [&](std::int32_t block) { ++counted.at(static_cast<std::size_t>(block)); };
  const auto is_open = std::make_unique<bool[]>(slots_.size());
  std::size_t open = 0;
  for (std::uint32_t i = 0; i < slots_.size(); ++i) {
    is_open[i] = slots_[i].open;
    if (!slots_[i].open) continue;
    ++open;
    invariant(!states_ || (slots_[i].tokens > 0) == (states_->current(i) != StateSlots::kNone), "KV-053",
              "a sequence with tokens has recurrent state");
    invariant(slots_[i].blocks == blocks_for(slots_[i].tokens), "KV-006",
              "a sequence has as many blocks as its length needs");
    for (const std::int32_t block : table(i).first(slots_[i].blocks)) count(block);
    auto chain = prefixes_.root(slots_[i].extra_hash);
    for (const std::int32_t block : table(i).first(slots_[i].published)) {
      invariant(prefixes_.holds(block) && prefixes_.follows(block, chain), "KV-012",
                "published blocks are in the index, each following the one before");
      chain = prefixes_.chain_of(block);
    }
  }
  for (const auto& window : windows_) window.audit({is_open.get(), slots_.size()});
  if (states_) states_->audit(prefixes_, {is_open.get(), slots_.size()}, states_outside);
  for (const std::int32_t block : held_outside) count(block);
  invariant(double_releases_ == 0, "KV-013", "no block was released twice");
  invariant(counted == references_, "KV-007", "reference counts equal the number of holders");
  invariant(open + free_slots_.size() == slots_.size(), "KV-008", "a sequence is open or free");
  const auto is_idle = std::make_unique<bool[]>(limits_.blocks);
  for (std::size_t i = 0; i < limits_.blocks; ++i)
    is_idle[i] = counted[i] == 0 && prefixes_.holds(static_cast<std::int32_t>(i));
  prefixes_.audit({is_idle.get(), limits_.blocks});
  for (const std::int32_t block : free_blocks_) {
    auto& seen = counted.at(static_cast<std::size_t>(block));
    invariant(seen == 0 && !prefixes_.holds(block), "KV-009", "a block on the free list is free and listed once");
    seen = 1;
  }
  for (std::size_t i = 0; i < limits_.blocks; ++i) {
    const auto block = static_cast<std::int32_t>(i);
    const bool kept = states_ && counted[i] == 0 && !prefixes_.holds(block) && states_->keeps(block);
    invariant(!states_ || kept_.holds(block) == kept, "KV-054", "blocks that only a snapshot needs are idle");
    if (is_idle[i] || kept) counted[i] = 1;
  }
  invariant(kept_.is_sound(), "KV-026", "idle blocks are listed once, the oldest first");
  invariant(std::ranges::all_of(counted, [](auto n) { return n > 0; }), "KV-010", "no block is lost");
}

}  // namespace forge::runtime

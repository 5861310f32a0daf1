#include "runtime/kv/kv_window.h"

#include <algorithm>
#include <utility>

#include "support/error.h"

namespace forge::runtime {

KvWindow::KvWindow(const Limits& limits, const Shape& shape)
    : limits_(limits), shape_(shape), idle_(limits.room.blocks) {
  invariant(limits.room.blocks > 0 && limits.room.blocks < (std::size_t{1} << 31) && limits.room.window > 0, "KV-030",
            "the pool and window of a sliding-window group are not empty");
  entries_.resize(limits.room.blocks);
  free_blocks_.resize(limits.room.blocks);
  for (std::size_t i = 0; i < limits.room.blocks; ++i)
    free_blocks_[i] = static_cast<std::int32_t>(limits.room.blocks - 1 - i);  // the lowest comes first
  tables_.assign(shape.sequences_max * shape.table_blocks, kNoBlock);
  slots_.resize(shape.sequences_max);
  companions_.assign(shape.pool_blocks, kNoBlock);
}

std::span<const std::int32_t> KvWindow::table(std::uint32_t slot) const {
  return std::span(tables_).subspan(slot * shape_.table_blocks, slots_[slot].end);
}

std::span<std::int32_t> KvWindow::row(std::uint32_t slot) {
  return std::span(tables_).subspan(slot * shape_.table_blocks, shape_.table_blocks);
}

std::size_t KvWindow::blocks_for(std::size_t tokens) const {
  return (tokens + shape_.block_tokens - 1) / shape_.block_tokens;
}

std::size_t KvWindow::first_block(std::size_t position) const {
  return kv_first_block(position, limits_.room.window, shape_.block_tokens);
}

/// Blocks in the ring of append_ring: one more than a window can touch, so that steps that ran ahead of the last taken
/// token do not overwrite what the sequence still sees after trim.
std::size_t KvWindow::ring_blocks() const {
  return kv_window_blocks(limits_.room.window, shape_.block_tokens) + 1;
}

/// True if no other sequence uses the block and the prefix cache cannot return it.
bool KvWindow::is_own(std::int32_t block) const {
  return entry(block).references == 1 && entry(block).companion_of == kNoBlock;
}

bool KvWindow::holds_window_at(std::uint32_t slot, std::size_t tokens) const {
  return tokens == 0 || slots_[slot].begin <= first_block(tokens);
}

std::size_t KvWindow::blocks_to_append(std::uint32_t slot, std::size_t tokens, std::size_t after) const {
  const auto& s = slots_[slot];
  const bool copies = after > tokens && tokens % shape_.block_tokens != 0 && !is_own(table(slot)[s.end - 1]);
  return blocks_for(after) - s.end + (copies ? 1 : 0);
}

std::optional<BlockCopy> KvWindow::append(std::uint32_t slot, std::size_t tokens, std::size_t after) {
  auto& s = slots_[slot];
  const auto table = row(slot);
  std::optional<BlockCopy> copy;
  if (after > tokens && tokens % shape_.block_tokens != 0 && !is_own(table[s.end - 1])) {
    std::int32_t& last = table[s.end - 1];
    copy = BlockCopy{.from = last, .to = take(), .group = limits_.group};
    drop(last);
    last = copy->to;
  }
  for (const std::size_t end = blocks_for(after); s.end < end; ++s.end) table[s.end] = take();
  return copy;
}

std::size_t KvWindow::blocks_to_append_ring(std::uint32_t slot, std::size_t after) const {
  const auto& s = slots_[slot];
  const std::size_t end = std::min(blocks_for(after), s.begin + ring_blocks());
  return end > s.end ? end - s.end : 0;
}

/// Entries of the table beyond the ring repeat its blocks. Window of 3 blocks, ring of 4:
///
///   logical block   0  1  2  3  4  5  6
///   table           7  2  9  4  7  2  9      block 7 is overwritten when position 4 * block_tokens is reached
void KvWindow::append_ring(std::uint32_t slot, std::size_t after) {
  auto& s = slots_[slot];
  const auto table = row(slot);
  for (std::size_t i = s.begin; i < s.end; ++i)
    invariant(is_own(table[i]), "KV-031", "blocks of a ring are used by one sequence only");
  const std::size_t held = std::max(ring_blocks(), s.end - s.begin);
  for (const std::size_t end = blocks_for(after); s.end < end; ++s.end)
    table[s.end] = s.end < s.begin + held ? take() : table[s.end - held];
  s.ring = held;
}

/// Only blocks in front of the window are dropped; begin moves forward.
void KvWindow::release_outside_window(std::uint32_t slot, std::size_t tokens) {
  auto& s = slots_[slot];
  const auto table = row(slot);
  for (const std::size_t first = std::min(first_block(tokens), s.end); s.begin < first; ++s.begin) {
    drop(table[s.begin]);
    table[s.begin] = kNoBlock;
  }
}

/// `kept` are the entries that remain. In a ring a dropped entry's block may be among them and must not be released.
void KvWindow::trim(std::uint32_t slot, std::size_t tokens) noexcept {
  auto& s = slots_[slot];
  const auto table = row(slot);
  const std::size_t end = std::min(blocks_for(tokens), s.end);
  // In a ring, several entries of the block table name the same block; only the newest of them is valid, because the
  // block holds its positions.
  const std::size_t begin =
      s.ring > 0 && tokens > 0 ? std::clamp(first_block(tokens), s.begin, end) : std::min(s.begin, end);
  const auto kept = table.subspan(begin, end - begin);
  for (std::size_t held = s.held(), i = s.begin + held; held > 0; --held) {  // last block first
    const std::int32_t block = table[--i];
    if (s.ring == 0 ? i >= end : std::ranges::find(kept, block) == kept.end()) drop(block);
  }
  for (std::size_t i = s.begin; i < s.end; ++i)
    if (i < begin || i >= end) table[i] = kNoBlock;
  s = {.begin = tokens == 0 ? 0 : begin, .end = end, .ring = 0};
}

void KvWindow::fork(std::uint32_t parent, std::uint32_t child, std::size_t tokens) {
  const auto& from = slots_[parent];
  auto& to = slots_[child];
  to.end = std::min(blocks_for(tokens), from.end);
  to.begin = std::min(from.begin, to.end);
  for (std::size_t i = to.begin; i < to.end; ++i) {
    row(child)[i] = row(parent)[i];
    share(row(child)[i]);
  }
}

/// Links the sequence's block to the pool's published block as its companion. If the published block has a companion
/// already (the same prefix computed twice), the sequence switches to that one, as KvSequence::publish does.
void KvWindow::publish(std::uint32_t slot, std::size_t index, std::int32_t block) {
  if (index < slots_[slot].begin) return;
  std::int32_t& own = row(slot)[index];
  std::int32_t& known = companions_[static_cast<std::size_t>(block)];
  if (known == kNoBlock && entry(own).companion_of == kNoBlock) {
    known = own;
    entry(own).companion_of = block;
  } else if (known != kNoBlock && known != own) {
    share(known);
    drop(own);
    own = known;
  }
}

/// Only the blocks that a token right after `prefix` can see must have companions.
bool KvWindow::covers(std::span<const std::int32_t> prefix) const {
  const std::size_t first = first_block(prefix.size() * shape_.block_tokens);
  return std::ranges::all_of(prefix.subspan(std::min(first, prefix.size())), [&](std::int32_t block) {
    return companions_[static_cast<std::size_t>(block)] != kNoBlock;
  });
}

void KvWindow::open(std::uint32_t slot, std::span<const std::int32_t> prefix) {
  auto& s = slots_[slot];
  s.end = prefix.size();
  s.begin = std::min(first_block(prefix.size() * shape_.block_tokens), s.end);
  for (std::size_t i = s.begin; i < s.end; ++i) {
    row(slot)[i] = companions_[static_cast<std::size_t>(prefix[i])];
    share(row(slot)[i]);
  }
}

void KvWindow::forget(std::int32_t block) noexcept {
  const std::int32_t own = std::exchange(companions_[static_cast<std::size_t>(block)], kNoBlock);
  if (own == kNoBlock) return;
  entry(own).companion_of = kNoBlock;
  if (!idle_.holds(own)) return;
  idle_.remove(own);
  free_blocks_.push_back(own);  // never exceeds the reserved capacity
}

/// Returns a free block with one reference; evicts the oldest idle companion if there is none. Callers have checked
/// that there is one.
std::int32_t KvWindow::take() {
  invariant(blocks_free() > 0, "KV-032", "blocks are counted before they are taken");
  std::int32_t block = idle_.oldest();
  if (free_blocks_.empty()) {
    idle_.remove(block);
    companions_[static_cast<std::size_t>(entry(block).companion_of)] = kNoBlock;
    entry(block).companion_of = kNoBlock;
  } else {
    block = free_blocks_.back();
    free_blocks_.pop_back();
  }
  entry(block).references = 1;
  return block;
}

void KvWindow::share(std::int32_t block) noexcept {
  if (entry(block).references++ == 0) idle_.remove(block);
}

void KvWindow::drop(std::int32_t block) noexcept {
  auto& e = entry(block);
  if (--e.references > 0) return;
  if (e.companion_of == kNoBlock) {
    free_blocks_.push_back(block);  // never exceeds the reserved capacity
    return;
  }
  idle_.push(block);
}

void KvWindow::audit(std::span<const bool> is_open) const {
  std::vector<std::uint32_t> counted(entries_.size());
  for (std::uint32_t slot = 0; slot < slots_.size(); ++slot) {
    const auto& s = slots_[slot];
    invariant(is_open[slot] || (s.begin == 0 && s.end == 0), "KV-033", "a slot that is not open holds nothing");
    for (std::size_t i = 0; i < s.end; ++i)
      invariant((table(slot)[i] == kNoBlock) == (i < s.begin), "KV-034", "a slot maps one run of blocks");
    for (const std::int32_t block : table(slot).subspan(s.begin, s.held()))
      ++counted.at(static_cast<std::size_t>(block));
  }
  std::size_t idle = 0, found = 0;
  for (std::size_t i = 0; i < entries_.size(); ++i) {
    const auto& e = entries_[i];
    const auto block = static_cast<std::int32_t>(i);
    invariant(e.references == counted[i], "KV-035",
              "reference counts of a window's blocks equal the number of slots that hold them");
    const bool is_idle = idle_.holds(block);
    invariant(is_idle == (e.references == 0 && e.companion_of != kNoBlock), "KV-036", "idle blocks have a companion");
    invariant(e.companion_of == kNoBlock || companions_[static_cast<std::size_t>(e.companion_of)] == block, "KV-037",
              "a block and its companion refer to each other");
    idle += is_idle ? 1 : 0;
    if (e.references > 0 || is_idle) ++found;
  }
  invariant(idle_.is_sound(), "KV-038", "idle blocks are listed once, the oldest first");
  invariant(idle == idle_.size() && found + free_blocks_.size() == entries_.size(), "KV-039",
            "each of a window's blocks is held, idle or free");
}

}  // namespace forge::runtime

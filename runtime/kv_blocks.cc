#include "runtime/kv_blocks.h"

#include <algorithm>
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

std::size_t KvSequence::blocks_to_append(std::size_t tokens) const {
  const auto& slot = pool_->slots_[slot_];
  return pool_->blocks_for(slot.tokens + tokens) - slot.blocks + (pool_->must_copy(slot, slot_, tokens) ? 1 : 0);
}

AppendResult KvSequence::append(std::size_t tokens) {
  auto& slot = pool_->slots_[slot_];
  if (tokens > pool_->limits_.tokens_max - slot.tokens) return {};
  if (blocks_to_append(tokens) > pool_->blocks_free()) return {};
  AppendResult result{.ok = true, .copy = std::nullopt};
  const auto table = pool_->table(slot_);
  if (pool_->must_copy(slot, slot_, tokens)) {
    std::int32_t& last = table[slot.blocks - 1];
    result.copy = BlockCopy{.from = last, .to = pool_->take()};
    pool_->release(last);
    last = result.copy->to;
  }
  slot.tokens += tokens;
  for (const std::size_t blocks = pool_->blocks_for(slot.tokens); slot.blocks < blocks; ++slot.blocks)
    table[slot.blocks] = pool_->take();
  return result;
}

void KvSequence::trim(std::size_t tokens) {
  auto& slot = pool_->slots_[slot_];
  if (tokens >= slot.tokens) return;
  slot.tokens = tokens;
  const auto table = pool_->table(slot_);
  for (const std::size_t blocks = pool_->blocks_for(tokens); slot.blocks > blocks; --slot.blocks)
    pool_->release(table[slot.blocks - 1]);
}

std::optional<KvSequence> KvSequence::fork(std::size_t tokens) const {
  const std::size_t shared = std::min(tokens, this->tokens());
  auto child = pool_->open(blocks().first(pool_->blocks_for(shared)));
  if (child) pool_->slots_[child->slot_].tokens = shared;
  return child;
}

KvBlockPool::KvBlockPool(const Limits& limits) : limits_(limits) {
  const auto sane = [](std::size_t n) { return n > 0 && n < (std::size_t{1} << 31); };
  invariant(sane(limits.blocks) && sane(limits.block_tokens) && sane(limits.sequences_max) && sane(limits.tokens_max),
            "KV-001", "limits of a block pool are positive and below 2^31");
  table_blocks_ = blocks_for(limits.tokens_max);
  references_.resize(limits.blocks);
  tables_.resize(limits.sequences_max * table_blocks_);
  slots_.resize(limits.sequences_max);
  free_blocks_.resize(limits.blocks);
  free_slots_.resize(limits.sequences_max);
  // Stacks from which the lowest number comes first.
  for (std::size_t i = 0; i < limits.blocks; ++i) free_blocks_[i] = static_cast<std::int32_t>(limits.blocks - 1 - i);
  for (std::size_t i = 0; i < limits.sequences_max; ++i)
    free_slots_[i] = static_cast<std::uint32_t>(limits.sequences_max - 1 - i);
}

std::uint32_t KvBlockPool::references(std::int32_t block) const {
  return references_.at(static_cast<std::size_t>(block));
}

std::optional<KvSequence> KvBlockPool::open(std::span<const std::int32_t> full_blocks) {
  invariant(full_blocks.size() <= table_blocks_, "KV-002", "a shared prefix fits a sequence");
  if (free_slots_.empty()) return std::nullopt;
  for (const std::int32_t block : full_blocks) retain(block);
  const std::uint32_t slot = free_slots_.back();
  free_slots_.pop_back();
  std::ranges::copy(full_blocks, table(slot).begin());
  slots_[slot] = {std::min(full_blocks.size() * limits_.block_tokens, limits_.tokens_max), full_blocks.size(), true};
  return KvSequence(*this, slot);
}

void KvBlockPool::retain(std::int32_t block) {
  invariant(references(block) > 0, "KV-003", "a free block is not shared");
  ++references_[static_cast<std::size_t>(block)];
}

void KvBlockPool::release(std::int32_t block) {
  invariant(references(block) > 0, "KV-004", "a block is not released twice");
  if (--references_[static_cast<std::size_t>(block)] == 0) free_blocks_.push_back(block);  // within its capacity
}

/// A free block with one reference; callers have checked that there is one.
std::int32_t KvBlockPool::take() {
  invariant(!free_blocks_.empty(), "KV-005", "blocks are counted before they are taken");
  const std::int32_t block = free_blocks_.back();
  free_blocks_.pop_back();
  references_[static_cast<std::size_t>(block)] = 1;
  return block;
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

/// Whether the next positions go into a block that others read.
bool KvBlockPool::must_copy(const Slot& slot, std::uint32_t index, std::size_t tokens) const {
  if (tokens == 0 || slot.tokens % limits_.block_tokens == 0) return false;
  return references(table(index)[slot.blocks - 1]) > 1;
}

void KvBlockPool::close(std::uint32_t slot) {
  for (const std::int32_t block : table(slot).first(slots_[slot].blocks)) release(block);
  slots_[slot] = {};
  free_slots_.push_back(slot);
}

void KvBlockPool::audit(std::span<const std::int32_t> held_outside) const {
  std::vector<std::uint32_t> counted(limits_.blocks);
  const auto count = [&](std::int32_t block) { ++counted.at(static_cast<std::size_t>(block)); };
  std::size_t open = 0;
  for (std::uint32_t i = 0; i < slots_.size(); ++i) {
    if (!slots_[i].open) continue;
    ++open;
    invariant(slots_[i].blocks == blocks_for(slots_[i].tokens), "KV-006", "a sequence has the blocks of its length");
    for (const std::int32_t block : table(i).first(slots_[i].blocks)) count(block);
  }
  for (const std::int32_t block : held_outside) count(block);
  invariant(counted == references_, "KV-007", "references are those of the holders");
  invariant(open + free_slots_.size() == slots_.size(), "KV-008", "a sequence is open or free");
  for (const std::int32_t block : free_blocks_) {
    invariant(counted.at(static_cast<std::size_t>(block)) == 0, "KV-009", "a block on the free list is free, once");
    counted[static_cast<std::size_t>(block)] = 1;
  }
  invariant(std::ranges::all_of(counted, [](auto n) { return n > 0; }), "KV-010", "no block is lost");
}

}  // namespace forge::runtime

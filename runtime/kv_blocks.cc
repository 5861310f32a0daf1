#include "runtime/kv_blocks.h"

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
  slot.published = std::min(slot.published, tokens / pool_->limits_.block_tokens);
}

void KvSequence::publish(std::span<const std::int32_t> ids) {
  auto& slot = pool_->slots_[slot_];
  invariant(ids.size() <= slot.tokens, "KV-011", "what is published has been appended");
  auto& index = pool_->prefixes_;
  const auto table = pool_->table(slot_);
  const std::size_t size = pool_->limits_.block_tokens;
  for (; (slot.published + 1) * size <= ids.size(); ++slot.published) {
    const auto chain = slot.published == 0 ? index.root() : index.chain_of(table[slot.published - 1]);
    const auto content = ids.subspan(slot.published * size, size);
    std::int32_t& own = table[slot.published];
    const std::int32_t known = index.find(chain, content);
    if (known == KvPrefixIndex::kNone) {
      index.insert(chain, content, own);
    } else {
      pool_->share(known);
      pool_->release(own);
      own = known;
    }
  }
}

std::optional<KvSequence> KvSequence::fork(std::size_t tokens) const {
  const auto child = pool_->open_slot();
  if (!child) return std::nullopt;
  const auto& parent = pool_->slots_[slot_];
  const std::size_t shared = std::min(tokens, parent.tokens);
  const auto blocks = this->blocks().first(pool_->blocks_for(shared));
  for (const std::int32_t block : blocks) pool_->share(block);
  std::ranges::copy(blocks, pool_->table(*child).begin());
  pool_->slots_[*child] = {.tokens = shared,
                           .blocks = blocks.size(),
                           .published = std::min(parent.published, shared / pool_->limits_.block_tokens),
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
    : limits_(checked(limits)), prefixes_(limits.blocks, limits.block_tokens, limits.group) {
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

PrefixMatch KvBlockPool::match(std::span<const std::int32_t> ids) const {
  PrefixMatch match;
  const std::size_t size = limits_.block_tokens;
  ids = ids.first(std::min(ids.size(), limits_.tokens_max));
  for (auto chain = prefixes_.root(); (match.blocks + 1) * size <= ids.size(); ++match.blocks) {
    const auto block = prefixes_.find(chain, ids.subspan(match.blocks * size, size));
    if (block == KvPrefixIndex::kNone) break;
    if (references(block) == 0) ++match.idle;
    chain = prefixes_.chain_of(block);
  }
  return match;
}

std::optional<KvSequence> KvBlockPool::open(std::span<const std::int32_t> ids) {
  const auto slot = open_slot();
  if (!slot) return std::nullopt;
  const std::size_t blocks = match(ids).blocks;
  const auto table = this->table(*slot);
  auto chain = prefixes_.root();
  for (std::size_t i = 0; i < blocks; ++i) {
    table[i] = prefixes_.find(chain, ids.subspan(i * limits_.block_tokens, limits_.block_tokens));
    share(table[i]);
    chain = prefixes_.chain_of(table[i]);
  }
  slots_[*slot] = {.tokens = blocks * limits_.block_tokens, .blocks = blocks, .published = blocks, .open = true};
  return KvSequence(*this, *slot);
}

void KvBlockPool::drop_idle() {
  while (prefixes_.idle() > 0) {
    free_blocks_.push_back(prefixes_.evict());  // within its capacity
    ++evictions_;
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

void KvBlockPool::drop(std::int32_t block) noexcept {
  auto& references = references_[static_cast<std::size_t>(block)];
  if (references == 0) {
    ++dropped_twice_;
    return;
  }
  if (--references > 0) return;
  if (prefixes_.holds(block))
    prefixes_.set_idle(block);
  else
    free_blocks_.push_back(block);  // within its capacity
}

/// One more reference to a block in use, or to one of the index.
void KvBlockPool::share(std::int32_t block) {
  if (references_[static_cast<std::size_t>(block)]++ == 0) prefixes_.set_busy(block);
}

/// A free block with one reference; callers have checked that there is one.
std::int32_t KvBlockPool::take() {
  invariant(blocks_free() > 0, "KV-005", "blocks are counted before they are taken");
  std::int32_t block = 0;
  if (free_blocks_.empty()) {
    block = prefixes_.evict();
    ++evictions_;
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

/// Whether the next positions go into a block that others read or can find: what is published stays as it is.
bool KvBlockPool::must_copy(const Slot& slot, std::uint32_t index, std::size_t tokens) const {
  if (tokens == 0 || slot.tokens % limits_.block_tokens == 0) return false;
  const std::int32_t last = table(index)[slot.blocks - 1];
  return references(last) > 1 || prefixes_.holds(last);
}

void KvBlockPool::close(std::uint32_t slot) noexcept {
  for (std::size_t i = slots_[slot].blocks; i > 0; --i) drop(table(slot)[i - 1]);  // idle before its prefix
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
    auto chain = prefixes_.root();
    for (const std::int32_t block : table(i).first(slots_[i].published)) {
      invariant(prefixes_.holds(block) && prefixes_.follows(block, chain), "KV-012",
                "published blocks are of the index, each behind the one before");
      chain = prefixes_.chain_of(block);
    }
  }
  for (const std::int32_t block : held_outside) count(block);
  invariant(dropped_twice_ == 0, "KV-013", "no handle let go of a block that was free");
  invariant(counted == references_, "KV-007", "references are those of the holders");
  invariant(open + free_slots_.size() == slots_.size(), "KV-008", "a sequence is open or free");
  const auto is_idle = std::make_unique<bool[]>(limits_.blocks);
  for (std::size_t i = 0; i < limits_.blocks; ++i)
    is_idle[i] = counted[i] == 0 && prefixes_.holds(static_cast<std::int32_t>(i));
  prefixes_.audit({is_idle.get(), limits_.blocks});
  for (const std::int32_t block : free_blocks_) {
    auto& seen = counted.at(static_cast<std::size_t>(block));
    invariant(seen == 0 && !prefixes_.holds(block), "KV-009", "a block on the free list is free, once");
    seen = 1;
  }
  for (std::size_t i = 0; i < limits_.blocks; ++i)
    if (is_idle[i]) counted[i] = 1;
  invariant(std::ranges::all_of(counted, [](auto n) { return n > 0; }), "KV-010", "no block is lost");
}

}  // namespace forge::runtime

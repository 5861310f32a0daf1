#include "text/constraint/constraint.h"

#include <algorithm>

#include "support/error.h"
#include "text/constraint/regex_syntax.h"

namespace forge::text::constraint {

struct Constraint::Parsed {
  explicit Parsed(const std::string& pattern) : language(parse_regex(*pool, pattern)) {}
  std::unique_ptr<RegularPool> pool = std::make_unique<RegularPool>();
  Expr language;
};

Constraint::Constraint(const std::shared_ptr<CompiledConstraint>& compiled)
    : Constraint(compiled->trie(), Parsed(compiled->pattern())) {}

Constraint::Constraint(std::shared_ptr<const TokenTrie> trie, Parsed parsed)
    : Constraint(std::move(trie), std::move(parsed.pool), parsed.language) {}

Constraint::Constraint(std::shared_ptr<const TokenTrie> trie, std::unique_ptr<RegularPool> pool, Expr language)
    : trie_(std::move(trie)),
      pool_(std::move(pool)),
      dfa_(std::make_unique<RegularDfa>(*pool_)),
      states_{language},
      mask_(trie_->mask_words()) {
  if (pool_->is_empty(language)) throw Error(ErrorCode::kUsage, "the constraint allows no text");
  std::uint32_t longest = 0;
  for (std::size_t band = 0; band < TokenTrie::kBands; ++band) longest = std::max(longest, trie_->longest(band));
  path_.resize(longest + 1);
}

void Constraint::walk(std::span<const TrieNode> nodes, Expr state, Mask& mask) {
  path_[0] = state;
  for (std::size_t at = 0; at < nodes.size();) {
    const auto& node = nodes[at];
    const auto next = dfa_->step(path_[node.depth], node.byte);
    if (next == RegularPool::kEmpty) {
      at += node.nodes;
      continue;
    }
    path_[node.depth + 1U] = next;
    if (node.token >= 0) {
      const auto token = static_cast<std::uint32_t>(node.token);
      mask[token / 32] |= 1U << token % 32;
    }
    ++at;
  }
}

const Constraint::Mask& Constraint::band_mask(std::size_t band, Expr state) {
  const auto key = std::uint64_t{band} << 32 | state;
  if (const auto known = masks_.find(key); known != masks_.end()) return known->second;
  if ((masks_.size() + 1) * trie_->mask_words() * sizeof(std::uint32_t) > kCachedBytesMax) masks_.clear();
  Mask mask(trie_->mask_words());
  walk(trie_->band(band), state, mask);
  return masks_.emplace(key, std::move(mask)).first->second;
}

std::span<const std::uint32_t> Constraint::mask() {
  const auto state = states_.back();
  std::ranges::fill(mask_, 0);
  if (state == RegularPool::kEmpty) return mask_;
  for (std::size_t band = 0; band < TokenTrie::kBands; ++band) {
    if (trie_->band(band).empty()) continue;
    const auto& part = band_mask(band, pool_->within_horizon(state, trie_->longest(band)));
    for (std::size_t i = 0; i < mask_.size(); ++i) mask_[i] |= part[i];
  }
  trie_->add_same(mask_);
  if (can_end())
    for (const auto token : trie_->end_tokens()) {
      const auto id = static_cast<std::uint32_t>(token);
      mask_[id / 32] |= 1U << id % 32;
    }
  return mask_;
}

bool Constraint::accept(std::int32_t token) {
  if (trie_->is_end(token)) {
    if (!can_end()) return false;
    states_.push_back(RegularPool::kEmpty);
    return true;
  }
  const auto bytes = trie_->bytes(token);
  auto state = states_.back();
  if (bytes.empty() || state == RegularPool::kEmpty) return false;
  for (const char byte : bytes) {
    state = dfa_->step(state, static_cast<std::uint8_t>(byte));
    if (state == RegularPool::kEmpty) return false;
  }
  states_.push_back(state);
  return true;
}

void Constraint::roll_back(std::size_t tokens) {
  invariant(tokens < states_.size(), "TXT-003", "tokens taken back that were accepted");
  states_.resize(states_.size() - tokens);
}

std::string Constraint::forced(std::size_t bytes_max) {
  std::string text;
  auto state = states_.back();
  while (text.size() < bytes_max && state != RegularPool::kEmpty && !pool_->nullable(state)) {
    Expr next = RegularPool::kEmpty;
    std::uint8_t forced = 0;
    unsigned ways = 0;
    for (unsigned byte = 0; byte < 256 && ways < 2; ++byte) {
      const auto one = static_cast<std::uint8_t>(byte);
      if (!pool_->first(state).has(one)) continue;
      const auto after = dfa_->step(state, one);
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

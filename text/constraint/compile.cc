#include "text/constraint/compile.h"

#include <algorithm>
#include <bit>

#include "support/error.h"
#include "text/constraint/call_language.h"
#include "text/constraint/gbnf.h"
#include "text/constraint/regex_syntax.h"
#include "text/constraint/schema/schema.h"

namespace forge::text::constraint {

CompiledConstraint::CompiledConstraint(ConstraintSource source, std::shared_ptr<const TokenTrie> trie)
    : source_(std::move(source)), trie_(std::move(trie)) {
  std::uint32_t longest = 0;
  for (std::size_t band = 0; band < TokenTrie::kBands; ++band) longest = std::max(longest, trie_->longest(band));
  path_.resize(longest + 1);
  build();
}

void CompiledConstraint::build() {
  ++generation_;
  built_ = false;
  masks_.clear();
  dfa_.reset();
  language_ = {};
  pool_ = std::make_unique<RegularPool>();
  dfa_ = std::make_unique<RegularDfa>(*pool_);
  switch (source_.syntax) {
    case ConstraintSyntax::kRegex:
      language_.start = parse_regex(*pool_, source_.text);
      break;
    case ConstraintSyntax::kGbnf:
      language_ = parse_gbnf(*pool_, source_.text);
      break;
    case ConstraintSyntax::kJsonSchema:
      language_ = compile_schema(*pool_, source_.text);
      break;
    case ConstraintSyntax::kCalls:
      language_ = compile_calls(*pool_, source_.text);
      break;
  }
  if (pool_->is_empty(language_.start)) throw Error(ErrorCode::kUsage, "the constraint allows no text");
  built_ = true;
}

std::size_t CompiledConstraint::memory_bytes() {
  const std::scoped_lock lock(mutex_);
  return pool_->memory_bytes() + masks_.size() * trie_->mask_words() * sizeof(std::uint32_t);
}

void CompiledConstraint::walk(std::span<const TrieNode> nodes, Expr state, Mask& mask) {
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

const CompiledConstraint::Mask& CompiledConstraint::band_mask(std::size_t band, Expr state) {
  const auto key = std::uint64_t{band} << 32 | state;
  if (const auto known = masks_.find(key); known != masks_.end()) return known->second;
  if ((masks_.size() + 1) * trie_->mask_words() * sizeof(std::uint32_t) > kCachedBytesMax) masks_.clear();
  Mask mask(trie_->mask_words());
  if (pool_->is_open(state, trie_->longest(band))) {
    mask = trie_->text_mask(band);
  } else {
    walk(trie_->band(band, TokenTrie::Kind::kText), state, mask);
  }
  walk(trie_->band(band, TokenTrie::Kind::kOther), state, mask);
  return masks_.emplace(key, std::move(mask)).first->second;
}

void CompiledConstraint::add_bands(Expr state, std::span<std::uint32_t> mask) {
  for (std::size_t band = 0; band < TokenTrie::kBands; ++band) {
    if (trie_->longest(band) == 0) continue;
    const auto& part = band_mask(band, pool_->within_horizon(state, trie_->longest(band)));
    for (std::size_t i = 0; i < mask.size(); ++i) mask[i] |= part[i];
  }
}

/// Each captured text is a state of its own, so masks are computed without it: exactly for the tokens that do not pass
/// the end of the capture, and for the few others by trying those that might.
void CompiledConstraint::add_captured(Expr state, std::span<std::uint32_t> mask) {
  Mask possible(mask.size());
  add_bands(pool_->without_captures(state, true), possible);
  add_bands(pool_->without_captures(state, false), mask);
  for (std::size_t i = 0; i < mask.size(); ++i)
    for (auto open = possible[i] & ~mask[i]; open != 0; open &= open - 1) {
      const auto bit = static_cast<std::size_t>(std::countr_zero(open));
      if (after(state, trie_->bytes(static_cast<std::int32_t>(i * 32 + bit))) != RegularPool::kEmpty)
        mask[i] |= 1U << bit;
    }
}

Expr CompiledConstraint::after(Expr state, std::string_view bytes) {
  for (const char byte : bytes) {
    if (state == RegularPool::kEmpty) break;
    state = dfa_->step(state, static_cast<std::uint8_t>(byte));
  }
  return state;
}

void CompiledConstraint::add_mask(Expr state, std::span<std::uint32_t> mask) {
  if (state == RegularPool::kEmpty) return;
  if (pool_->captures(state)) {
    add_captured(state, mask);
  } else {
    add_bands(state, mask);
  }
  trie_->add_same(mask);
  if (!pool_->nullable(state)) return;
  for (const auto token : trie_->end_tokens()) {
    const auto id = static_cast<std::uint32_t>(token);
    mask[id / 32] |= 1U << id % 32;
  }
}

std::shared_ptr<CompiledConstraint> compile(const ConstraintSource& source, std::shared_ptr<const TokenTrie> trie) {
  return std::make_shared<CompiledConstraint>(source, std::move(trie));
}

}  // namespace forge::text::constraint

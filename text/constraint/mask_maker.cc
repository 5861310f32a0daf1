#include "text/constraint/mask_maker.h"

#include <algorithm>
#include <bit>

namespace forge::text::constraint {
namespace {

void set_all(std::span<std::uint32_t> mask, std::span<const std::uint32_t> more) {
  for (std::size_t i = 0; i < mask.size(); ++i) mask[i] |= more[i];
}

}  // namespace

MaskMaker::MaskMaker(RegularPool& pool, RegularDfa& dfa, const TokenTrie& trie)
    : pool_(pool), dfa_(dfa), trie_(trie), path_(trie.strings().longest + 1U) {}

std::size_t MaskMaker::memory_bytes() const {
  return masks_.size() * trie_.mask_words() * sizeof(std::uint32_t);
}

Expr MaskMaker::after(Expr state, std::string_view bytes) {
  for (const char byte : bytes) {
    if (state == RegularPool::kEmpty) break;
    state = dfa_.step(state, static_cast<std::uint8_t>(byte));
  }
  return state;
}

void MaskMaker::walk(std::span<const TrieNode> nodes, Expr state, std::span<std::uint32_t> mask) {
  walk_from(nodes, 0, state, [&](std::int32_t token) { allow(mask, static_cast<std::size_t>(token)); });
}

/// Calls `found` for the tokens of `nodes`, which stand at `depth`, that lead from `state` to one with an end.
template <class Found>
void MaskMaker::walk_from(std::span<const TrieNode> nodes, std::uint32_t depth, Expr state, Found&& found) {
  if (pool_.begins_with_choice(state)) {
    const auto split = pool_.split_choice(state);
    walk_choice(nodes, split, found);
    return walk_from(nodes, depth, split.others, found);
  }
  if (state == RegularPool::kEmpty) return;
  path_[depth] = state;
  for (std::size_t at = 0; at < nodes.size();) {
    const auto& node = nodes[at];
    const auto next = dfa_.step(path_[node.depth], node.byte);
    if (next == RegularPool::kEmpty) {
      at += node.nodes;
      continue;
    }
    if (node.token >= 0) found(node.token);
    if (node.nodes > 1 && pool_.begins_with_choice(next)) {
      walk_from(nodes.subspan(at + 1, node.nodes - 1U), node.depth + 1U, next, found);
      at += node.nodes;
      continue;
    }
    path_[node.depth + 1U] = next;
    ++at;
  }
}

template <class Found>
void MaskMaker::walk_choice(std::span<const TrieNode> nodes, const RegularPool::ChoiceSplit& split, Found&& found) {
  const auto state = *pool_.choice_state(split.choice);
  const auto& both = program(nodes, state);
  for (const auto& [token, begin, end] : both.tokens) {
    const auto from = state.left->begin();
    if (std::find(from + begin, from + end, true) != from + end) found(token);
  }
  for (const auto& [below, depth, word] : both.ends)
    if ((*state.left)[word]) walk_from(below, depth, pool_.concat(pool_.chosen(split.choice, word), split.tail), found);
}

const MaskMaker::ChoiceProgram& MaskMaker::program(std::span<const TrieNode> nodes,
                                                   const RegularPool::ChoiceState& state) {
  if (programs_.size() > kProgramsMax) programs_.clear();
  const auto [known, is_new] =
      programs_.try_emplace({nodes.data(), state.words->get(), state.begin, state.depth}, ChoiceProgram());
  auto& both = known->second;
  if (!is_new) return both;
  const auto& words = **state.words;
  struct Range {
    std::uint32_t begin, end;
  };
  std::vector<Range> ranges{{state.begin, state.end}};  // of the words, before each depth
  const std::uint32_t base = nodes.empty() ? 0 : nodes[0].depth;
  for (std::size_t at = 0; at < nodes.size();) {
    const auto& node = nodes[at];
    const auto depth = state.depth + node.depth - base;  // in the words
    const auto [begin, end] = ranges[node.depth - base];
    const auto byte_at = [&](const std::string& word) { return static_cast<std::uint8_t>(word[depth]); };
    const auto in = std::ranges::equal_range(words.begin() + begin, words.begin() + end, node.byte, {}, byte_at);
    if (in.empty()) {
      at += node.nodes;
      continue;
    }
    const auto first = static_cast<std::uint32_t>(in.begin() - words.begin());
    const auto last = static_cast<std::uint32_t>(in.end() - words.begin());
    if (node.token >= 0) both.tokens.push_back({node.token, first, last});
    if (words[first].size() == depth + 1U) {  // and no other word begins with it
      if (node.nodes > 1) both.ends.push_back({nodes.subspan(at + 1, node.nodes - 1U), node.depth + 1U, first});
      at += node.nodes;
      continue;
    }
    ranges.resize(node.depth - base + 1U);
    ranges.push_back({first, last});
    ++at;
  }
  return both;
}

template <class Make>
const MaskMaker::Mask& MaskMaker::kept(std::uint64_t kind, Expr state, Make make) {
  const auto key = kind << 32 | state;
  if (const auto known = masks_.find(key); known != masks_.end()) return known->second;
  if ((masks_.size() + 1) * trie_.mask_words() * sizeof(std::uint32_t) > kCachedBytesMax) masks_.clear();
  Mask mask(trie_.mask_words());
  make(mask);
  return masks_.emplace(key, std::move(mask)).first->second;
}

void MaskMaker::add_bands(Expr state, std::span<std::uint32_t> mask) {
  for (std::size_t band = 0; band < TokenTrie::kBands; ++band) {
    const auto longest = trie_.longest(band);
    if (longest == 0) continue;
    const auto near = pool_.within_horizon(state, longest);
    set_all(mask, kept(band, near, [&](Mask& part) {
              if (pool_.is_open(near, longest)) {
                part = trie_.text_mask(band);
              } else {
                walk(trie_.band(band, TokenTrie::Kind::kText), near, part);
              }
              walk(trie_.band(band, TokenTrie::Kind::kOther), near, part);
            }));
  }
}

/// Inside a string, tokens that stay in it depend on how many characters may come, those that pass its quote on what
/// follows: apart, both are cheap. False if `state` is no such state.
bool MaskMaker::add_string(Expr state, std::span<std::uint32_t> mask) {
  const auto in = pool_.string_state(state);
  if (!in) return false;
  const auto& strings = trie_.strings();
  const auto max = in->max < strings.longest ? in->max : kUnbounded;
  if (max < strings.texts_to.size() - 1) {
    set_all(mask, strings.texts_to.at(max));
  } else {
    set_all(mask, strings.texts_to.back());
    for (auto text = strings.texts.rbegin(); text != strings.texts.rend() && text->characters > max; ++text)
      mask[static_cast<std::size_t>(text->token) / 32] &= ~(1U << text->token % 32);
  }
  const auto inside = pool_.concat(pool_.repeat(in->item, 0, max), pool_.literal("\""));
  set_all(mask, kept(kInside, inside, [&](Mask& part) { walk(strings.inside, inside, part); }));
  const auto add_quoted = [&](std::int32_t rest) {
    const auto& tokens = strings.quoted[static_cast<std::size_t>(rest)];
    auto from = std::ranges::lower_bound(tokens, in->min, {}, &TokenTrie::Quoted::characters);
    for (; from != tokens.end() && from->characters <= max; ++from) allow(mask, static_cast<std::size_t>(from->token));
  };
  add_quoted(0);
  walk_from(strings.rests, 0, in->rest, add_quoted);
  walk(strings.escaped, state, mask);
  return true;
}

/// Each captured text is a state of its own, so masks are computed without it: exactly for the tokens that do not pass
/// the end of the capture, and for the few others by trying those that might.
void MaskMaker::add_captured(Expr state, std::span<std::uint32_t> mask) {
  Mask possible(mask.size());
  add_part(pool_.without_captures(state, true), possible);
  add_part(pool_.without_captures(state, false), mask);
  for (std::size_t i = 0; i < mask.size(); ++i)
    for (auto open = possible[i] & ~mask[i]; open != 0; open &= open - 1) {
      const auto token = static_cast<std::int32_t>(i * 32 + static_cast<unsigned>(std::countr_zero(open)));
      if (after(state, trie_.bytes(token)) != RegularPool::kEmpty) allow(mask, static_cast<std::size_t>(token));
    }
}

void MaskMaker::add_part(Expr state, std::span<std::uint32_t> mask) {
  if (state == RegularPool::kEmpty) return;
  if (pool_.begins_with_choice(state)) {
    const auto split = pool_.split_choice(state);
    for (std::size_t band = 0; band < TokenTrie::kBands; ++band)
      for (const auto kind : {TokenTrie::Kind::kText, TokenTrie::Kind::kOther})
        if (const auto nodes = trie_.band(band, kind); !nodes.empty())
          walk_choice(nodes, split, [&](std::int32_t token) { allow(mask, static_cast<std::size_t>(token)); });
    return add_part(split.others, mask);
  }
  if (!add_string(state, mask)) add_bands(state, mask);
}

void MaskMaker::add(Expr state, std::span<std::uint32_t> mask) {
  if (state == RegularPool::kEmpty) return;
  if (pool_.captures(state)) {
    add_captured(state, mask);
  } else {
    add_part(state, mask);
  }
  trie_.add_same(mask);
  if (!pool_.nullable(state)) return;
  for (const auto token : trie_.end_tokens()) allow(mask, static_cast<std::size_t>(token));
}

}  // namespace forge::text::constraint

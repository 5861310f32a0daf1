// Choices among words: the keys of an object. Their words lie sorted in a table that all states of the object share, so
// a state is the words left, those that begin with what was read, and how much was read.

#include <algorithm>
#include <utility>

#include "text/constraint/regular.h"

namespace forge::text::constraint {
namespace {

/// The words from `from` on that have the first `depth` bytes of its: how far they reach. `back`: the other way.
std::uint32_t same_until(const std::vector<std::string>& words, std::uint32_t from, std::uint32_t depth) {
  const auto& first = words[from];
  const auto end = std::partition_point(words.begin() + from, words.end(), [&](const std::string& word) {
    return word.compare(0, depth, first, 0, depth) == 0;
  });
  return static_cast<std::uint32_t>(end - words.begin());
}
std::uint32_t same_since(const std::vector<std::string>& words, std::uint32_t from, std::uint32_t depth) {
  const auto& last = words[from];
  const auto begin = std::partition_point(words.begin(), words.begin() + from, [&](const std::string& word) {
    return word.compare(0, depth, last, 0, depth) != 0;
  });
  return static_cast<std::uint32_t>(begin - words.begin());
}

}  // namespace

Expr RegularPool::choice(Words words, std::vector<bool> left, std::function<Expr(std::uint32_t)> then) {
  const auto first = std::ranges::find(left, true);
  if (first == left.end()) return kEmpty;
  const auto word = static_cast<std::uint32_t>(first - left.begin());
  choices_.push_back({std::move(words), std::move(left), std::move(then), scope_});
  return choice_at(static_cast<std::uint32_t>(choices_.size() - 1), word, 0);
}

/// The state after `depth` bytes of `word`, the first word left that begins with them. Precondition: it is longer.
Expr RegularPool::choice_at(std::uint32_t number, std::uint32_t word, std::uint32_t depth) {
  const auto& choice = choices_[number];
  const auto& words = *choice.words;
  Node node{.a = number, .b = word, .c = depth, .min = kMinMax, .op = Op::kChoice};
  node.finite = false;
  node.chooses = true;
  ByteSet first;
  for (auto at = word, end = same_until(words, word, depth); at < end; ++at) {
    if (!choice.left[at]) continue;
    first.add(static_cast<std::uint8_t>(words[at][depth]));
    node.min = std::min(node.min, static_cast<std::uint32_t>(words[at].size()) - depth);
  }
  node.first = set_number(first);
  return intern(node);
}

Expr RegularPool::derivative_of_choice(Expr expr, std::uint8_t byte) {
  const auto node = nodes_[expr];
  const auto& choice = choices_[node.a];
  const auto& words = *choice.words;
  const auto depth = node.c;
  for (auto at = node.b, end = same_until(words, node.b, depth); at < end; ++at) {
    if (!choice.left[at] || static_cast<std::uint8_t>(words[at][depth]) != byte) continue;
    return words[at].size() == depth + 1 ? chosen(expr, at) : choice_at(node.a, at, depth + 1);
  }
  return kEmpty;
}

std::optional<RegularPool::ChoiceState> RegularPool::choice_state(Expr expr) const {
  const auto& node = nodes_[expr];
  if (node.op != Op::kChoice) return std::nullopt;
  const auto& choice = choices_[node.a];
  return ChoiceState{.words = &choice.words,
                     .left = &choice.left,
                     .begin = same_since(*choice.words, node.b, node.c),
                     .end = same_until(*choice.words, node.b, node.c),
                     .depth = node.c};
}

Expr RegularPool::chosen(Expr expr, std::uint32_t word) {
  const auto& choice = choices_[nodes_[expr].a];
  const auto then = choice.then;  // a copy: it may make choices
  const auto before = std::exchange(scope_, choice.scope);
  const auto rest = then(word);
  scope_ = before;
  return rest;
}

RegularPool::ChoiceSplit RegularPool::split_choice(Expr expr) {
  const auto node = nodes_[expr];
  if (node.op == Op::kChoice) return {.choice = expr, .tail = kEpsilon, .others = kEmpty};
  if (node.op == Op::kConcat) {
    auto split = split_choice(node.a);
    split.tail = concat(split.tail, node.b);
    split.others = concat(split.others, node.b);
    return split;
  }
  ChoiceSplit split{.choice = kEmpty, .tail = kEmpty, .others = kEmpty};
  std::vector<Expr> others;
  for (std::uint32_t i = 0; i < node.b; ++i) {
    const auto arg = args_[node.a + i];
    if (split.choice == kEmpty && nodes_[arg].chooses) {
      split = split_choice(arg);
      others.push_back(split.others);
    } else {
      others.push_back(arg);
    }
  }
  split.others = or_(others);
  return split;
}

}  // namespace forge::text::constraint

#include "text/constraint/regex_tree.h"

#include <map>
#include <tuple>

namespace forge::text::constraint {
namespace {

using Kind = RegexNode::Kind;

/// What an expression matches where the text begins before it (`at_start`) or ends behind it (`at_end`), or not. The
/// empty word and the others are kept apart: what stands beside an empty match is still at the border.
struct Match {
  bool empty = false;
  Expr words = RegularPool::kEmpty;
};

class Resolver {
 public:
  explicit Resolver(RegularPool& pool) : pool_(pool) {}

  Expr all(const RegexNode& node, bool at_start, bool at_end) {
    if (!node.anchored()) return node.language;
    if (node.kind == Kind::kConcat) return concatenation(node, at_start, at_end);
    if (node.kind != Kind::kOr) return joined(resolve(node, at_start, at_end));
    std::vector<Expr> parts;
    for (const auto& part : node.parts) parts.push_back(all(part, at_start, at_end));
    return pool_.or_(parts);
  }

 private:
  Expr joined(const Match& match) {
    return match.empty ? pool_.or_({RegularPool::kEpsilon, match.words}) : match.words;
  }

  /// The common case without a split: anchors only where a concatenation is at the border.
  Expr concatenation(const RegexNode& node, bool at_start, bool at_end) {
    std::size_t from = 0, to = node.parts.size();
    while (from < to && at_start && node.parts[from].kind == Kind::kStart) ++from;
    while (from < to && at_end && node.parts[to - 1].kind == Kind::kEnd) --to;
    if (to - from == 1) return all(node.parts[from], at_start, at_end);
    bool anchored = false;
    for (auto i = from; i < to; ++i) anchored |= node.parts[i].anchored();
    if (anchored) return joined(resolve(node, at_start, at_end));
    Expr expr = RegularPool::kEpsilon;
    for (auto i = to; i > from; --i) expr = pool_.concat(node.parts[i - 1].language, expr);
    return expr;
  }

  Match resolve(const RegexNode& node, bool at_start, bool at_end) {
    if (node.kind == Kind::kStart) return {.empty = at_start};
    if (node.kind == Kind::kEnd) return {.empty = at_end};
    if (!node.anchored()) return {pool_.nullable(node.language), pool_.without_epsilon(node.language)};
    const auto key = std::tuple(&node, at_start, at_end);
    if (const auto known = known_.find(key); known != known_.end()) return known->second;
    Match match;
    if (node.kind == Kind::kConcat) {
      match = sequence(node.parts, at_start, at_end);
    } else if (node.kind == Kind::kRepeat) {
      match = repeated(node, at_start, at_end);
    } else {
      std::vector<Expr> words;
      for (const auto& part : node.parts) {
        const auto one = resolve(part, at_start, at_end);
        match.empty |= one.empty;
        words.push_back(one.words);
      }
      match.words = pool_.or_(words);
    }
    known_.emplace(key, match);
    return match;
  }

  Match sequence(const std::vector<RegexNode>& parts, bool at_start, bool at_end) {
    // Right to left: what the parts from i on match, behind something and (the second) behind nothing.
    Match rest[2] = {{.empty = true}, {.empty = true}};
    for (auto i = parts.size(); i > 0; --i) {
      Match next[2];
      for (const bool start : {false, true}) {
        if (start && !at_start) continue;
        const auto &behind_words = rest[0], &behind_nothing = rest[start ? 1 : 0];
        const Match inner = resolve(parts[i - 1], start, false), last = resolve(parts[i - 1], start, at_end);
        next[start ? 1 : 0] = {last.empty && behind_nothing.empty,
                               pool_.or_({inner.empty ? behind_nothing.words : RegularPool::kEmpty,
                                          behind_words.empty ? last.words : RegularPool::kEmpty,
                                          pool_.concat(inner.words, behind_words.words)})};
      }
      rest[0] = next[0];
      rest[1] = next[1];
    }
    return rest[at_start ? 1 : 0];
  }

  /// A word is one word of the part, or a first one, any number of inner ones and a last one. Matches of the part that
  /// are empty change nothing, but count: with one at hand, fewer words than `min` are enough.
  Match repeated(const RegexNode& node, bool at_start, bool at_end) {
    const auto& part = node.parts[0];
    if (node.max == 0) return {.empty = true};
    const auto only = resolve(part, at_start, at_end), first = resolve(part, at_start, false);
    const auto inner = resolve(part, false, false), last = resolve(part, false, at_end);
    const auto min = first.empty || last.empty ? 0 : node.min;
    auto words = min <= 1 ? only.words : RegularPool::kEmpty;
    if (node.max > 1) {
      const auto middle =
          pool_.repeat(inner.words, min < 2 ? 0 : min - 2, node.max == kUnbounded ? kUnbounded : node.max - 2);
      words = pool_.or_({words, pool_.concat(first.words, pool_.concat(middle, last.words))});
    }
    return {node.min == 0 || only.empty, words};
  }

  RegularPool& pool_;
  std::map<std::tuple<const RegexNode*, bool, bool>, Match> known_;
};

}  // namespace

Expr language_of(RegularPool& pool, const RegexNode& root) {
  return Resolver(pool).all(root, true, true);
}

}  // namespace forge::text::constraint

#include "text/constraint/grammar_rules.h"

#include <fmt/core.h>

#include <algorithm>

#include "support/error.h"

namespace forge::text::constraint {
namespace {

using RuleKind = GrammarNode::Kind;

constexpr std::uint32_t kInlineWeight = 100;  ///< nodes of a rule that is put in place; keeps doubling rules small
constexpr std::uint32_t kLeftDepthMax = 400;  ///< rules that begin with each other; a derivative recurses over them

class RulesBuilder {
 public:
  RulesBuilder(RegularPool& pool, const std::vector<GrammarRule>& rules)
      : pool_(pool), rules_(rules), facts_(rules.size()), exprs_(rules.size(), RegularPool::kEmpty) {}

  Expr build(std::uint32_t start) {
    solve_facts();
    if (!facts_[start].productive) return RegularPool::kEmpty;
    for (std::uint32_t i = 0; i < rules_.size(); ++i) left_depth(i);
    find_recursive();
    for (std::uint32_t i = 0; i < rules_.size(); ++i)
      if (is_call(i)) exprs_[i] = pool_.call({.first = facts_[i].first, .min = facts_[i].nullable ? 0U : 1U});
    // Rules in place come after those that they name: `order_` is a postorder.
    for (const auto i : order_)
      if (!is_call(i)) exprs_[i] = expr_of(rules_[i].root);
    for (std::uint32_t i = 0; i < rules_.size(); ++i)
      if (is_call(i)) pool_.define(exprs_[i], expr_of(rules_[i].root));
    return exprs_[start];
  }

 private:
  struct Facts {
    bool nullable = false, productive = false, recursive = false, visited = false;
    std::uint32_t weight = 0, left_depth = 0;
    ByteSet first;
  };
  static constexpr std::uint32_t kOpen = UINT32_MAX;

  bool is_call(std::uint32_t rule) const {
    const auto& facts = facts_[rule];
    return facts.productive && (facts.recursive || facts.weight > kInlineWeight);
  }

  /// A fact that holds of a sequence if it holds of all its parts, and of alternatives if it holds of one.
  /// of_language(Expr): whether it holds of a language.
  template <class OfLanguage>
  bool holds(const GrammarNode& node, bool Facts::* fact, const OfLanguage& of_language) const {
    const auto of_part = [&](const auto& part) { return holds(part, fact, of_language); };
    switch (node.kind) {
      case RuleKind::kLanguage:
        return of_language(node.language);
      case RuleKind::kRule:
        return facts_[node.rule].*fact;
      case RuleKind::kConcat:
        return std::ranges::all_of(node.parts, of_part);
      case RuleKind::kOr:
        return std::ranges::any_of(node.parts, of_part);
      case RuleKind::kRepeat:
        break;
    }
    return node.min == 0 || of_part(node.parts[0]);
  }
  bool nullable(const GrammarNode& node) const {
    return holds(node, &Facts::nullable, [&](Expr language) { return pool_.nullable(language); });
  }
  bool productive(const GrammarNode& node) const {
    return holds(node, &Facts::productive, [](Expr language) { return language != RegularPool::kEmpty; });
  }

  ByteSet first(const GrammarNode& node) const {
    ByteSet set;
    switch (node.kind) {
      case RuleKind::kLanguage:
        return pool_.first(node.language);
      case RuleKind::kRule:
        return facts_[node.rule].first;
      case RuleKind::kConcat:
        for (const auto& part : node.parts) {
          set |= first(part);
          if (!nullable(part)) break;
        }
        return set;
      case RuleKind::kOr:
        for (const auto& part : node.parts) set |= first(part);
        return set;
      case RuleKind::kRepeat:
        break;
    }
    return first(node.parts[0]);
  }

  /// Least fixed points of what depends on other rules. A rule is looked at again when one that it names has changed.
  void solve_facts() {
    std::vector<std::vector<std::uint32_t>> named_by(rules_.size());
    std::vector<std::uint32_t> open(rules_.size());
    std::vector<bool> is_open(rules_.size(), true);
    for (std::uint32_t i = 0; i < rules_.size(); ++i) {
      std::vector<std::uint32_t> named;
      collect(rules_[i].root, named);
      for (const auto rule : named) named_by[rule].push_back(i);
      open[i] = i;
    }
    while (!open.empty()) {
      const auto i = open.back();
      open.pop_back();
      is_open[i] = false;
      pool_.spend();
      auto& facts = facts_[i];
      const auto& root = rules_[i].root;
      const auto set = first(root);
      const bool is_nullable = facts.nullable || nullable(root), is_productive = facts.productive || productive(root);
      if (is_nullable == facts.nullable && is_productive == facts.productive && set == facts.first) continue;
      facts.nullable = is_nullable;
      facts.productive = is_productive;
      facts.first = set;
      for (const auto rule : named_by[i]) {
        if (!is_open[rule]) open.push_back(rule);
        is_open[rule] = true;
      }
    }
  }

  /// How many rules deep the beginning of a rule goes. Refuses a rule that begins with itself.
  std::uint32_t left_depth(std::uint32_t rule) {
    auto& facts = facts_[rule];
    if (facts.left_depth == kOpen)
      throw Error(ErrorCode::kUsage, fmt::format("grammar, rule {}", printable(rules_[rule].name)),
                  "left recursion is not supported", "let the rule begin with something else than itself");
    if (facts.left_depth != 0) return facts.left_depth;
    facts.left_depth = kOpen;
    if (++left_open_ > kLeftDepthMax) fail_depth();
    const auto depth = left_depth(rules_[rule].root) + 1;
    --left_open_;
    return facts_[rule].left_depth = depth;
  }
  [[noreturn]] static void fail_depth() {
    throw Error(ErrorCode::kUsage, "grammar", fmt::format("more than {} rules begin with each other", kLeftDepthMax));
  }

  std::uint32_t left_depth(const GrammarNode& node) {
    if (node.kind == RuleKind::kRule) return left_depth(node.rule);
    std::uint32_t depth = 0;
    for (const auto& part : node.parts) {
      depth = std::max(depth, left_depth(part));
      if (node.kind == RuleKind::kConcat && !nullable(part)) break;
    }
    return depth;
  }

  /// Marks the rules of cycles (a rule that is reached again while it is open, and all rules opened since), counts the
  /// nodes of the others. Iterative: chains of rules may be long.
  void find_recursive() {
    struct Open {
      std::uint32_t rule;
      std::vector<std::uint32_t> named;
      std::size_t at = 0;
    };
    std::vector<std::uint32_t> place(rules_.size(), kOpen);
    for (std::uint32_t root = 0; root < rules_.size(); ++root) {
      if (facts_[root].visited) continue;
      std::vector<Open> open;
      const auto enter = [&](std::uint32_t rule) {
        facts_[rule].visited = true;
        place[rule] = static_cast<std::uint32_t>(open.size());
        open.push_back({.rule = rule, .named = {}});
        collect(rules_[rule].root, open.back().named);
      };
      enter(root);
      while (!open.empty()) {
        auto& top = open.back();
        if (top.at == top.named.size()) {
          facts_[top.rule].weight = weight(rules_[top.rule].root);
          order_.push_back(top.rule);
          place[top.rule] = kOpen;
          open.pop_back();
          continue;
        }
        const auto next = top.named[top.at++];
        if (place[next] != kOpen)
          for (auto i = place[next]; i < open.size(); ++i) facts_[open[i].rule].recursive = true;
        if (!facts_[next].visited) enter(next);
      }
    }
  }

  static void collect(const GrammarNode& node, std::vector<std::uint32_t>& named) {
    if (node.kind == RuleKind::kRule) named.push_back(node.rule);
    for (const auto& part : node.parts) collect(part, named);
  }

  std::uint32_t weight(const GrammarNode& node) const {
    if (node.kind == RuleKind::kRule) return is_call(node.rule) ? 1 : facts_[node.rule].weight;
    std::uint32_t sum = 1;
    for (const auto& part : node.parts) sum = std::min(sum + weight(part), kInlineWeight * 2);
    return sum;
  }

  Expr expr_of(const GrammarNode& node) {
    switch (node.kind) {
      case RuleKind::kLanguage:
        return node.language;
      case RuleKind::kRule:
        return exprs_[node.rule];
      case RuleKind::kConcat: {
        Expr expr = RegularPool::kEpsilon;
        for (auto part = node.parts.rbegin(); part != node.parts.rend(); ++part) {
          expr = pool_.concat(expr_of(*part), expr);
        }
        return expr;
      }
      case RuleKind::kOr: {
        std::vector<Expr> parts;
        for (const auto& part : node.parts) parts.push_back(expr_of(part));
        return pool_.or_(parts);
      }
      case RuleKind::kRepeat:
        break;
    }
    return pool_.repeat(expr_of(node.parts[0]), node.min, node.max);
  }

  RegularPool& pool_;
  const std::vector<GrammarRule>& rules_;
  std::vector<Facts> facts_;
  std::vector<Expr> exprs_;
  std::vector<std::uint32_t> order_;
  std::uint32_t left_open_ = 0;
};

}  // namespace

Expr language_of(RegularPool& pool, const std::vector<GrammarRule>& rules, std::uint32_t start) {
  return RulesBuilder(pool, rules).build(start);
}

}  // namespace forge::text::constraint

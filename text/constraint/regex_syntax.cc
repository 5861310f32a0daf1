#include "text/constraint/regex_syntax.h"

#include <fmt/core.h>

#include "support/error.h"
#include "text/constraint/code_ranges.h"
#include "text/constraint/regex_class.h"
#include "text/constraint/regex_tree.h"

namespace forge::text::constraint {
namespace {

using Kind = RegexNode::Kind;

class Parser {
 public:
  Parser(RegularPool& pool, std::string_view pattern, bool either) : pool_(pool), in_(pattern, either) {}

  RegexNode whole() {
    if (in_.peek() == '^' && in_.peek(1) == '(' && in_.peek(2) == '?' && (in_.peek(3) == '=' || in_.peek(3) == '!'))
      return behind_conditions();
    auto node = alternatives(0);
    if (!in_.done()) in_.fail("a ) without its (");
    return node;
  }
  /// What every text must satisfy besides.
  [[nodiscard]] const std::vector<Expr>& conditions() const { return conditions_; }

 private:
  /// Look-ahead at the beginning of the text says something of all of it, so it is an intersection. Elsewhere it would
  /// depend on what has been read.
  RegexNode behind_conditions() {
    (void)in_.take("^");
    for (;;) {
      const bool is_negative = in_.take("(?!");
      if (!is_negative && !in_.take("(?=")) break;
      RegexNode begins{.kind = Kind::kConcat};
      begins.parts.push_back({.kind = Kind::kStart});
      if (is_negative) in_.negate();
      begins.parts.push_back(alternatives(1));
      if (is_negative) in_.negate();
      begins.parts.push_back(language(pool_.star(any_character(pool_))));
      if (!in_.take(")")) in_.fail("a group ( is not closed");
      const auto texts = language_of(pool_, begins);
      conditions_.push_back(is_negative ? pool_.not_(texts) : texts);
    }
    RegexNode node{.kind = Kind::kConcat};
    node.parts.push_back({.kind = Kind::kStart});
    node.parts.push_back(concatenation(0));
    if (node.parts[1].kind == Kind::kConcat) {
      auto parts = std::move(node.parts[1].parts);
      node.parts.pop_back();
      for (auto& part : parts) node.parts.push_back(std::move(part));
    }
    if (in_.take("|")) in_.fail("look-ahead beside alternatives is not supported");
    if (!in_.done()) in_.fail("a ) without its (");
    return node;
  }

  static RegexNode language(Expr expr) { return {.language = expr}; }

  RegexNode alternatives(unsigned depth) {
    if (depth > kRegexDepthMax) in_.fail(fmt::format("more than {} groups inside groups", kRegexDepthMax));
    std::vector<RegexNode> parts;
    bool anchored = false;
    do {
      parts.push_back(concatenation(depth));
      anchored |= parts.back().anchored();
    } while (in_.take("|"));
    if (parts.size() == 1) return std::move(parts[0]);
    if (anchored) return {.kind = Kind::kOr, .parts = std::move(parts)};
    std::vector<Expr> languages;
    languages.reserve(parts.size());
    for (const auto& part : parts) languages.push_back(part.language);
    return language(pool_.or_(languages));
  }

  RegexNode concatenation(unsigned depth) {
    std::vector<RegexNode> parts;
    bool anchored = false;
    while (!in_.done() && in_.peek() != '|' && in_.peek() != ')') {
      parts.push_back(quantified(depth));
      anchored |= parts.back().anchored();
    }
    if (parts.size() == 1) return std::move(parts[0]);
    if (anchored) return {.kind = Kind::kConcat, .parts = std::move(parts)};
    Expr expr = RegularPool::kEpsilon;
    for (auto at = parts.rbegin(); at != parts.rend(); ++at) expr = pool_.concat(at->language, expr);
    return language(expr);
  }

  RegexNode quantified(unsigned depth) {
    auto node = atom(depth);
    const bool is_anchor = node.kind == Kind::kStart || node.kind == Kind::kEnd;
    std::uint32_t min = 0, max = kUnbounded;
    if (in_.take("*")) {
    } else if (in_.take("+")) {
      min = 1;
    } else if (in_.take("?")) {
      max = 1;
    } else if (in_.take("{")) {
      if (!is_digit(in_.peek())) in_.fail("a { that begins no quantifier; write \\{ for the character");
      min = max = in_.number();
      if (in_.take(",")) max = is_digit(in_.peek()) ? in_.number() : kUnbounded;
      if (!in_.take("}")) in_.fail("a quantifier { is not closed");
      if (max < min) in_.fail("the counts of a quantifier are out of order");
    } else {
      return node;
    }
    in_.take("?");  // lazy: the same language
    if (is_anchor) in_.fail("nothing to repeat");
    if (!node.anchored()) return language(pool_.repeat(node.language, min, max));
    RegexNode repeat{.kind = Kind::kRepeat, .min = min, .max = max};
    repeat.parts.push_back(std::move(node));
    return repeat;
  }

  RegexNode atom(unsigned depth) {
    if (in_.take("^")) return {.kind = Kind::kStart};
    if (in_.take("$")) return {.kind = Kind::kEnd};
    if (in_.take("(")) {
      open_group();
      auto node = alternatives(depth + 1);
      if (!in_.take(")")) in_.fail("a group ( is not closed");
      return node;
    }
    if (in_.take(".")) return language(utf8_of(pool_, in_.dot()));
    if (in_.take("[")) return language(utf8_of(pool_, in_.bracketed()));
    if (in_.take("\\")) return language(utf8_of(pool_, in_.escape()));
    if (const char c = in_.peek(); c == '*' || c == '+' || c == '?') in_.fail("nothing to repeat");
    if (in_.peek() == '{') in_.fail("a { that begins no quantifier; write \\{ for the character");
    const auto code = in_.take_code();
    return language(utf8_of(pool_, {{code, code}}));
  }

  void open_group() {
    if (!in_.take("?") || in_.take(":")) return;
    if (in_.peek() == '=' || in_.peek() == '!') in_.fail("look-ahead is not supported");
    if (!in_.take("<")) in_.fail("inline flags are not supported");
    if (in_.peek() == '=' || in_.peek() == '!') in_.fail("look-behind is not supported");
    bool is_first = true;
    while (!in_.take(">")) {
      if (in_.done()) in_.fail("the name of a group is not closed");
      const auto code = in_.take_code();
      const bool ok =
          code >= 0x80 || code == '_' || code == '$' || (code | 32U) - 'a' < 26 || (!is_first && code - '0' < 10);
      if (!ok) in_.fail("a bad name of a group");
      is_first = false;
    }
    if (is_first) in_.fail("the name of a group is empty");
  }

  RegularPool& pool_;
  RegexReader in_;
  std::vector<Expr> conditions_;  // of the whole text
};

/// Lets any text stand before and behind an alternative where no anchor says otherwise.
RegexNode searched(RegularPool& pool, RegexNode root) {
  const auto any = pool.star(any_character(pool));
  if (root.kind == Kind::kOr) {
    for (auto& part : root.parts) part = searched(pool, std::move(part));
    return root;
  }
  RegexNode all{.kind = Kind::kConcat};
  if (root.kind == Kind::kConcat) {
    all.parts = std::move(root.parts);
  } else {
    all.parts.push_back(std::move(root));
  }
  if (all.parts.empty() || all.parts.front().kind != Kind::kStart)
    all.parts.insert(all.parts.begin(), {.language = any});
  if (all.parts.back().kind != Kind::kEnd) all.parts.push_back({.language = any});
  return all;
}

}  // namespace

Expr parse_regex(RegularPool& pool, std::string_view pattern, RegexMatch match, RegexDialects dialects) {
  if (pattern.size() > kRegexBytesMax)
    throw Error(ErrorCode::kUsage, fmt::format("the regular expression has {} bytes", pattern.size()),
                fmt::format("the limit is {}", kRegexBytesMax));
  const bool either = dialects == RegexDialects::kEither;
  const auto key =
      fmt::format("{} {} {}", match == RegexMatch::kSearch ? "search" : "whole", either ? "either" : "both", pattern);
  if (const auto known = pool.remembered(key)) return *known;
  Parser parser(pool, pattern, either);
  auto root = parser.whole();
  if (match == RegexMatch::kSearch) root = searched(pool, std::move(root));
  auto all = parser.conditions();
  all.push_back(language_of(pool, root));
  const auto texts = all.size() == 1 ? all.front() : pool.and_(all);
  pool.remember(key, texts);
  return texts;
}

}  // namespace forge::text::constraint

// Other forms of a language: its image under a substitution of bytes, its automaton as calls, its words.

#include <algorithm>

#include "text/constraint/regular.h"

namespace forge::text::constraint {

Expr RegularPool::substitute(Expr expr, const std::array<Expr, 256>& images) {
  std::unordered_map<Expr, Expr> known;
  return substitute(expr, images, known);
}

Expr RegularPool::substitute(Expr expr, const std::array<Expr, 256>& images, std::unordered_map<Expr, Expr>& known) {
  if (const auto at = known.find(expr); at != known.end()) return at->second;
  const Nested nested(*this);
  spend();
  const auto node = nodes_[expr];
  Expr result = expr;
  std::vector<Expr> parts;
  switch (node.op) {
    case Op::kEmpty:
    case Op::kEpsilon:
    case Op::kCall:
    case Op::kCapture:
    case Op::kChoice:
      break;
    case Op::kBytes: {
      ByteSet same;
      const auto set = sets_[node.a];
      for (unsigned byte = 0; byte < 256; ++byte) {
        const auto one = static_cast<std::uint8_t>(byte);
        if (!set.has(one)) continue;
        if (images[byte] == kEpsilon) {
          same.add(one);
        } else {
          parts.push_back(images[byte]);
        }
      }
      parts.push_back(bytes(same));
      result = or_(parts);
      break;
    }
    case Op::kConcat: {
      for (; nodes_[expr].op == Op::kConcat; expr = nodes_[expr].b)
        parts.push_back(substitute(nodes_[expr].a, images, known));
      result = substitute(expr, images, known);
      for (auto at = parts.rbegin(); at != parts.rend(); ++at) result = concat(*at, result);
      return result;
    }
    case Op::kOr:
      for (std::uint32_t i = 0; i < node.b; ++i) parts.push_back(substitute(args_[node.a + i], images, known));
      result = or_(parts);
      break;
    case Op::kAnd: {
      // Images of words only are left over if some argument is no complement.
      bool bounded = false;
      for (std::uint32_t i = 0; i < node.b; ++i) bounded |= nodes_[args_[node.a + i]].op != Op::kNot;
      for (std::uint32_t i = 0; i < node.b; ++i) {
        const auto arg = args_[node.a + i];
        const bool without = bounded && nodes_[arg].op == Op::kNot;
        parts.push_back(without ? not_(substitute(nodes_[arg].a, images, known)) : substitute(arg, images, known));
      }
      result = and_(parts);
      break;
    }
    case Op::kNot:
      result = and_({substitute(kAll, images, known), not_(substitute(node.a, images, known))});
      break;
    case Op::kRepeat:
      result = repeat(substitute(node.a, images, known), node.b, node.c);
      break;
  }
  known.emplace(expr, result);
  return result;
}

Expr RegularPool::flattened(Expr expr, std::size_t states_max) {
  if (is_plain(expr)) return expr;
  struct Edge {
    ByteSet bytes;
    std::size_t to;
  };
  std::vector<Expr> states{expr};
  std::unordered_map<Expr, std::size_t> numbers{{expr, 0}};
  std::vector<std::vector<Edge>> edges;
  const auto classes = classes_;  // a copy: calls may make more
  for (std::size_t at = 0; at < states.size(); ++at) {
    std::vector<Edge> out;
    std::unordered_map<Expr, std::size_t> places;
    for (std::size_t i = 0; i < classes.representative.size(); ++i) {
      const auto next = derivative(states[at], classes.representative[i]);
      if (next == kEmpty || is_empty(next)) continue;
      const auto [number, is_new] = numbers.try_emplace(next, states.size());
      if (is_new) states.push_back(next);
      if (states.size() > states_max) return expr;
      const auto [place, is_first] = places.try_emplace(next, out.size());
      if (is_first) out.push_back({{}, number->second});
      for (unsigned byte = 0; byte < 256; ++byte)
        if (classes.of[byte] == i) out[place->second].bytes.add(static_cast<std::uint8_t>(byte));
    }
    edges.push_back(std::move(out));
  }
  if (classes.representative.size() != classes_.representative.size()) return expr;
  // A state whose language is plain stays an expression.
  std::vector<Expr> exprs;
  for (std::size_t at = 0; at < states.size(); ++at) {
    if (is_plain(states[at])) {
      exprs.push_back(states[at]);
      continue;
    }
    CallFacts facts{.first = {}, .min = nullable(states[at]) ? 0U : 1U};
    for (const auto& edge : edges[at]) facts.first |= edge.bytes;
    exprs.push_back(call(facts));
  }
  for (std::size_t at = 0; at < states.size(); ++at) {
    if (is_plain(states[at])) continue;
    std::vector<Expr> parts;
    if (nullable(states[at])) parts.push_back(kEpsilon);
    for (const auto& edge : edges[at]) parts.push_back(concat(bytes(edge.bytes), exprs[edge.to]));
    define(exprs[at], or_(parts));
  }
  return exprs[0];
}

std::optional<std::vector<std::string>> RegularPool::words(Expr expr, std::size_t words_max, std::size_t bytes_max) {
  if (!nodes_[expr].plain && is_empty(expr)) return std::vector<std::string>{};
  struct Beginning {
    Expr rest;
    std::string word;
  };
  std::vector<Beginning> open{{expr, {}}};
  std::vector<std::string> all;
  for (std::size_t total = 0; !open.empty();) {
    const auto [rest, word] = std::move(open.back());
    open.pop_back();
    if (nullable(rest)) all.push_back(word);
    total += word.size();
    if (all.size() > words_max || open.size() > words_max || total > bytes_max) return std::nullopt;
    for (unsigned byte = 0; byte < 256; ++byte) {
      if (!first(rest).has(static_cast<std::uint8_t>(byte))) continue;
      const auto next = derivative(rest, static_cast<std::uint8_t>(byte));
      if (next == kEmpty || is_empty(next)) continue;
      if (open.size() > words_max) return std::nullopt;
      open.push_back({next, word + static_cast<char>(byte)});
    }
  }
  std::ranges::sort(all);
  return all;
}

}  // namespace forge::text::constraint

#include <algorithm>
#include <utility>

#include "support/error.h"
#include "text/constraint/regular.h"

namespace forge::text::constraint {
namespace {

constexpr std::size_t kDerivativesMax = std::size_t{1} << 18;  ///< kept; 4 MiB

}  // namespace

RegularPool::Derivative& RegularPool::derivative_place(std::uint64_t key) {
  return derivatives_[(key * 0x9E3779B97F4A7C15ULL >> 32) % derivatives_.size()];
}

Expr RegularPool::derivative(Expr expr, std::uint8_t byte) {
  const auto& node = nodes_[expr];
  if (!sets_[node.first].has(byte)) return kEmpty;
  if (node.op == Op::kBytes) return kEpsilon;
  // Expressions share their parts, so without this table a nested one takes exponential time.
  const std::uint64_t key = std::uint64_t{expr} << 8U | byte;
  if (const auto& kept = derivative_place(key); kept.key == key) return kept.result;
  const Nested nested(*this);
  spend();
  const auto result = derivative_of(expr, byte);
  if (++derivatives_made_ > derivatives_.size() && derivatives_.size() < kDerivativesMax) {
    const auto before = std::exchange(derivatives_, std::vector<Derivative>(derivatives_.size() * 2));
    derivatives_made_ = 0;
    for (const auto& one : before)
      if (one.key != 0) derivative_place(one.key) = one;
  }
  derivative_place(key) = {.key = key, .result = result};
  return result;
}

/// derivative() of an expression that can begin with the byte.
Expr RegularPool::derivative_of(Expr expr, std::uint8_t byte) {
  const auto node = nodes_[expr];  // a copy: the pool grows below
  switch (node.op) {
    case Op::kEmpty:
    case Op::kEpsilon:
      return kEmpty;
    case Op::kBytes:
      return kEpsilon;
    case Op::kConcat:
      return derivative_of_spine(expr, byte);
    case Op::kRepeat: {
      const auto max = node.c == kUnbounded ? kUnbounded : node.c - 1;
      const auto head = derivative(node.a, byte);
      return head == kEmpty ? kEmpty : concat(head, repeat(node.a, node.b == 0 ? 0 : node.b - 1, max));
    }
    case Op::kNot:
      return not_(derivative(node.a, byte));
    case Op::kCall:
      return derivative(body(expr), byte);
    case Op::kCapture:
      return derivative_of_capture(expr, byte);
    case Op::kChoice:
      return derivative_of_choice(expr, byte);
    case Op::kOr:
    case Op::kAnd:
      break;
  }
  spend(node.b);
  std::vector<Expr> parts;
  for (std::uint32_t i = 0; i < node.b; ++i) {
    const auto arg = args_[node.a + i];
    if (node.op == Op::kOr && !first(arg).has(byte)) continue;
    parts.push_back(derivative(arg, byte));
    if (node.op == Op::kAnd && parts.back() == kEmpty) return kEmpty;
  }
  return node.op == Op::kOr ? or_(parts) : and_(parts);
}

/// The derivative of a concatenation: of its first factor and, as long as the factors before are nullable, of the
/// others.
Expr RegularPool::derivative_of_spine(Expr expr, std::uint8_t byte) {
  std::vector<Expr> parts;
  for (bool more = true; more;) {
    const auto node = nodes_[expr];
    const bool is_concat = node.op == Op::kConcat;
    const auto factor = is_concat ? node.a : expr;
    if (first(factor).has(byte)) {
      const auto head = derivative(factor, byte);
      if (head != kEmpty) parts.push_back(is_concat ? concat(head, node.b) : head);
    }
    more = is_concat && nodes_[factor].nullable;
    if (more) expr = node.b;
  }
  return parts.size() == 1 ? parts[0] : or_(parts);
}

Expr RegularPool::without_epsilon(Expr expr) {
  const auto node = nodes_[expr];
  if (!node.nullable) return expr;
  if (const auto known = without_epsilon_.find(expr); known != without_epsilon_.end()) return known->second;
  const Nested nested(*this);
  const auto result = find_without_epsilon(expr);
  without_epsilon_.emplace(expr, result);
  return result;
}

/// without_epsilon() of an expression that holds the empty word.
Expr RegularPool::find_without_epsilon(Expr expr) {
  const auto node = nodes_[expr];
  switch (node.op) {
    case Op::kEpsilon:
      return kEmpty;
    case Op::kRepeat: {
      if (!nodes_[node.a].nullable) return repeat(node.a, 1, node.c);
      const auto max = node.c == kUnbounded ? kUnbounded : node.c - 1;
      return concat(without_epsilon(node.a), repeat(node.a, 0, max));
    }
    case Op::kConcat: {
      std::vector<Expr> parts;
      for (; nodes_[expr].op == Op::kConcat; expr = nodes_[expr].b)
        parts.push_back(concat(without_epsilon(nodes_[expr].a), nodes_[expr].b));
      parts.push_back(without_epsilon(expr));
      return or_(parts);
    }
    case Op::kOr: {
      std::vector<Expr> parts;
      for (std::uint32_t i = 0; i < node.b; ++i) parts.push_back(without_epsilon(args_[node.a + i]));
      return or_(parts);
    }
    default:
      return and_({expr, not_(kEpsilon)});
  }
}

bool RegularPool::known_inhabited(Expr expr) {
  const auto& node = nodes_[expr];
  if (node.nullable || (node.plain && expr != kEmpty)) return true;
  if (verdict(expr) == Verdict::kInhabited) return true;
  if (node.op != Op::kOr) return false;
  const Nested nested(*this);
  spend(node.b);
  if (std::ranges::none_of(args(node), [&](Expr arg) { return known_inhabited(arg); })) return false;
  verdicts_.resize(nodes_.size());
  verdicts_[expr] = Verdict::kInhabited;
  return true;
}

/// Intersections and complements are explored; what is built of them is as empty as its parts.
bool RegularPool::is_empty(Expr expr) {
  if (expr == kEmpty) return true;
  if (known_inhabited(expr)) return false;
  if (verdict(expr) == Verdict::kEmpty) return true;
  const Nested nested(*this);
  const auto node = nodes_[expr];
  bool empty = false;
  auto end = expr;
  if (node.op == Op::kConcat) {
    // A loop along the tails, which can be as long as a text: each of them is as empty as the whole.
    for (; !empty && nodes_[end].op == Op::kConcat && !known_inhabited(end); end = nodes_[end].b) {
      spend();
      empty = verdict(end) == Verdict::kEmpty || is_empty(nodes_[end].a);
    }
    if (!empty && nodes_[end].op != Op::kConcat) empty = is_empty(end);
  } else if (node.op == Op::kOr) {
    empty = true;
    for (std::uint32_t i = 0; i < node.b && empty; ++i) empty = is_empty(args_[node.a + i]);
  } else if (node.op == Op::kRepeat || node.op == Op::kCapture) {
    empty = is_empty(node.a);
  } else {
    return explore_empty(expr);
  }
  verdicts_.resize(nodes_.size());
  const auto found = empty ? Verdict::kEmpty : Verdict::kInhabited;
  verdicts_[expr] = found;
  for (auto at = expr; at != end; at = nodes_[at].b) verdicts_[at] = found;
  return empty;
}

bool RegularPool::explore_empty(Expr expr) {
  constexpr std::size_t kVisitsMax = 20'000;
  struct Visit {
    Expr expr;
    std::size_t from;
  };
  std::vector<Visit> visits{{expr, 0}};
  std::unordered_set<Expr> seen{expr};
  for (std::size_t at = 0; at < visits.size(); ++at) {
    const auto bytes = classes_.representative;  // a copy: calls may make classes
    for (const auto byte : bytes) {
      const auto next = derivative(visits[at].expr, byte);
      spend();
      if (next == kEmpty || verdict(next) == Verdict::kEmpty) continue;
      if (known_inhabited(next)) {  // and so is everything on the way here
        verdicts_.resize(nodes_.size());
        verdicts_[next] = Verdict::kInhabited;
        for (auto back = at;; back = visits[back].from) {
          verdicts_[visits[back].expr] = Verdict::kInhabited;
          if (back == 0) return false;
        }
      }
      if (seen.insert(next).second) visits.push_back({next, at});
    }
    if (visits.size() > kVisitsMax)
      throw Error(ErrorCode::kMemory, "the constraint is too complex",
                  "whether an intersection of expressions allows any text cannot be found out",
                  "use simpler expressions");
  }
  verdicts_.resize(nodes_.size());
  for (const auto& visit : visits) verdicts_[visit.expr] = Verdict::kEmpty;
  return true;
}

bool RegularPool::includes(Expr outer, Expr inner) {
  return is_empty(and_({inner, not_(outer)}));
}

bool RegularPool::surely_includes(Expr outer, Expr inner) {
  try {
    return includes(outer, inner);
  } catch (const Error& error) {
    if (error.code() != ErrorCode::kMemory) throw;
    return false;
  }
}

}  // namespace forge::text::constraint

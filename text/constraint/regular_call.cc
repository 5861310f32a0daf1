// Calls, captures, and what is true of an expression as far as a token reaches.

#include <algorithm>
#include <utility>

#include "support/error.h"
#include "text/constraint/code_ranges.h"
#include "text/constraint/regular.h"

namespace forge::text::constraint {
namespace {

constexpr Expr kUndefined = UINT32_MAX;

/// The characters of JSON strings that are plain text.
Expr unescaped(RegularPool& pool) {
  return utf8_of(pool, {{0x20, 0x21}, {0x23, 0x5B}, {0x5D, 0x7E}, {0x80, kCodeMax}});
}

}  // namespace

void RegularPool::begin_scope() {
  if (scopes_.size() == std::size_t{1} << (32 - kScopeShift))
    throw Error(ErrorCode::kMemory, "the constraint has too many schemas");
  scope_ = static_cast<std::uint32_t>(scopes_.size());
  scopes_.emplace_back();
}

Expr RegularPool::call(const CallFacts& facts) {
  Node node{.a = static_cast<std::uint32_t>(bodies_.size()),
            .b = scope_,
            .min = std::min(facts.min, kMinMax),
            .op = Op::kCall};
  node.nullable = facts.min == 0;
  node.finite = false;
  node.first = set_number(facts.first);
  bodies_.push_back(kUndefined);
  return intern(node);
}

void RegularPool::define(Expr call, Expr body) {
  bodies_[nodes_[call].a] = body;
}

Expr RegularPool::body(Expr call) {
  const auto number = nodes_[call].a;
  if (bodies_[number] == kUndefined) {
    const auto before = std::exchange(scope_, nodes_[call].b);
    const auto body = scopes_[scope_].expand(call);  // may make calls
    scope_ = before;
    bodies_[number] = body;
  }
  return bodies_[number];
}

Expr RegularPool::capture(Expr inner, std::uint32_t number) {
  if (inner == kEmpty) return kEmpty;
  if (number >> kScopeShift != 0) throw Error(ErrorCode::kMemory, "the constraint has too many names to tell apart");
  const auto& part = nodes_[inner];
  Node node{.a = inner,
            .b = 0,
            .c = scope_ << kScopeShift | number,
            .first = part.first,
            .min = part.min,
            .op = Op::kCapture};
  node.plain = part.plain;
  node.counted = part.counted;
  node.finite = false;
  node.captures = true;
  return intern(node);
}

std::uint32_t RegularPool::longer_word(std::uint32_t word, std::uint8_t byte) {
  const auto next = static_cast<std::uint32_t>(words_.size());
  const auto [at, is_new] = word_numbers_.try_emplace(std::uint64_t{word} << 8U | byte, next);
  if (is_new) words_.push_back({.before = word, .byte = byte});
  return at->second;
}

/// What follows a word of a capture, whose number has its scope.
Expr RegularPool::finished(std::uint32_t number, std::uint32_t end) {
  std::string word;
  for (auto at = end; at != 0; at = words_[at].before) word += static_cast<char>(words_[at].byte);
  std::ranges::reverse(word);
  spend(word.size());
  finished_bytes_ += word.size() * 4;  // the front end keeps it in what it will make of it
  const auto before = std::exchange(scope_, number >> kScopeShift);
  const auto rest = scopes_[scope_].finish(number & ((1U << kScopeShift) - 1), word);
  scope_ = before;
  return rest;
}

Expr RegularPool::without_captures(Expr expr, bool loose) {
  const auto node = nodes_[expr];
  if (!node.captures) return expr;
  const auto key = std::uint64_t{expr} << 1U | (loose ? 1U : 0U);
  if (const auto known = without_captures_.find(key); known != without_captures_.end()) return known->second;
  const Nested nested(*this);
  spend();
  Expr result = kEmpty;
  if (node.op == Op::kCapture) {
    ByteSet none;
    none.add(0xFF);
    result = concat(node.a, loose ? finished(node.c, 0) : bytes(none));
  } else if (node.op == Op::kConcat) {
    std::vector<Expr> spine;
    auto rest = expr;
    for (; nodes_[rest].op == Op::kConcat && nodes_[rest].captures; rest = nodes_[rest].b)
      spine.push_back(without_captures(nodes_[rest].a, loose));
    result = nodes_[rest].op == Op::kConcat ? rest : without_captures(rest, loose);
    for (auto at = spine.rbegin(); at != spine.rend(); ++at) result = concat(*at, result);
  } else {
    std::vector<Expr> parts;
    for (std::uint32_t i = 0; i < node.b; ++i) parts.push_back(without_captures(args_[node.a + i], loose));
    result = or_(parts);
  }
  without_captures_.emplace(key, result);
  return result;
}

Expr RegularPool::derivative_of_capture(Expr expr, std::uint8_t byte) {
  auto node = nodes_[expr];
  node.a = derivative(node.a, byte);
  if (node.a == kEmpty) return kEmpty;
  node.b = longer_word(node.b, byte);
  Expr ended = kEmpty;
  if (nodes_[node.a].nullable) {
    ended = finished(node.c, node.b);
    node.a = without_epsilon(node.a);
    if (node.a == kEmpty) return ended;
  }
  const auto& part = nodes_[node.a];
  node.first = part.first;
  node.min = part.min;
  node.plain = part.plain;
  node.counted = part.counted;
  const auto more = intern(node);
  return ended == kEmpty ? more : or_({ended, more});
}

// Why it is exact: a beginning of at most `bytes` bytes passes at most so many words of a repeat's argument, the empty
// word aside, so it cannot tell one count above `bytes` from another, and what follows it can be completed. It never
// reads what comes after a factor that has `bytes` bytes at least. An intersection of a count and something that any
// beginning can be completed to in fewer words than the count has left is not told apart by the count either.
Expr RegularPool::within_horizon(Expr expr, std::uint32_t bytes) {
  const auto node = nodes_[expr];
  const bool is_and = node.op == Op::kAnd && node.counted && node.b == 2;
  if (node.op != Op::kConcat && node.op != Op::kOr && !is_and && (node.op != Op::kRepeat || !node.counted)) return expr;
  const auto key = std::uint64_t{bytes} << 32 | expr;
  if (const auto known = horizons_.find(key); known != horizons_.end()) return known->second;
  const Nested nested(*this);
  spend();
  Expr result = expr;
  if (is_and) {
    for (const std::uint32_t i : {0U, 1U}) {
      const auto one = args_[node.a + i], other = args_[node.a + 1 - i];
      const auto count = nodes_[one];  // a copy: the pool grows below
      if (count.op != Op::kRepeat || count.b != 0 || count.c == kUnbounded || !nodes_[other].plain) continue;
      const auto needed = completion(other);
      if (needed == kMinMax || count.c <= bytes + needed) break;
      if (surely_includes(star(count.a), other)) result = and_({star(count.a), other});
      break;
    }
  } else if (node.op == Op::kRepeat) {
    const auto min = std::min(node.b, bytes + 1);
    const auto max = node.c > bytes ? kUnbounded : node.c;
    result = repeat(within_horizon(node.a, bytes), min, max);
  } else if (node.op == Op::kOr) {
    std::vector<Expr> parts;
    for (std::uint32_t i = 0; i < node.b; ++i) parts.push_back(within_horizon(args_[node.a + i], bytes));
    result = or_(parts);
  } else if (node.op == Op::kConcat) {
    std::vector<Expr> spine;
    std::uint32_t passed = 0;  // bytes that the factors so far have at least
    Expr rest = expr;
    for (; passed < bytes && nodes_[rest].op == Op::kConcat; rest = nodes_[rest].b) {
      spine.push_back(within_horizon(nodes_[rest].a, bytes - passed));
      passed += nodes_[nodes_[rest].a].min;
    }
    result = passed >= bytes ? kAll : within_horizon(rest, bytes - passed);
    for (auto at = spine.rbegin(); at != spine.rend(); ++at) result = concat(*at, result);
  }
  horizons_.emplace(key, result);
  return result;
}

/// Whatever begins a word of a plain `expr` becomes one with so many bytes more; kMinMax if that is not known.
std::uint32_t RegularPool::completion(Expr expr) {
  struct Bound {
    std::uint64_t shortest = kMinMax, any = kMinMax;
  };
  const std::function<Bound(Expr, unsigned)> bound = [&](Expr at, unsigned depth) -> Bound {
    spend();
    const auto node = nodes_[at];
    if (depth > 200) return {};
    switch (node.op) {
      case Op::kEpsilon:
        return {.shortest = 0, .any = 0};
      case Op::kBytes:
        return {.shortest = 1, .any = 1};
      case Op::kConcat: {
        Bound all{.shortest = 0, .any = 0};
        for (Expr rest = at; all.shortest < kMinMax;) {
          const bool more = nodes_[rest].op == Op::kConcat;
          const auto part = bound(more ? nodes_[rest].a : rest, depth + 1);
          // What comes later is added to every beginning that ends before it.
          all = {.shortest = all.shortest + part.shortest, .any = std::max(all.any + part.shortest, part.any)};
          if (!more) break;
          rest = nodes_[rest].b;
        }
        return all;
      }
      case Op::kOr: {
        Bound all{.shortest = kMinMax, .any = 0};
        for (std::uint32_t i = 0; i < node.b; ++i) {
          const auto part = bound(args_[node.a + i], depth + 1);
          all = {.shortest = std::min(all.shortest, part.shortest), .any = std::max(all.any, part.any)};
        }
        return all;
      }
      case Op::kRepeat: {
        const auto part = bound(node.a, depth + 1);
        return {.shortest = part.shortest * node.b, .any = part.any + part.shortest * node.b};
      }
      default:
        return {};
    }
  };
  const auto [known, is_new] = completions_.try_emplace(expr, kMinMax);
  if (is_new) known->second = static_cast<std::uint32_t>(std::min<std::uint64_t>(bound(expr, 0).any, kMinMax));
  return known->second;
}

bool RegularPool::is_open(Expr expr, std::uint32_t bytes) {
  // Expressions share their parts, so without this table nested ones take exponential time.
  const auto key = std::uint64_t{bytes} << 32 | expr;
  if (const auto known = open_at_.find(key); known != open_at_.end()) return known->second;
  const Nested nested(*this);
  spend();
  const bool open = find_open(expr, bytes);
  open_at_.emplace(key, open);
  return open;
}

bool RegularPool::find_open(Expr expr, std::uint32_t bytes) {
  const auto node = nodes_[expr];
  switch (node.op) {
    case Op::kConcat:
    case Op::kCapture:
      return is_open(node.a, bytes);
    case Op::kOr:
      for (std::uint32_t i = 0; i < node.b; ++i)
        if (is_open(args_[node.a + i], bytes)) return true;
      return false;
    case Op::kAnd: {
      // All texts but finitely many: whatever has begun can be made longer than those.
      Expr open = kEmpty;
      for (std::uint32_t i = 0; i < node.b; ++i) {
        const auto arg = args_[node.a + i];
        if (nodes_[arg].op == Op::kNot && nodes_[nodes_[arg].a].finite) continue;
        if (open != kEmpty) return false;
        open = arg;
      }
      return nodes_[open].op == Op::kRepeat && nodes_[open].c == kUnbounded && is_open(open, bytes);
    }
    case Op::kRepeat: {
      if (node.c < bytes) return false;
      if (const auto known = open_.find(node.a); known != open_.end()) return known->second;
      if (!nodes_[node.a].plain) return false;
      const bool open = includes(node.a, unescaped(*this));
      open_.emplace(node.a, open);
      return open;
    }
    default:
      return false;
  }
}

std::optional<RegularPool::StringState> RegularPool::string_state(Expr expr) {
  const auto node = nodes_[expr];
  if (node.op != Op::kConcat) return std::nullopt;
  const auto head = nodes_[node.a], tail = nodes_[node.b];
  const auto quote = tail.op == Op::kConcat ? tail.a : node.b;
  const auto rest = tail.op == Op::kConcat ? tail.b : kEpsilon;
  if (head.op != Op::kRepeat || quote != literal("\"")) return std::nullopt;
  auto known = characters_.find(head.a);
  if (known == characters_.end()) {
    bool single = nodes_[head.a].plain && !nodes_[head.a].nullable;
    if (single) {
      const auto plain = unescaped(*this);
      single = includes(head.a, plain) && is_empty(and_({head.a, not_(plain), concat(plain, kAll)}));
    }
    known = characters_.emplace(head.a, single).first;
  }
  if (!known->second) return std::nullopt;
  return StringState{.item = head.a, .min = head.b, .max = head.c, .rest = rest};
}

}  // namespace forge::text::constraint

#include "text/constraint/regular.h"

#include <fmt/core.h>

#include <algorithm>

#include "support/error.h"

namespace forge::text::constraint {
namespace {

constexpr std::uint64_t mix(std::uint64_t hash, std::uint64_t value) {
  hash = (hash ^ value) * 0x9E3779B97F4A7C15ULL;
  return hash ^ hash >> 29;
}

constexpr Expr kNone = UINT32_MAX;
constexpr std::size_t kKnownFirst = std::size_t{1} << 12;  ///< places for nodes, a power of two
constexpr std::size_t kDerivativesFirst = std::size_t{1} << 12;

/// a * b and a + b of bounds of repeats; nothing if the result does not fit.
constexpr std::uint64_t kBoundMax = 1U << 31;
std::uint64_t product(std::uint32_t a, std::uint32_t b) {
  if (a == 0 || b == 0) return 0;
  return a == kUnbounded || b == kUnbounded ? kUnbounded : std::uint64_t{a} * b;
}
std::uint64_t sum(std::uint32_t a, std::uint32_t b) {
  return a == kUnbounded || b == kUnbounded ? kUnbounded : std::uint64_t{a} + b;
}
bool fits(std::uint64_t bound) {
  return bound < kBoundMax || bound == kUnbounded;
}

}  // namespace

std::size_t RegularPool::hash_of(const Node& node) const {
  auto hash = mix(0, static_cast<std::uint64_t>(node.op));
  if (node.op == Op::kOr || node.op == Op::kAnd) {
    for (const auto arg : args(node)) hash = mix(hash, arg);
  } else {
    hash = mix(mix(mix(hash, node.a), node.b), node.c);
  }
  return hash ^ hash >> 32;
}

bool RegularPool::same(const Node& l, const Node& r) const {
  if (l.op != r.op) return false;
  if (l.op == Op::kOr || l.op == Op::kAnd) return std::ranges::equal(args(l), args(r));
  return l.a == r.a && l.b == r.b && l.c == r.c;
}

std::size_t RegularPool::SetHash::operator()(const ByteSet& set) const {
  std::uint64_t hash = 0;
  for (const auto word : set.words) hash = mix(hash, word);
  return hash;
}

RegularPool::RegularPool(std::size_t bytes_max, std::uint64_t work_max)
    : known_(kKnownFirst, kNone), derivatives_(kDerivativesFirst), bytes_max_(bytes_max), work_max_(work_max) {
  set_number({});
  intern({.op = Op::kEmpty});
  intern({.op = Op::kEpsilon, .nullable = true});
  const auto any = set_number(ByteSet::all());
  const auto byte = static_cast<Expr>(3);
  intern({.a = byte, .b = 0, .c = kUnbounded, .first = any, .op = Op::kRepeat, .nullable = true, .finite = false});
  intern({.a = any, .first = any, .min = 1, .op = Op::kBytes});
}

std::size_t RegularPool::memory_bytes() const {
  constexpr std::size_t kHashEntry = 32;  // a node of unordered_map and its bucket
  return nodes_.size() * (sizeof(Node) + kHashEntry) + args_.size() * sizeof(Expr) +
         sets_.size() * 3 * sizeof(ByteSet) + verdicts_.size() + (horizons_.size() + open_.size()) * 2 * kHashEntry +
         (open_at_.size() + without_captures_.size() + without_epsilon_.size()) * 2 * kHashEntry +
         words_.size() * 3 * kHashEntry + finished_bytes_ + choices_.size() * 6 * kHashEntry;
}

Expr RegularPool::containing(std::string_view part) {
  return concat(kAll, concat(literal(part), kAll));
}

std::optional<Expr> RegularPool::remembered(std::string_view text) const {
  const auto at = remembered_.find(text);
  return at != remembered_.end() ? std::optional(at->second) : std::nullopt;
}

void RegularPool::remember(std::string_view text, Expr expr) {
  constexpr std::size_t kEntry = 128;
  if (remembered_.emplace(text, expr).second) finished_bytes_ += text.size() + kEntry;
  check_limit();
}

void RegularPool::check_limit() const {
  if (memory_bytes() <= bytes_max_) return;
  throw Error(ErrorCode::kMemory, fmt::format("the constraint needs more than {} KiB", bytes_max_ >> 10),
              "its automaton has too many states", "use a simpler expression");
}

void RegularPool::give_up(const char* why) {
  work_ = work_max_ + 1;
  throw Error(ErrorCode::kMemory, "the constraint is too complex", why, "use a simpler schema or expression");
}

std::uint32_t RegularPool::set_number(const ByteSet& set) {
  const auto [at, is_new] = set_numbers_.try_emplace(set, static_cast<std::uint32_t>(sets_.size()));
  if (is_new) {
    sets_.push_back(set);
    refine_classes(set);
  }
  return at->second;
}

Expr RegularPool::intern(Node node) {
  spend();
  const auto expr = static_cast<Expr>(nodes_.size());
  auto at = hash_of(node) % known_.size();
  for (; known_[at] != kNone; at = (at + 1) % known_.size())
    if (same(nodes_[known_[at]], node)) return known_[at];
  nodes_.push_back(node);
  known_[at] = expr;
  if (nodes_.size() * 2 > known_.size()) grow_known();
  check_limit();
  return expr;
}

void RegularPool::grow_known() {
  known_ = std::vector<Expr>(known_.size() * 4, kNone);
  for (Expr expr = 0; expr < nodes_.size(); ++expr) {
    auto at = hash_of(nodes_[expr]) % known_.size();
    while (known_[at] != kNone) at = (at + 1) % known_.size();
    known_[at] = expr;
  }
}

Expr RegularPool::intern(Op op, std::span<const Expr> args) {
  spend(args.size());
  Node node{.a = static_cast<std::uint32_t>(args_.size()), .b = static_cast<std::uint32_t>(args.size()), .op = op};
  args_.insert(args_.end(), args.begin(), args.end());
  ByteSet first = op == Op::kOr ? ByteSet{} : ByteSet::all();
  node.nullable = op == Op::kAnd;
  node.plain = node.finite = op == Op::kOr;
  node.min = op == Op::kOr ? kMinMax : 0;
  for (const auto arg : args) {
    const auto& part = nodes_[arg];
    if (op == Op::kOr) {
      first |= sets_[part.first];
      node.nullable |= part.nullable;
      node.plain &= part.plain;
      node.finite &= part.finite;
      node.min = std::min(node.min, part.min);
      node.chooses |= part.chooses;
    } else {
      first &= sets_[part.first];
      node.finite |= part.finite;
      node.min = std::max(node.min, part.min);
      node.nullable &= part.nullable;
    }
    node.counted |= part.counted;
    node.captures |= part.captures;
  }
  node.first = set_number(first);
  const auto before = nodes_.size();
  const auto expr = intern(node);
  if (nodes_.size() == before) args_.resize(node.a);
  return expr;
}

Expr RegularPool::bytes(const ByteSet& set) {
  if (set.empty()) return kEmpty;
  const auto number = set_number(set);
  return intern({.a = number, .first = number, .min = 1, .op = Op::kBytes});
}

Expr RegularPool::literal(std::string_view text) {
  Expr expr = kEpsilon;
  for (auto at = text.rbegin(); at != text.rend(); ++at) {
    ByteSet one;
    one.add(static_cast<std::uint8_t>(*at));
    expr = concat(bytes(one), expr);
  }
  return expr;
}

/// Precondition: `head` is no concatenation.
Expr RegularPool::concat_pair(Expr head, Expr tail) {
  if (head == kEmpty || tail == kEmpty) return kEmpty;
  if (head == kEpsilon) return tail;
  if (tail == kEpsilon) return head;
  // X{a,b} X{c,d} = X{a+c,b+d}, also with X for X{1,1} on the left.
  const auto next = nodes_[tail].op == Op::kConcat ? nodes_[tail].a : tail;
  const auto rest = nodes_[tail].op == Op::kConcat ? nodes_[tail].b : kEpsilon;
  if (const auto& right = nodes_[next]; right.op == Op::kRepeat) {
    const auto left =
        nodes_[head].op == Op::kRepeat && nodes_[head].a == right.a ? nodes_[head] : Node{.a = head, .b = 1, .c = 1};
    const auto min = sum(left.b, right.b), max = sum(left.c, right.c);
    if (left.a == right.a && fits(min) && fits(max))
      return concat_pair(repeat(left.a, static_cast<std::uint32_t>(min), static_cast<std::uint32_t>(max)), rest);
  }
  const auto &h = nodes_[head], &t = nodes_[tail];
  Node node{.a = head, .b = tail, .op = Op::kConcat};
  node.nullable = h.nullable && t.nullable;
  node.plain = h.plain && t.plain;
  node.counted = h.counted || t.counted;
  node.finite = h.finite && t.finite;
  node.captures = h.captures || (h.nullable && t.captures);
  node.chooses = h.chooses;
  node.min = std::min(h.min + t.min, kMinMax);
  auto first = sets_[h.first];
  if (h.nullable) first |= sets_[t.first];
  node.first = set_number(first);
  return intern(node);
}

Expr RegularPool::concat(Expr head, Expr tail) {
  if (nodes_[head].op != Op::kConcat) return concat_pair(head, tail);
  if (tail == kEmpty) return kEmpty;
  std::vector<Expr> spine;
  for (; nodes_[head].op == Op::kConcat; head = nodes_[head].b) spine.push_back(nodes_[head].a);
  auto expr = concat_pair(head, tail);
  for (auto at = spine.rbegin(); at != spine.rend(); ++at) expr = concat_pair(*at, expr);
  return expr;
}

Expr RegularPool::repeat(Expr arg, std::uint32_t min, std::uint32_t max) {
  invariant(min <= max, "TXT-001", "a repeat whose bounds are in order");
  if (max == 0 || arg == kEpsilon) return kEpsilon;
  if (arg == kEmpty) return min == 0 ? kEpsilon : kEmpty;
  if (nodes_[arg].nullable) min = 0;
  if (min == 1 && max == 1) return arg;
  if (max == 1 && nodes_[arg].nullable) return arg;
  if (max == 1 && nodes_[arg].op == Op::kOr) return or_({kEpsilon, arg});
  if (arg == kAll) return kAll;
  // X{a,b}{c,d} = X{ac,bd} if the ranges [ka,kb] for k in [c,d] leave no gap. The widest gap is the first one.
  if (const auto inner = nodes_[arg]; inner.op == Op::kRepeat) {
    const auto k = std::max(min, 1U);
    const auto low = product(inner.b, min), high = product(inner.c, max);
    const bool joined = max == k || product(inner.c, k) + 1 >= product(inner.b, k) + inner.b;
    if (joined && (min > 0 || inner.b <= 1) && fits(low) && fits(high))
      return repeat(inner.a, static_cast<std::uint32_t>(low), static_cast<std::uint32_t>(high));
  }
  const auto& part = nodes_[arg];
  Node node{.a = arg, .b = min, .c = max, .first = part.first, .op = Op::kRepeat};
  node.nullable = min == 0;
  node.plain = part.plain;
  node.counted = part.counted || min > 1 || (max != kUnbounded && max > 1);
  node.finite = part.finite && max != kUnbounded;
  node.min = static_cast<std::uint32_t>(std::min<std::uint64_t>(std::uint64_t{part.min} * min, kMinMax));
  return intern(node);
}

Expr RegularPool::not_(Expr arg) {
  if (arg == kEmpty) return kAll;
  if (arg == kAll) return kEmpty;
  const auto& part = nodes_[arg];
  if (part.op == Op::kNot) return part.a;
  Node node{.a = arg, .op = Op::kNot, .nullable = !part.nullable, .plain = false, .counted = part.counted};
  node.finite = false;
  node.min = node.nullable ? 0 : 1;
  node.first = set_number(ByteSet::all());
  return intern(node);
}

Expr RegularPool::and_(std::span<const Expr> wanted) {
  spend(wanted.size());
  std::vector<Expr> all;
  ByteSet set = ByteSet::all();
  bool has_bytes = false;
  const auto take = [&](Expr arg) {
    const auto& node = nodes_[arg];
    if (node.op == Op::kBytes) {
      set &= sets_[node.a];
      has_bytes = true;
    } else if (arg != kAll) {
      all.push_back(arg);
    }
  };
  for (const auto arg : wanted) {
    if (nodes_[arg].op == Op::kAnd) {
      for (const auto inner : args(nodes_[arg])) take(inner);
    } else {
      take(arg);
    }
  }
  if (has_bytes) all.push_back(bytes(set));
  std::ranges::sort(all);
  const auto repeated = std::ranges::unique(all);
  all.erase(repeated.begin(), repeated.end());
  const auto has = [&](Expr arg) { return std::ranges::binary_search(all, arg); };
  if (has(kEmpty)) return kEmpty;
  if (has(kEpsilon))
    return std::ranges::all_of(all, [&](Expr arg) { return nodes_[arg].nullable; }) ? kEpsilon : kEmpty;
  for (const auto arg : all)
    if (nodes_[arg].op == Op::kNot && has(nodes_[arg].a)) return kEmpty;
  // X & (X | Y) = X
  std::vector<Expr> kept;
  for (const auto arg : all) {
    const auto& node = nodes_[arg];
    if (node.op != Op::kOr || std::ranges::none_of(args(node), has)) kept.push_back(arg);
  }
  if (kept.empty()) return kAll;
  if (kept.size() == 1) return kept[0];
  return intern(Op::kAnd, kept);
}

/// Splits the classes of which `set` holds some bytes and not others.
void RegularPool::refine_classes(const ByteSet& set) {
  std::array<std::array<int, 256>, 2> numbers{};
  for (auto& side : numbers) side.fill(-1);
  ByteClasses refined;
  refined.representative.clear();
  for (unsigned i = 0; i < 256; ++i) {
    const auto byte = static_cast<std::uint8_t>(i);
    auto& number = numbers[set.has(byte) ? 1 : 0][classes_.of[i]];
    if (number < 0) {
      number = static_cast<int>(refined.representative.size());
      refined.representative.push_back(byte);
    }
    refined.of[i] = static_cast<std::uint8_t>(number);
  }
  if (refined.representative.size() > classes_.representative.size()) classes_ = std::move(refined);
}

}  // namespace forge::text::constraint

// The alternation's normal form: flat, sorted, without repeats, and with common beginnings, endings and neighbouring
// counts joined.

#include <algorithm>
#include <map>
#include <tuple>

#include "text/constraint/regular.h"

namespace forge::text::constraint {
namespace {

/// Common beginnings are factored this deep; below, alternatives stay apart until derivatives reach them.
constexpr unsigned kFactoredMax = 500;

}  // namespace

/// Collects the arguments of one or_() by what they begin with.
class Alternation {
 public:
  explicit Alternation(RegularPool& pool) : pool_(pool) {}

  void take(Expr arg) {
    pool_.spend();
    const auto& node = pool_.nodes_[arg];
    if (arg == RegularPool::kEmpty) return;
    if (arg == RegularPool::kEpsilon) {
      has_epsilon_ = true;
    } else if (node.op == Op::kOr) {
      for (const auto inner : pool_.args(node)) take(inner);
    } else if (node.op == Op::kRepeat && node.b == 0 && node.c == 1) {
      has_epsilon_ = true;
      take(node.a);
    } else {
      has_all_ |= arg == RegularPool::kAll;
      args_.push_back(arg);
    }
  }

  Expr join() {
    if (has_all_) return RegularPool::kAll;
    sort_args();
    if (args_.size() > 1) {
      split();
      join_counts();
      if (factor_) factor();
      factor_calls();
      join_tails();
      sort_args();
      if (absorb()) return RegularPool::kAll;
    }
    if (has_epsilon_) add_epsilon();
    if (args_.empty()) return RegularPool::kEmpty;
    if (args_.size() == 1) return args_[0];
    return pool_.intern(Op::kOr, args_);
  }

  void may_factor(bool factor) { factor_ = factor; }

 private:
  using Op = RegularPool::Op;
  struct Headed {
    std::uint32_t set;  // or the call
    Expr tail;
  };
  struct Counted {
    Expr arg, tail;
    std::uint32_t min, max;
  };

  void sort_args() {
    std::ranges::sort(args_);
    const auto repeated = std::ranges::unique(args_);
    args_.erase(repeated.begin(), repeated.end());
  }

  /// Moves the arguments that begin with bytes or a repeat from args_ to headed_ and counted_.
  void split() {
    std::vector<Expr> others;
    for (const auto arg : args_) {
      const auto& node = pool_.nodes_[arg];
      const auto& head = node.op == Op::kConcat ? pool_.nodes_[node.a] : node;
      const auto tail = node.op == Op::kConcat ? node.b : RegularPool::kEpsilon;
      if (head.op == Op::kBytes) {
        headed_.push_back({head.a, tail});
      } else if (head.op == Op::kCall && node.op == Op::kConcat) {
        called_.push_back({node.a, tail});
      } else if (head.op == Op::kRepeat) {
        counted_.push_back({head.a, tail, head.b, head.c});
      } else {
        others.push_back(arg);
      }
    }
    args_ = std::move(others);
  }

  /// X{a,b} T | X{c,d} T = X{min(a,c),max(b,d)} T if the ranges touch.
  void join_counts() {
    std::ranges::sort(counted_, {}, [](const Counted& x) { return std::tuple(x.arg, x.tail, x.min, x.max); });
    for (std::size_t i = 0; i < counted_.size();) {
      auto one = counted_[i++];
      for (; i < counted_.size() && counted_[i].arg == one.arg && counted_[i].tail == one.tail &&
             (one.max == kUnbounded || counted_[i].min <= one.max + 1);
           ++i)
        one.max = std::max(one.max, counted_[i].max);
      args_.push_back(pool_.concat(pool_.repeat(one.arg, one.min, one.max), one.tail));
    }
  }

  /// bT | bU = b(T | U). Only bytes are factored: their derivative is T | U as before, so nothing new arises.
  void factor() {
    std::ranges::sort(headed_, {}, [](const Headed& x) { return std::tuple(x.set, x.tail); });
    std::vector<Headed> joined;
    std::vector<Expr> tails;
    for (std::size_t i = 0; i < headed_.size();) {
      const auto set = headed_[i].set;
      tails.clear();
      for (; i < headed_.size() && headed_[i].set == set; ++i) tails.push_back(headed_[i].tail);
      joined.push_back({set, tails.size() == 1 ? tails[0] : pool_.or_(tails)});
    }
    headed_ = std::move(joined);
  }

  /// The same for calls, so that the stacks below a recursive rule stay shared.
  void factor_calls() {
    std::ranges::sort(called_, {}, [](const Headed& x) { return std::tuple(x.set, x.tail); });
    std::vector<Expr> tails;
    for (std::size_t i = 0; i < called_.size();) {
      const auto call = called_[i].set;
      tails.clear();
      for (; i < called_.size() && called_[i].set == call; ++i) tails.push_back(called_[i].tail);
      args_.push_back(pool_.concat(call, tails.size() == 1 || !factor_ ? tails[0] : pool_.or_(tails)));
      if (!factor_)
        for (std::size_t j = 1; j < tails.size(); ++j) args_.push_back(pool_.concat(call, tails[j]));
    }
  }

  /// bT | cT = [bc] T
  void join_tails() {
    std::ranges::sort(headed_, {}, [](const Headed& x) { return std::tuple(x.tail, x.set); });
    for (std::size_t i = 0; i < headed_.size();) {
      const auto tail = headed_[i].tail;
      ByteSet set;
      for (; i < headed_.size() && headed_[i].tail == tail; ++i) set |= pool_.sets_[headed_[i].set];
      args_.push_back(pool_.concat(pool_.bytes(set), tail));
    }
  }

  /// X | (X & Y) = X; true if X | ~X makes the whole alternation kAll. Precondition: args_ is sorted.
  bool absorb() {
    const auto has = [&](Expr arg) { return std::ranges::binary_search(args_, arg); };
    std::vector<Expr> kept;
    for (const auto arg : args_) {
      const auto& node = pool_.nodes_[arg];
      if (node.op == Op::kNot && has(node.a)) return true;
      if (node.op != Op::kAnd || std::ranges::none_of(pool_.args(node), has)) kept.push_back(arg);
    }
    args_ = std::move(kept);
    return false;
  }

  void add_epsilon() {
    for (const auto arg : args_)
      if (pool_.nodes_[arg].nullable) return;
    if (args_.size() == 1 && pool_.nodes_[args_[0]].op != Op::kOr) {
      const auto node = pool_.nodes_[args_[0]];
      args_[0] = node.op == Op::kRepeat && node.b == 1 ? pool_.repeat(node.a, 0, node.c) : pool_.repeat(args_[0], 0, 1);
      return;
    }
    args_.insert(args_.begin(), RegularPool::kEpsilon);
  }

  RegularPool& pool_;
  std::vector<Expr> args_;
  std::vector<Headed> headed_, called_;
  std::vector<Counted> counted_;
  bool has_epsilon_ = false, has_all_ = false, factor_ = true;
};

Expr RegularPool::or_(std::span<const Expr> wanted) {
  ++or_depth_;
  Alternation alternation(*this);
  alternation.may_factor(or_depth_ <= kFactoredMax);
  Expr expr = kEmpty;
  try {
    for (const auto arg : wanted) alternation.take(arg);
    expr = alternation.join();
  } catch (...) {
    --or_depth_;
    throw;
  }
  --or_depth_;
  return expr;
}

}  // namespace forge::text::constraint

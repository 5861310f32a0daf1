// The transfer functions of the mask analysis: how each operation changes the sets of covers.h.
#include "tests/exec_mask/covers.h"

#include <algorithm>

namespace forge::tests {

using namespace codegen;
namespace {

using Set = Covers::Set;
using Kind = MaskOperand::Kind;

/// Larger sets, and more sets than this, are dropped. That loses knowledge and can only make the checker stricter.
constexpr std::size_t kSetMost = 6, kSetsMost = 64;
constexpr Register kResult = 0xffff;

bool has(const Set& set, Register at) {
  return std::ranges::binary_search(set, at);
}
Set without(Set set, Register at) {
  std::erase(set, at);
  return set;
}
Set with(Set set, const Set& more) {
  set.insert(set.end(), more.begin(), more.end());
  std::ranges::sort(set);
  const auto rest = std::ranges::unique(set);
  set.erase(rest.begin(), rest.end());
  return set;
}

/// For each set that contains the operand: the rest of the set. For all-ones the rest is empty.
std::vector<Set> beside(const std::vector<Set>& sets, const MaskOperand& operand) {
  if (operand.kind == Kind::kOnes) return {Set{}};
  std::vector<Set> out;
  if (operand.kind == Kind::kRegister)
    for (const Set& set : sets)
      if (has(set, operand.at)) out.push_back(without(set, operand.at));
  return out;
}

/// Derives the sets that hold for the result of an operation.
class Derivation {
 public:
  Derivation(const std::vector<Set>& sets, const MaskOperand& a, const MaskOperand& b) : sets_(sets), a_(a), b_(b) {}

  std::vector<Set> run(MaskOp op) {
    switch (op) {
      case MaskOp::kCopy:
        contains(a_, {});
        break;
      case MaskOp::kOr:
        contains(a_, b_);
        contains(b_, a_);
        break;
      case MaskOp::kAnd:
      case MaskOp::kSelect:
        both();
        break;
      case MaskOp::kXor:
        united(a_, b_);
        united(b_, a_);
        break;
      case MaskOp::kAndNot:
        united(a_, b_);
        break;
      case MaskOp::kOrNot:
        contains(a_, {});
        all({b_});
        break;
      case MaskOp::kNot:
        all({a_});
        break;
      case MaskOp::kNand:
        all({a_});
        all({b_});
        break;
      case MaskOp::kNor:
      case MaskOp::kXnor:
        all({a_, b_});
        break;
    }
    return std::move(out_);
  }

 private:
  void add(const Set& set, const Set& more) { out_.push_back(with(with(set, more), {kResult})); }
  /// The result contains all lanes of x and, if `too` is a register, all lanes of `too`.
  void contains(const MaskOperand& x, const MaskOperand& too) {
    for (const Set& set : beside(sets_, x)) add(too.kind == Kind::kRegister ? without(set, too.at) : set, {});
  }
  /// The union of the result and y contains all lanes of x.
  void united(const MaskOperand& x, const MaskOperand& y) {
    if (y.kind == Kind::kUnknown || y.kind == Kind::kOnes) return;
    for (const Set& set : beside(sets_, x)) add(set, y.kind == Kind::kRegister ? Set{y.at} : Set{});
  }
  /// The result contains all lanes that are in both operands.
  void both() {
    for (const Set& left : beside(sets_, a_))
      for (const Set& right : beside(sets_, b_)) add(left, right);
  }
  /// The union of the result and `others` contains every lane.
  void all(const std::vector<MaskOperand>& others) {
    Set set;
    for (const MaskOperand& one : others) {
      if (one.kind == Kind::kUnknown || one.kind == Kind::kOnes) return;
      if (one.kind == Kind::kRegister) set = with(set, {one.at});
    }
    add(set, {});
  }

  const std::vector<Set>& sets_;
  const MaskOperand a_, b_;
  std::vector<Set> out_;
};

}  // namespace

Covers Covers::at_entry(Register exec) {
  Covers out;
  out.sets_ = {{exec}};
  return out;
}

bool Covers::has_all(Register at) const {
  return std::ranges::any_of(sets_, [&](const Set& set) { return set.empty() || (set.size() == 1 && set[0] == at); });
}

void Covers::forget(Register at) {
  std::erase_if(sets_, [&](const Set& set) { return has(set, at); });
}

void Covers::assign(Register to, MaskOp op, MaskOperand a, MaskOperand b) {
  std::vector<Set> derived = Derivation(sets_, a, b).run(op);
  forget(to);
  for (Set& set : derived) {
    if (has(set, to)) continue;  // it names the overwritten value
    set = with(without(std::move(set), kResult), {to});
    sets_.push_back(std::move(set));
  }
  normalise();
}

void Covers::set_zero(Register at) {
  for (Set& set : sets_) std::erase(set, at);
  normalise();
}

void Covers::meet(const Covers& other) {
  std::vector<Set> all;
  for (const Set& left : sets_)
    for (const Set& right : other.sets_) all.push_back(with(left, right));
  sets_ = std::move(all);
  normalise();
}

void Covers::normalise() {
  std::ranges::sort(sets_,
                    [](const Set& a, const Set& b) { return a.size() != b.size() ? a.size() < b.size() : a < b; });
  std::vector<Set> kept;
  for (Set& set : sets_) {
    if (set.size() > kSetMost || kept.size() == kSetsMost) break;
    if (std::ranges::none_of(kept, [&](const Set& less) { return std::ranges::includes(set, less); }))
      kept.push_back(std::move(set));
  }
  sets_ = std::move(kept);
}

}  // namespace forge::tests

#pragma once
// What holds before an instruction, and what an instruction makes of it: the checker's model of the ISA.

#include <set>

#include "tests/exec_mask/covers.h"

namespace forge::tests {

/// A lane of a vector register that scalar registers are spilled to, as a register of Covers.
[[nodiscard]] constexpr Register spill_slot(int vector, int lane) {
  return static_cast<Register>(256 + vector * 64 + lane);
}

class MaskState {
 public:
  /// At a kernel's entry. spills: vector registers that v_writelane writes.
  MaskState(int wave, const std::set<int>* spills);

  /// Are all lanes of the entry mask on?
  [[nodiscard]] bool all_on() const;
  /// Has v_writelane written this lane on every path that comes here?
  [[nodiscard]] bool is_spilled(int vector, int lane) const { return written_.contains(spill_slot(vector, lane)); }
  /// The instruction after which lanes may be off, on one path at least; null if none are.
  [[nodiscard]] const Instruction* narrowed_by() const { return narrowed_by_; }

  void run(const Instruction& instruction);
  /// The edge on which exec is zero; false if that cannot be.
  [[nodiscard]] bool none_on();
  /// What holds on both paths; says whether this state changed.
  bool meet(const MaskState& other);

 private:
  void run_scalar(const Instruction& instruction);
  bool run_mask_op(const Instruction& instruction);
  bool run_save_exec(const Instruction& instruction, std::string_view op, bool saves_old);
  void run_vector(const Instruction& instruction);
  void forget_spills(const Instruction& instruction);
  void forget(std::string_view operand);
  void assign(Register to, MaskOp op, MaskOperand a, MaskOperand b = {});

  int wave_;
  const std::set<int>* spills_;
  Covers low_, high_;  // of lanes 0 to 31, and 32 to 63
  std::set<Register> written_;
  const Instruction* narrowed_by_ = nullptr;
};

}  // namespace forge::tests

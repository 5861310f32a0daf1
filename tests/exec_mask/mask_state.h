#pragma once
// The state before an instruction and the effect of an instruction on it: the checker's model of the ISA.

#include <set>

#include "tests/exec_mask/covers.h"

namespace forge::tests {

/// A lane of a vector register that a scalar register is spilled to, numbered as a register of Covers.
[[nodiscard]] constexpr Register spill_slot(int vector, int lane) {
  return static_cast<Register>(256 + vector * 64 + lane);
}

class MaskState {
 public:
  /// The state at a kernel's entry. spills: the vector registers that v_writelane writes.
  MaskState(int wave, const std::set<int>* spills);

  /// True if all lanes of the entry mask are on.
  [[nodiscard]] bool all_on() const;
  /// True if v_writelane has written this lane on every path to here.
  [[nodiscard]] bool is_spilled(int vector, int lane) const { return written_.contains(spill_slot(vector, lane)); }
  /// The instruction after which lanes may be off on at least one path; null if there is none.
  [[nodiscard]] const codegen::Instruction* narrowed_by() const { return narrowed_by_; }

  void run(const codegen::Instruction& instruction);
  /// Narrows the state to the edge on which exec is zero. Returns false if exec cannot be zero.
  [[nodiscard]] bool none_on();
  /// Keeps the facts that hold on both paths. Returns true if this state changed.
  bool meet(const MaskState& other);

 private:
  void run_scalar(const codegen::Instruction& instruction);
  bool run_mask_op(const codegen::Instruction& instruction);
  bool run_save_exec(const codegen::Instruction& instruction, std::string_view op, bool saves_old);
  void run_vector(const codegen::Instruction& instruction);
  void forget_spills(const codegen::Instruction& instruction);
  void forget(std::string_view operand);
  void assign(Register to, MaskOp op, MaskOperand a, MaskOperand b = {});

  int wave_;
  const std::set<int>* spills_;
  Covers low_, high_;  // lanes 0 to 31, and 32 to 63
  std::set<Register> written_;
  const codegen::Instruction* narrowed_by_ = nullptr;
};

}  // namespace forge::tests

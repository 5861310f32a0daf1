#pragma once
// Known facts about the lane masks in registers. A fact is a set of registers whose union contains every lane of the
// kernel's entry mask. {exec} means that no lane is off; {exec, s4} means that every lane that is off is set in s4. A
// register holds 32 lanes, so a wave of 64 uses two of these objects.

#include <cstdint>
#include <vector>

#include "codegen/gpu/code/listing.h"

namespace forge::tests {

using codegen::Register;

/// A mask operand of an instruction.
struct MaskOperand {
  enum class Kind : std::uint8_t { kRegister, kZeros, kOnes, kUnknown } kind = Kind::kUnknown;
  Register at = 0;
};

enum class MaskOp : std::uint8_t { kCopy, kNot, kAnd, kOr, kXor, kAndNot, kOrNot, kNand, kNor, kXnor, kSelect };

class Covers {
 public:
  using Set = std::vector<Register>;  // sorted

  /// The facts at a kernel's entry: `exec` holds the entry mask.
  static Covers at_entry(Register exec);

  /// True if the register alone contains every lane of the entry mask.
  [[nodiscard]] bool has_all(Register at) const;
  /// True if the entry mask has no lanes, which cannot happen on a path that is taken.
  [[nodiscard]] bool impossible() const { return sets_.size() == 1 && sets_.front().empty(); }

  void forget(Register at);
  /// to = op(a, b), lane by lane. kSelect yields a or b, and it is unknown which. kCopy and kNot use only a.
  void assign(Register to, MaskOp op, MaskOperand a, MaskOperand b = {});
  /// Records that the register is zero here.
  void set_zero(Register at);
  /// Keeps the facts that hold on both of two joining paths.
  void meet(const Covers& other);

  bool operator==(const Covers&) const = default;

 private:
  void normalise();
  std::vector<Set> sets_;  // no set contains another; sorted
};

}  // namespace forge::tests

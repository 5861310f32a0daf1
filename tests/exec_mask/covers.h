#pragma once
// What is known of the masks in registers: sets of registers that together have every lane of the mask at the kernel's
// entry. {exec} says that no lane of it is off; {exec, s4}, that those which are off are in s4. A register holds 32
// lanes, so waves of 64 are two of these.

#include <cstdint>
#include <vector>

#include "tests/exec_mask/listing.h"

namespace forge::tests {

/// What an instruction takes as a mask.
struct MaskOperand {
  enum class Kind : std::uint8_t { kRegister, kZeros, kOnes, kUnknown } kind = Kind::kUnknown;
  Register at = 0;
};

enum class MaskOp : std::uint8_t { kCopy, kNot, kAnd, kOr, kXor, kAndNot, kOrNot, kNand, kNor, kXnor, kSelect };

class Covers {
 public:
  using Set = std::vector<Register>;  // sorted

  /// What is known where a kernel starts: `exec` has its own entry mask.
  static Covers at_entry(Register exec);

  /// Does the register alone have every lane of the entry mask?
  [[nodiscard]] bool has_all(Register at) const;
  /// Are there no such lanes at all? Not on any path that is taken.
  [[nodiscard]] bool impossible() const { return sets_.size() == 1 && sets_.front().empty(); }

  void forget(Register at);
  /// to = op(a, b), lane by lane. kSelect: one of them, nobody knows which. kCopy and kNot take a alone.
  void assign(Register to, MaskOp op, MaskOperand a, MaskOperand b = {});
  /// The register is known to be zero here.
  void set_zero(Register at);
  /// What holds on both of two paths.
  void meet(const Covers& other);

  bool operator==(const Covers&) const = default;

 private:
  void normalise();
  std::vector<Set> sets_;  // none contains another; sorted
};

}  // namespace forge::tests

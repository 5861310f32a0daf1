#pragma once
// Cross-lane instructions that run while lanes are switched off, found in disassembly. A kernel's blocks are whole
// waves, so every lane is on at its entry; an instruction that reads other lanes is right only where they still are.
// The host lane executor cannot see what a compiler moves, this can: it follows the exec mask and its copies through
// the code (covers.h), over branches and loops, and says where a cross-lane instruction may be reached under a narrower
// mask. What it does not understand counts as narrowing. Instructions: AMD's ISA guides for Vega, CDNA 1-3 and RDNA
// 1-4.

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "tests/exec_mask/listing.h"

namespace forge::tests {

struct MaskFinding {
  std::string kernel;
  std::uint64_t address = 0;
  std::string text;  ///< the instruction
  std::string why;
};

struct MaskReport {
  std::vector<MaskFinding> findings;
  int kernels = 0;                        ///< functions that were looked at
  std::map<std::string, int> cross_lane;  ///< instructions that can be reached, by class: cross_lane_class's
  void add(const MaskReport& more);
};

/// "dpp", "permlane", "swizzle", "bpermute", "matrix", "transpose" or "readlane" for an instruction that reads other
/// lanes; "" for any other. v_readfirstlane is none: it reads an active lane, whichever are.
[[nodiscard]] std::string_view cross_lane_class(const Instruction& instruction);

/// Looks at every function of a listing as a kernel of its own. wave: 32 or 64.
[[nodiscard]] MaskReport check_masks(const std::vector<Function>& functions, int wave);

/// "kernel+0x1b0: v_permlanex16_b32 ...: why".
[[nodiscard]] std::string line_of(const MaskFinding& finding);

}  // namespace forge::tests

#pragma once
// Finds cross-lane instructions that run while lanes are switched off, by analysing disassembly. The blocks of forge's
// kernels consist of whole waves, so every lane is on at the entry. An instruction that reads other lanes is correct
// only where all lanes are still on. A compiler may move such an instruction into a branch, which the host lane
// executor cannot see. This checker can: it follows the exec mask and copies of it (covers.h) through branches and
// loops, and reports each cross-lane instruction that may be reached under a narrower mask. An instruction that it does
// not understand counts as narrowing. Source: AMD's ISA guides for Vega, CDNA 1-3 and RDNA 1-4.

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "codegen/gpu/code/listing.h"

namespace forge::tests {

struct MaskFinding {
  std::string kernel;
  std::uint64_t address = 0;
  std::string text;  ///< the instruction
  std::string why;
};

struct MaskReport {
  std::vector<MaskFinding> findings;
  int kernels = 0;                        ///< number of functions analysed
  std::map<std::string, int> cross_lane;  ///< reachable cross-lane instructions by cross_lane_class
  void add(const MaskReport& more);
};

/// The class of an instruction that reads other lanes: "dpp", "permlane", "swizzle", "bpermute", "matrix", "transpose"
/// or "readlane". "" for any other, including v_readfirstlane, which reads an active lane under any mask.
[[nodiscard]] std::string_view cross_lane_class(const codegen::Instruction& instruction);

/// Analyses each function of a listing as a kernel. wave: 32 or 64.
[[nodiscard]] MaskReport check_masks(const std::vector<codegen::Function>& functions, int wave);

/// A finding as text: "kernel+0x1b0: v_permlanex16_b32 ...: why".
[[nodiscard]] std::string line_of(const MaskFinding& finding);

}  // namespace forge::tests

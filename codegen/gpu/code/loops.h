#pragma once
// The control flow of a kernel: basic blocks and natural loops. A loop is the blocks from which a back edge's source
// can be reached without its header, and the header dominates them. Source: Aho, Lam, Sethi, Ullman, Compilers, 9.6.
//
//        +-> header ---> exit          block 1 is the header of the loop {1, 2}: block 2 branches back to it
//        |     |
//        +---- body

#include <cstddef>
#include <optional>
#include <span>
#include <vector>

#include "codegen/gpu/code/listing.h"

namespace forge::codegen {

inline constexpr std::size_t kNoLoop = static_cast<std::size_t>(-1);

/// Instructions [first, end) that run one after the other.
struct BasicBlock {
  std::size_t first = 0, end = 0;
  std::vector<std::size_t> next;  ///< blocks that may follow
  std::size_t loop = kNoLoop;     ///< the innermost loop around it
};

struct NaturalLoop {
  std::size_t header = 0;
  std::vector<std::size_t> blocks;  ///< ascending, with the header and those of inner loops
  std::size_t parent = kNoLoop;     ///< the next loop around it
};

struct ControlFlow {
  std::vector<BasicBlock> blocks;  ///< in the order of addresses; the first is the entry
  std::vector<NaturalLoop> loops;  ///< outer loops before the loops in them
  /// A branch's target is not known (calls, jumps to registers), or there are too many blocks to look for loops.
  bool jumps_unseen = false;

  /// True if `loop`, or a loop in it, is the innermost one around the block.
  [[nodiscard]] bool contains(std::size_t loop, std::size_t block) const;
  [[nodiscard]] std::size_t block_of(std::size_t instruction) const;
};

[[nodiscard]] bool is_branch(const Instruction& one);
[[nodiscard]] bool is_end(const Instruction& one);
/// True for calls and jumps whose target a listing does not tell.
[[nodiscard]] bool jumps_unseen(const Instruction& one);
/// Index of the instruction at an address; nothing if none begins there. code: in the order of addresses.
[[nodiscard]] std::optional<std::size_t> instruction_at(std::span<const Instruction> code, std::uint64_t address);

[[nodiscard]] ControlFlow control_flow(const Function& function);

}  // namespace forge::codegen

#pragma once
// Walks a kernel's waves through its code and counts what they execute, without a GPU and without the data: registers
// are partly known (wave.h), which decides the branches that depend on lane numbers, block numbers, the launch's
// constants, the step's inputs and counters. Waves of a block take turns at barriers, so shared memory passes on what
// is known. A branch that is not decided is guessed:
//
//   leaves a loop             the loop runs once
//   s_cbranch_execz           some lane is on: not taken; s_cbranch_execnz: taken
//   s_cbranch_vccz, vccnz     no lane asks the whole wave for more: of two ways, the one that leads into the other is
//                             left out
//   another                   not taken
//
// A grid too large for the budget is sampled: one block of each of so many equal parts stands for all.

#include <cstdint>
#include <vector>

#include "codegen/gpu/code/loops.h"
#include "codegen/gpu/code/wave.h"

namespace forge::codegen {

/// Where a kernel finds its arguments and its block's number (entry_registers in descriptor.h).
struct EntryRegisters {
  Register arguments = 0, block = 0;
};

struct WalkLaunch {
  std::int64_t blocks = 1;
  int threads = 32;
  int wave = 32;  ///< lanes of a wave
  std::size_t lds_bytes = 0;
  EntryRegisters entry;
  std::vector<std::uint64_t> arguments;  ///< the argument struct: addresses and constants
};

struct WalkOptions {
  std::uint64_t budget = 12'000'000;        ///< instructions after which a grid's blocks are sampled
  std::uint64_t block_budget = 50'000'000;  ///< a block that executes more than this does not end
};

/// What the walked waves did, scaled to the whole grid.
struct WalkCounts {
  std::vector<double> executed;  ///< by instruction, wave-instructions
  std::vector<double> entries;   ///< by loop: how often it was entered; the header's count divided by it is the trips
  double decisions = 0, guesses = 0;  ///< conditional branches, and those that were guessed
  std::vector<bool> guessed_loops;    ///< loops whose number of turns is not known
  std::int64_t blocks_walked = 0;
  bool complete = true;  ///< false: a block did not end, or jumps where the code does not say
};

/// Errors: none; a kernel that cannot be walked to its end gives incomplete counts.
[[nodiscard]] WalkCounts walk(const Function& function, const ControlFlow& flow, const WalkLaunch& launch,
                              WalkMemory& memory, const WalkOptions& options = {});

}  // namespace forge::codegen

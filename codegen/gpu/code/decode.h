#pragma once
// Instructions of a listing with their operands as register numbers and constants, so that they can be run (wave.h).

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "codegen/gpu/code/listing.h"

namespace forge::codegen {

/// Classes of instructions, by the unit that executes them.
enum class InstructionClass : std::uint8_t {
  kVector,  ///< VALU; a dual instruction (VOPD) is one
  kScalar,  ///< SALU and scalar loads
  kMatrix,  ///< WMMA, MFMA
  kLoad,    ///< vector loads and atomics from global memory, scratch and buffers
  kStore,   ///< vector stores
  kLds,     ///< shared memory and shuffles through its crossbar
  kWait,    ///< barriers, waits, delays, hints: no unit works
  kBranch,  ///< branches and the end
};
inline constexpr std::size_t kInstructionClasses = 8;
/// "VALU", "SALU", "matrix", "load", "store", "LDS", "wait", "branch".
[[nodiscard]] std::string_view class_name(InstructionClass one);
/// By the start of the mnemonic (class_rows in decode.cc). Source: AMD's ISA guides.
[[nodiscard]] InstructionClass class_of(std::string_view mnemonic);

/// An operand: `words` registers from number `at` on, or a constant.
struct DecodedOperand {
  enum class Kind : std::uint8_t { kNone, kScalar, kVector, kConstant } kind = Kind::kNone;
  std::uint16_t at = 0, words = 1;
  std::uint64_t constant = 0;  ///< sign-extended
};

/// How the first source's lanes are moved on their way in (DPP), or those that ds_swizzle returns.
enum class LaneMove : std::uint8_t {
  kNone,
  kXor,      ///< lane i reads lane i ^ n
  kRotate,   ///< within rows of 16: lane i reads lane i - n
  kQuad,     ///< within four lanes: lane i reads lane n >> (2 * i) & 3
  kUnknown,  ///< another way, or a part of a register (SDWA)
};
/// The lane that `lane` reads.
[[nodiscard]] int moved_from(LaneMove move, int amount, int lane);

struct Rule;  // how it is run (wave_rules.h)

/// One operation: an instruction, or half of a dual one.
struct Operation {
  std::string name;  ///< the mnemonic without suffixes of its encoding: "v_add_nc_u32"
  std::vector<DecodedOperand> operands;
  std::string modifiers;                         ///< what follows the last operand: "offset:16 glc"
  std::int64_t offset = 0;                       ///< of "offset:"
  std::int64_t first_slot = 0, second_slot = 0;  ///< of "offset0:" and "offset1:"
  LaneMove move = LaneMove::kNone;
  int move_amount = 0;
  const Rule* rule = nullptr;
};

/// The operations of an instruction: one, or two of a dual instruction. Rules are not set.
[[nodiscard]] std::vector<Operation> decode(const Instruction& instruction);

}  // namespace forge::codegen

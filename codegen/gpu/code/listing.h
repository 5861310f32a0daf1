#pragma once
// Disassembly of AMD kernels as data. Parses llvm-objdump's text, or hand-written lines of the same form with labels.

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace forge::codegen {

struct Instruction {
  std::uint64_t address = 0;
  std::string mnemonic;
  std::vector<std::string> operands;    ///< modifiers stay attached to the last one: "v0 row_xmask:1 row_mask:0xf"
  std::string text;                     ///< the listing's text, without the encoding
  std::optional<std::uint64_t> target;  ///< destination of a branch with a constant target

  [[nodiscard]] std::string_view operand(std::size_t index) const {
    return index < operands.size() ? std::string_view(operands[index]) : std::string_view();
  }
};

/// The code from one symbol to the next.
struct Function {
  std::string name;
  std::vector<Instruction> instructions;
};

/// Symbol lines look like "0000000000001600 <k>:", label lines like "loop:". The address of an instruction follows "//
/// "; without one it is 4 more than that of the instruction before. Code before the first symbol becomes a function
/// without a name.
[[nodiscard]] std::vector<Function> parse_listing(std::string_view text);

/// Number of a 32-bit scalar register; vcc, exec and others have the numbers of the ISA guides' operand tables.
using Register = std::uint16_t;
inline constexpr Register kVccLow = 106, kTrapFirst = 108, kM0 = 125, kExecLow = 126, kExecHigh = 127;

/// The scalar registers that an operand names, low half first: {4, 5} for "s[4:5]". Empty if it names none.
[[nodiscard]] std::vector<Register> scalar_registers(std::string_view operand);

/// The first and last vector register that an operand names: {10, 11} for "v[10:11]". Accumulation registers are
/// treated like vector registers.
[[nodiscard]] std::optional<std::pair<int, int>> vector_registers(std::string_view operand);

/// 64 if the code handles masks in register pairs, else 32.
[[nodiscard]] int wave_of(const std::vector<Function>& functions);

}  // namespace forge::codegen

#pragma once
// Disassembly of AMD kernels as data: llvm-objdump's text, or the same lines written by hand with labels.

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace forge::tests {

struct Instruction {
  std::uint64_t address = 0;
  std::string mnemonic;
  std::vector<std::string> operands;    ///< modifiers stay behind the last one: "v0 row_xmask:1 row_mask:0xf"
  std::string text;                     ///< as the listing has it, without encoding
  std::optional<std::uint64_t> target;  ///< of a branch to a constant place

  [[nodiscard]] std::string_view operand(std::size_t index) const {
    return index < operands.size() ? std::string_view(operands[index]) : std::string_view();
  }
};

/// The code from one symbol to the next.
struct Function {
  std::string name;
  std::vector<Instruction> instructions;
};

/// Symbols are lines like "0000000000001600 <k>:", labels lines like "loop:"; an instruction has its address behind
/// "// ", or 4 more than the one before. What stands before the first symbol is a function without a name.
[[nodiscard]] std::vector<Function> parse_listing(std::string_view text);

/// Numbers of 32-bit scalar registers; vcc, exec and the like have those of the ISA guides' operand tables.
using Register = std::uint16_t;
inline constexpr Register kVccLow = 106, kTrapFirst = 108, kM0 = 125, kExecLow = 126, kExecHigh = 127;

/// The scalar registers that an operand names, low half first: {4, 5} of "s[4:5]". Empty: it names none.
[[nodiscard]] std::vector<Register> scalar_registers(std::string_view operand);

/// The first and last vector register that an operand names: {10, 11} of "v[10:11]"; accumulation registers are not
/// told apart from what they are not.
[[nodiscard]] std::optional<std::pair<int, int>> vector_registers(std::string_view operand);

/// 64 if the code has registers of masks in pairs, else 32.
[[nodiscard]] int wave_of(const std::vector<Function>& functions);

}  // namespace forge::tests

// Reads the floating-point mode from the kernel descriptor of an AMD code object (float_mode.h).
#include "tests/exec_mask/float_mode.h"

#include <fmt/format.h>

#include <cstdint>
#include <optional>

#include "codegen/gpu/code/descriptor.h"
#include "codegen/gpu/compile/elf_image.h"

namespace forge::tests {
namespace {

using codegen::read_at;

constexpr std::uint64_t kResource1 = 48;
/// Bits 12 to 15: rounding of f32, and of f16 and f64. Bits 16 to 19: denormal handling, in the same order.
constexpr std::uint32_t kModeMask = 0xff000, kModeWanted = 0xf0000;

}  // namespace

std::string float_mode_error(std::span<const std::byte> code, const codegen::Function& function) {
  const auto at = codegen::descriptor_at(code, function.name);
  const auto resource1 = at ? read_at<std::uint32_t>(code, *at + kResource1) : std::nullopt;
  if (!resource1) return "there is no kernel descriptor";
  if ((*resource1 & kModeMask) != kModeWanted)
    return fmt::format("it starts in floating-point mode {:#x}, not {:#x}", (*resource1 & kModeMask) >> 12,
                       kModeWanted >> 12);
  for (const codegen::Instruction& one : function.instructions) {
    const bool sets = one.mnemonic.starts_with("s_denorm_mode") || one.mnemonic.starts_with("s_round_mode") ||
                      (one.mnemonic.starts_with("s_setreg") && one.text.find("MODE") != std::string::npos);
    if (sets) return fmt::format("{} changes its floating-point mode", one.text);
  }
  return {};
}

}  // namespace forge::tests

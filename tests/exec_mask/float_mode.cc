// Reads the floating-point mode from the kernel descriptor of an AMD code object (float_mode.h).
#include "tests/exec_mask/float_mode.h"

#include <fmt/format.h>

#include <cstdint>
#include <cstring>
#include <optional>

#include "codegen/gpu/compile/elf_image.h"

namespace forge::tests {
namespace {

using codegen::read_at;

/// Layout of an ELF symbol: 24 bytes, with the offsets of its address and size.
constexpr std::size_t kSymbolBytes = 24, kSymbolValue = 8, kSymbolSize = 16;
constexpr std::uint64_t kDescriptorBytes = 64, kResource1 = 48;
/// Bits 12 to 15: rounding of f32, and of f16 and f64. Bits 16 to 19: denormal handling, in the same order.
constexpr std::uint32_t kModeMask = 0xff000, kModeWanted = 0xf0000;

/// File offset of the descriptor. In read-only data the file offset equals the address.
std::optional<std::uint64_t> descriptor_at(const codegen::ElfImage& elf, const std::string& kernel) {
  const auto *symbols = elf.find(".dynsym"), *names = elf.find(".dynstr");
  if (symbols == nullptr || names == nullptr) return std::nullopt;
  const std::string wanted = kernel + ".kd";
  for (std::size_t at = 0; at + kSymbolBytes <= symbols->bytes.size(); at += kSymbolBytes) {
    const auto name = read_at<std::uint32_t>(symbols->bytes, at);
    const auto value = read_at<std::uint64_t>(symbols->bytes, at + kSymbolValue);
    const auto size = read_at<std::uint64_t>(symbols->bytes, at + kSymbolSize);
    if (!name || !value || !size || *name + wanted.size() >= names->bytes.size() || *size != kDescriptorBytes) continue;
    if (std::memcmp(names->bytes.data() + *name, wanted.c_str(), wanted.size() + 1) == 0) return value;
  }
  return std::nullopt;
}

}  // namespace

std::string float_mode_error(std::span<const std::byte> code, const Function& function) {
  const auto elf = codegen::ElfImage::parse(code);
  const auto at = elf ? descriptor_at(*elf, function.name) : std::nullopt;
  const auto resource1 = at ? read_at<std::uint32_t>(code, *at + kResource1) : std::nullopt;
  if (!resource1) return "there is no kernel descriptor";
  if ((*resource1 & kModeMask) != kModeWanted)
    return fmt::format("it starts in floating-point mode {:#x}, not {:#x}", (*resource1 & kModeMask) >> 12,
                       kModeWanted >> 12);
  for (const Instruction& one : function.instructions) {
    const bool sets = one.mnemonic.starts_with("s_denorm_mode") || one.mnemonic.starts_with("s_round_mode") ||
                      (one.mnemonic.starts_with("s_setreg") && one.text.find("MODE") != std::string::npos);
    if (sets) return fmt::format("{} changes its floating-point mode", one.text);
  }
  return {};
}

}  // namespace forge::tests

#include "codegen/gpu/code/descriptor.h"

#include <array>
#include <cstring>
#include <string>

#include "codegen/gpu/compile/elf_image.h"

namespace forge::codegen {
namespace {

/// Layout of an ELF symbol: 24 bytes, with the offsets of its address and size.
constexpr std::size_t kSymbolBytes = 24, kSymbolValue = 8, kSymbolSize = 16;
constexpr std::uint64_t kDescriptorBytes = 64, kResource2 = 52, kProperties = 56;
/// Registers of what a kernel may be given before its arguments, in the order of the bits of kProperties: private
/// segment buffer, dispatch packet, queue, then the arguments' address.
constexpr std::array<int, 3> kBeforeArguments{4, 2, 2};
constexpr std::uint32_t kGivesArguments = 1 << 3;

}  // namespace

// In read-only data the file offset equals the address.
std::optional<std::uint64_t> descriptor_at(std::span<const std::byte> code, std::string_view kernel) {
  const auto elf = ElfImage::parse(code);
  const auto *symbols = elf ? elf->find(".dynsym") : nullptr, *names = elf ? elf->find(".dynstr") : nullptr;
  if (symbols == nullptr || names == nullptr) return std::nullopt;
  const std::string wanted = std::string(kernel) + ".kd";
  for (std::size_t at = 0; at + kSymbolBytes <= symbols->bytes.size(); at += kSymbolBytes) {
    const auto name = read_at<std::uint32_t>(symbols->bytes, at);
    const auto value = read_at<std::uint64_t>(symbols->bytes, at + kSymbolValue);
    const auto size = read_at<std::uint64_t>(symbols->bytes, at + kSymbolSize);
    if (!name || !value || !size || *name + wanted.size() >= names->bytes.size() || *size != kDescriptorBytes) continue;
    if (std::memcmp(names->bytes.data() + *name, wanted.c_str(), wanted.size() + 1) == 0) return value;
  }
  return std::nullopt;
}

std::optional<EntryRegisters> entry_registers(std::span<const std::byte> code, std::string_view kernel,
                                              const GpuTarget& target) {
  const auto at = descriptor_at(code, kernel);
  const auto resource2 = at ? read_at<std::uint32_t>(code, *at + kResource2) : std::nullopt;
  const auto properties = at ? read_at<std::uint16_t>(code, *at + kProperties) : std::nullopt;
  if (!resource2 || !properties || (*properties & kGivesArguments) == 0) return std::nullopt;
  int arguments = 0;
  for (std::size_t i = 0; i < kBeforeArguments.size(); ++i)
    if ((*properties >> i & 1) != 0) arguments += kBeforeArguments[i];
  // From gfx12 on the block's number is in ttmp9, before that in the first register behind the user's.
  constexpr int kTtmp9 = kTrapFirst + 9;
  const int block = target.name.starts_with("gfx12") ? kTtmp9 : static_cast<int>(*resource2 >> 1 & 31);
  return EntryRegisters{.arguments = static_cast<Register>(arguments), .block = static_cast<Register>(block)};
}

}  // namespace forge::codegen

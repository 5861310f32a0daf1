// Disassembly by the vendors' tools, for forge-inspect and tests.
#include <fmt/format.h>
#include <sys/mman.h>
#include <unistd.h>

#include <array>

#include "codegen/gpu/compile/code_object.h"
#include "codegen/program_output.h"
#include "support/os/unique_fd.h"

namespace forge::codegen {

std::optional<std::string> disassemble(std::span<const std::byte> code, const GpuTarget& target) {
  // Without CLOEXEC: the tool opens the file by its descriptor's path.
  const UniqueFd file(memfd_create("forge-code", 0));
  if (!file || write(file.get(), code.data(), code.size()) != static_cast<ssize_t>(code.size())) return std::nullopt;
  const std::string path = fmt::format("/proc/self/fd/{}", file.get());
  std::vector<std::vector<std::string>> commands;
  if (target.vendor == driver::Vendor::kNvidia) {
    for (const char* tool : {"cuobjdump", "/usr/local/cuda/bin/cuobjdump"})
      commands.push_back({tool, "--dump-sass", path});
    for (const char* tool : {"nvdisasm", "/usr/local/cuda/bin/nvdisasm"}) commands.push_back({tool, path});
  } else {
    for (const char* tool : {"llvm-objdump-19", "llvm-objdump", "/opt/rocm/llvm/bin/llvm-objdump"})
      commands.push_back({tool, "-d", path});
  }
  for (const auto& command : commands)
    if (auto output = output_of(command); output.text) return std::move(output.text);
  return std::nullopt;
}

}  // namespace forge::codegen

#pragma once
// The kernel descriptor of an AMD code object: 64 bytes of read-only data that say how a kernel starts. Source: LLVM's
// AMDGPUUsage, "Kernel Descriptor" and "Initial Kernel Execution State".

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>

#include "codegen/gpu/code/walk.h"
#include "codegen/gpu/targets.h"

namespace forge::codegen {

/// File offset of the descriptor of `kernel`; nothing if there is none.
[[nodiscard]] std::optional<std::uint64_t> descriptor_at(std::span<const std::byte> code, std::string_view kernel);

/// The registers that a kernel starts with; nothing if there is no descriptor or it passes no arguments.
[[nodiscard]] std::optional<EntryRegisters> entry_registers(std::span<const std::byte> code, std::string_view kernel,
                                                            const GpuTarget& target);

}  // namespace forge::codegen

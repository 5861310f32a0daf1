#pragma once
// forge-inspect PLAN --code DIR: writes a plan's GPU code objects to files, for disassemblers and debuggers.

#include <cstddef>
#include <filesystem>

namespace forge::tools {

/// Writes every code object of a plan as NAME.hsaco or NAME.cubin to `folder`, which is created if missing, and NAME.s
/// if a disassembler for the target is installed. With several programs, each target has its own folder in it. Returns
/// the number of code objects. Errors: those of read_plan; kIo; kPlan for a name that is not usable as a file name.
std::size_t write_code_objects(const std::filesystem::path& plan, const std::filesystem::path& folder);

}  // namespace forge::tools

#pragma once
// forge-inspect PLAN --code DIR: a plan's code objects as files, for disassemblers and debuggers.

#include <cstddef>
#include <filesystem>

namespace forge::tools {

/// Writes every code object of a plan to `folder`, which is made when it is missing, as NAME.hsaco or NAME.cubin, and
/// beside it NAME.s where a disassembler for its target is installed; with several programs, in a folder of each
/// target. Gives the number of code objects. Errors: those of read_plan; kIo; kPlan for a name that is no file name.
std::size_t write_code_objects(const std::filesystem::path& plan, const std::filesystem::path& folder);

}  // namespace forge::tools

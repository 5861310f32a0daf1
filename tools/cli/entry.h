#pragma once
// What every tool's main does: catches signals, reports an error as one line, gives the exit status.

#include <functional>

namespace forge::tools {

/// Runs `body` and gives the process's exit status: its result, or that of the error it throws, after one line on
/// stderr. SIGPIPE is ignored: Output tells when stdout's reader is gone.
int run_tool(const std::function<int()>& body) noexcept;

}  // namespace forge::tools

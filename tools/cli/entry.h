#pragma once
// The common frame of every tool's main(): signals, error reporting and the exit status.

#include <functional>

namespace forge::tools {

/// Runs `body` and returns the process's exit status: the result of `body`, or the status of the error it throws, after
/// printing the error as one line to stderr. A signal gives 128 + its number. SIGPIPE is ignored: Output::closed()
/// reports that the reader of stdout has gone.
int run_tool(const std::function<int()>& body) noexcept;

}  // namespace forge::tools

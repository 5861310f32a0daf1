#pragma once
// forge-compile: compiles a model into a plan.

namespace forge::tools {

/// Parses the command line, compiles, and writes the plan to a file or the cache. Returns the exit status. Errors:
/// kUsage; those of reading, compiling and writing; kCache when the plan cannot be stored in the cache.
int compile_command(int argc, char** argv);

}  // namespace forge::tools

#pragma once
// forge-compile: a model into a plan.

namespace forge::tools {

/// Parses the command line and does what it says; returns the exit status. Errors: kUsage; those of reading, compiling
/// and writing; kCache when the plan was to go into the cache and cannot.
int compile_command(int argc, char** argv);

}  // namespace forge::tools

#pragma once
// Runs another program and captures its standard output. Used for the vendors' disassemblers and Graphviz.

#include <optional>
#include <span>
#include <string>

namespace forge::codegen {

struct ProgramOutput {
  bool found = false;               ///< the program exists and was started
  std::optional<std::string> text;  ///< its standard output; nothing if it failed
};

/// Runs a program from $PATH with its arguments and waits for it. Its standard input is empty and its standard error is
/// discarded. Files that it opens through /proc/self/fd must be open here without CLOEXEC.
[[nodiscard]] ProgramOutput output_of(std::span<const std::string> command);

}  // namespace forge::codegen

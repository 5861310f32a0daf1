#pragma once
// What another program says on its standard output: for the vendors' tools, and Graphviz.

#include <optional>
#include <span>
#include <string>

namespace forge::codegen {

struct ProgramOutput {
  bool found = false;               ///< is there such a program?
  std::optional<std::string> text;  ///< what it said; nothing when it failed
};

/// Runs a program of $PATH with its arguments and waits for it. It reads nothing, and its errors are not shown. Files
/// that it is to open by /proc/self/fd must be open without CLOEXEC.
[[nodiscard]] ProgramOutput output_of(std::span<const std::string> command);

}  // namespace forge::codegen

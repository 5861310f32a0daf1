#pragma once
// Searches for a random script of operations that breaks an invariant of the simulated world (engine_world.h).

#include <string>
#include <vector>

#include "tests/runtime/engine_world.h"

namespace forge::test {

using Script = std::vector<Op>;

/// Runs the script in a new world. Returns the message of the invariant that it breaks; empty if none.
std::string broken_by(const Script& script);

/// Result of a search: whether a script failed, and the smallest failing script.
struct Found {
  bool failed = false;
  Script smallest;
  std::string what;
  std::string report;  ///< RapidCheck's report: the smallest script, operation by operation
};
Found search_scripts();

}  // namespace forge::test

#pragma once
// Random scripts of operations on the simulated world, for one that breaks an invariant.

#include <string>
#include <vector>

#include "tests/runtime/engine_world.h"

namespace forge::test {

using Script = std::vector<Op>;

/// The invariant that the script breaks; empty: none.
std::string broken_by(const Script& script);

/// What is found in scripts of operations, and the smallest one that still shows it.
struct Found {
  bool failed = false;
  Script smallest;
  std::string what;
  std::string report;  ///< RapidCheck's: the smallest script, operation by operation
};
Found search_scripts();

}  // namespace forge::test

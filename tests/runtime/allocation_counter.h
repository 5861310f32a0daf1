#pragma once
// Counts the heap allocations of a test program. Tests use it to prove that hot paths (decode steps, sampling, KV block
// management) do not allocate.

#include <cstdint>

namespace forge::test {

/// Number of calls of operator new since the program started, over all threads. Tests compare the value before and
/// after the code under test.
std::uint64_t allocations();

}  // namespace forge::test

#pragma once
// Counts every allocation of the test program: proves that hot paths make none.

#include <cstdint>

namespace forge::test {

/// Calls of operator new so far, of all threads.
std::uint64_t allocations();

}  // namespace forge::test

#pragma once
// Skipping of test cases that need something this machine lacks: a compiler, reference data, a card. Each skip prints a
// line that tests/count_cases.py counts and tools/check shows. Something that exists but does not work is a failure,
// not a skip.
//
// Test programs run with --warn NoAssertions, so a case that neither checks nor skips anything fails.

#include <algorithm>
#include <catch2/catch.hpp>
#include <cstdlib>
#include <filesystem>
#include <iostream>
#include <string>

#include "tests/support/reference_data.h"

namespace forge::tests {

inline void print_skipped(const char* what, std::string why) {
  std::replace(why.begin(), why.end(), '\n', ' ');
  std::cout << what << ": " << Catch::getResultCapture().getCurrentTestName() << ": " << why << '\n' << std::flush;
}

/// Marks the running case as skipped. The caller must return afterwards.
inline void skip_case(const std::string& why) {
  print_skipped("skipped", why);
  SUCCEED(why);
}

/// Reports that the running case leaves out a part of its checks; the case goes on.
inline void skip_part(const std::string& why) {
  print_skipped("skipped in part", why);
}

/// Shell prefix: programs are looked for in $PATH and in CUDA's own folder.
inline constexpr const char* kWithCudaPath = "PATH=\"$PATH:/usr/local/cuda/bin\"; ";
inline bool is_installed(const std::string& program) {
  return std::system((kWithCudaPath + ("command -v '" + program + "' > /dev/null 2>&1")).c_str()) == 0;
}

#ifdef FORGE_SHARED_DIR
/// Path of a file of the reference data. If it does not exist, the case is skipped and the path is empty.
inline std::filesystem::path reference_file(const char* name) {
  const auto path = reference_path(name);
  if (std::filesystem::exists(path)) return path;
  skip_case("reference data is absent: " + path.string());
  return {};
}
#endif

}  // namespace forge::tests

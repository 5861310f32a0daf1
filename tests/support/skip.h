#pragma once
// What a case cannot look at because this machine lacks it: a compiler, reference data, a card. Each is a line on
// standard output, which tests/count_cases.py counts and tools/check shows. What is there and does not work is a
// failure.
//
// Programs of tests run with --warn NoAssertions: a case that checks nothing, and says nothing here, fails.

#include <algorithm>
#include <catch2/catch.hpp>
#include <cstdlib>
#include <filesystem>
#include <iostream>
#include <string>

namespace forge::tests {

inline void print_skipped(const char* what, std::string why) {
  std::replace(why.begin(), why.end(), '\n', ' ');
  std::cout << what << ": " << Catch::getResultCapture().getCurrentTestName() << ": " << why << '\n' << std::flush;
}

/// The running case checks nothing, and returns now.
inline void skip_case(const std::string& why) {
  print_skipped("skipped", why);
  SUCCEED(why);
}

/// The running case goes on, and is for more than it checks here.
inline void skip_part(const std::string& why) {
  print_skipped("skipped in part", why);
}

/// Where programs are looked for: in $PATH, and CUDA's in its own folder.
inline constexpr const char* kWithCudaPath = "PATH=\"$PATH:/usr/local/cuda/bin\"; ";
inline bool is_installed(const std::string& program) {
  return std::system((kWithCudaPath + ("command -v '" + program + "' > /dev/null 2>&1")).c_str()) == 0;
}

#ifdef FORGE_SHARED_DIR
/// A file of the reference data, in $FORGE_SHARED or else where the build looked for it. Empty, and the case is
/// skipped, where there is none.
inline std::filesystem::path reference_file(const char* name) {
  const char* folder = std::getenv("FORGE_SHARED");
  const auto path = std::filesystem::path(folder != nullptr ? folder : FORGE_SHARED_DIR) / name;
  if (std::filesystem::exists(path)) return path;
  skip_case("reference data is absent: " + path.string());
  return {};
}
#endif

}  // namespace forge::tests

// exec_mask_check LISTING...: reports cross-lane instructions that can be reached while lanes are off, in llvm-objdump
// listings of AMD kernels. Exit status 0: none; 1: some, one line each; 2: a listing cannot be read or has no code.

#include <fmt/format.h>

#include <fstream>
#include <iterator>

#include "tests/exec_mask/exec_mask.h"

namespace forge::tests {

using namespace codegen;
namespace {

int check(const std::vector<std::string>& paths) {
  MaskReport all;
  for (const std::string& path : paths) {
    std::ifstream in(path, std::ios::binary);
    const std::string text((std::istreambuf_iterator<char>(in)), std::istreambuf_iterator<char>());
    const auto functions = parse_listing(text);
    if (functions.empty()) {
      fmt::print(stderr, "{}: no code\n", path);
      return 2;
    }
    const auto report = check_masks(functions, wave_of(functions));
    for (const auto& finding : report.findings) fmt::print("{}: {}\n", path, line_of(finding));
    all.add(report);
  }
  fmt::print("{} kernels", all.kernels);
  for (const auto& [kind, count] : all.cross_lane) fmt::print(", {} {}", count, kind);
  fmt::print(": {} under a narrowed mask\n", all.findings.size());
  return all.findings.empty() ? 0 : 1;
}

}  // namespace
}  // namespace forge::tests

int main(int argc, char** argv) {
  try {
    if (argc > 1) return forge::tests::check({argv + 1, argv + argc});
    fmt::print(stderr, "usage: exec_mask_check LISTING...\n");
  } catch (const std::exception& error) {
    fmt::print(stderr, "{}\n", error.what());
  }
  return 2;
}

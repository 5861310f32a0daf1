#pragma once
// forge-bench --compare A.json B.json: compares two files of results, from forge-bench or llama-bench, test by test.

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "tools/cli/records.h"

namespace forge::tools {

/// A file's result of one test. Two rows are the same test if all fields except the rate are equal.
struct MeasuredTest {
  std::string model;  ///< the file's name without folders
  std::int64_t prompt = 0, predict = 0, depth = 0, threads = 0, batch = 1;
  double rate = 0;  ///< tokens/s: the median of the samples; the mean if the file has no samples
  auto operator<=>(const MeasuredTest&) const = default;
};

/// Reads results in JSON or JSON lines, in the file's order. If a test occurs several times (llama-bench `-fa 0,1`),
/// its fastest row is used. Errors: kIo; kUsage, naming the row, if the file is not a list of results.
[[nodiscard]] std::vector<MeasuredTest> read_results(const std::filesystem::path& path);

/// A test with its rates in both files.
struct ComparedTest {
  MeasuredTest test;
  double a = 0, b = 0;  ///< tokens/s; 0: the file does not have the test
  [[nodiscard]] double ratio() const { return a > 0 && b > 0 ? a / b : 0; }
};
/// Merges the tests of both files: first those of `a` in its order, then those that only `b` has. If each file has a
/// single model, the models are taken as the same even if their names differ.
[[nodiscard]] std::vector<ComparedTest> compare(std::vector<MeasuredTest> a, std::vector<MeasuredTest> b);

/// The comparison as text in `format`; ratios are a's rate divided by b's. Errors: those of read_results; kUsage if the
/// files have no test in common.
[[nodiscard]] std::string compare_files(const std::filesystem::path& a, const std::filesystem::path& b,
                                        RecordFormat format);

}  // namespace forge::tools

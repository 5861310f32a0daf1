#pragma once
// forge-bench --compare A.json B.json: two files of results, of forge-bench or of llama-bench, test by test.

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "tools/cli/records.h"

namespace forge::tools {

/// What a file says of one test. Rows are of the same test when model, prompt, predict, depth, threads and batch agree.
struct MeasuredTest {
  std::string model;  ///< the file's name without folders
  std::int64_t prompt = 0, predict = 0, depth = 0, threads = 0, batch = 1;
  double rate = 0;  ///< tokens/s: the median of its samples, or the mean where there are none
  auto operator<=>(const MeasuredTest&) const = default;
};

/// A list of results, as JSON or as JSON lines. Where a test was measured several times (llama-bench's `-fa 0,1`), its
/// fastest row counts; the order is that of the file.
/// Errors: kIo; kUsage for what is no list of results, naming the row.
[[nodiscard]] std::vector<MeasuredTest> read_results(const std::filesystem::path& path);

/// One row a test that is in either file: first those of `a`, in its order. Where each file has one model alone they
/// are taken for the same, whatever it is called.
struct ComparedTest {
  MeasuredTest test;    ///< the rate is a's
  double a = 0, b = 0;  ///< tokens/s; 0: not in that file
  [[nodiscard]] double ratio() const { return a > 0 && b > 0 ? a / b : 0; }
};
[[nodiscard]] std::vector<ComparedTest> compare(std::vector<MeasuredTest> a, std::vector<MeasuredTest> b);

/// The whole output; ratios are the first file's rate over the second's. Errors: those of read_results; kUsage when the
/// files have no test in common.
[[nodiscard]] std::string compare_files(const std::filesystem::path& a, const std::filesystem::path& b,
                                        RecordFormat format);

}  // namespace forge::tools

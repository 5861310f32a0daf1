#pragma once
// forge-bench: tokens a second, mean and deviation over repetitions.

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "tools/session.h"

namespace forge::tools {

struct BenchRequest {
  std::string path, model, device = "auto";
  std::vector<std::int64_t> prompt{512}, predict{128}, depth{0}, batch{1}, threads{0};
  std::int64_t repetitions = 5;
  bool profile = false;  ///< a table on stderr when a set-up has been measured
};

/// One row: prompt tokens in one go, or tokens generated one by one, on top of `depth` positions; `batch` sequences,
/// of which each takes them (generated together, prompts one after the other).
struct BenchCase {
  std::int64_t prompt = 0, predict = 0, depth = 0, batch = 1, threads = 0;
};

struct BenchResult {
  BenchCase what;
  std::string model_path, model_name, target, device;
  std::uint64_t model_bytes = 0;
  std::int64_t parameters = 0;
  std::vector<double> seconds;          ///< one a repetition
  double rate = 0, rate_deviation = 0;  ///< tokens/s over all sequences: mean and sample deviation
};

/// The rows in the order they are measured: threads, then batch, then depth, then prompts before generations.
[[nodiscard]] std::vector<BenchCase> bench_cases(const BenchRequest& request);

/// Mean and sample standard deviation of tokens/s.
void summarise(BenchResult& result);

/// Measures every row, one untimed run before the timed ones; `done` gets each result at once.
/// Errors: those of Session; Interrupted.
void run_bench(const BenchRequest& request, const std::function<void(const BenchResult&)>& done);

/// Output of one format: begin, one row a result, end. Errors: kUsage for an unknown format.
enum class BenchFormat : std::uint8_t { kMarkdown, kJson, kCsv };
[[nodiscard]] BenchFormat bench_format(const std::string& name);
[[nodiscard]] std::string bench_begin(BenchFormat format);
[[nodiscard]] std::string bench_row(BenchFormat format, const BenchResult& result, bool first);
[[nodiscard]] std::string bench_end(BenchFormat format);

}  // namespace forge::tools

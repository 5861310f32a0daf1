#pragma once
// forge-bench: tokens a second, mean, deviation and median over repetitions.

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "session/session.h"
#include "tools/cli/records.h"

namespace forge::tools {

struct BenchRequest {
  std::string path, model, device = "auto";
  std::vector<std::int64_t> prompt{512}, predict{128}, depth{0}, batch{1}, threads{0};
  std::int64_t repetitions = 5;
  std::optional<std::string> kv_type, attention;  ///< as ModelChoice's
  std::string shown_path;  ///< what results say instead of `path`, where that is no name for people
  bool read_rate = false;  ///< measure the memory's plain read rate between repetitions; for programs on the CPU
  session::TraceFile* trace = nullptr;  ///< of all set-ups
  bool repack_cache = false;            ///< as Session's
  bool profile = false;                 ///< a table on stderr when a set-up has been measured
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
  std::vector<double> seconds;  ///< one a repetition
  std::vector<double> rates;    ///< tokens/s over all sequences, one a repetition
  std::string api;              ///< what ran it: "CPU", "HIP", "CUDA", as llama-bench names them
  bool on_host = false;         ///< the host's processor, not a device
  double rate = 0, rate_deviation = 0, rate_median = 0;
  std::int64_t weight_bytes = 0;   ///< of weights that one decode step reads
  std::vector<double> read_rates;  ///< bytes/s, one behind each repetition of a generation; empty: not measured

  /// Median of the read rates; 0: not measured.
  [[nodiscard]] double read_rate() const;
  /// Weights read a second by decoding, as a share of the read rate; 0: not measured.
  [[nodiscard]] double read_share() const;
};

/// The rows in the order they are measured: threads, then batch, then depth, then prompts before generations.
[[nodiscard]] std::vector<BenchCase> bench_cases(const BenchRequest& request);

/// Rates of `seconds`, and their mean, sample deviation and median.
void summarise(BenchResult& result);

/// Measures every row, one untimed run before the timed ones; `done` gets each result at once, and ends it with false.
/// Errors: those of Session; Interrupted; kUsage for a read rate where a GPU runs the program.
void run_bench(const BenchRequest& request, const std::function<bool(const BenchResult&)>& done);

/// "pp512", "tg128 @ d2048", as llama-bench names its rows; "pp512+tg128" where a row has both.
[[nodiscard]] std::string test_name(std::int64_t prompt, std::int64_t predict, std::int64_t depth);

/// The result with llama-bench's field names, and forge's own: target, n_parallel, the medians, and the read rate and
/// what of it was reached (not a number where it was not measured).
[[nodiscard]] Record bench_record(const BenchResult& result);

/// All of forge-bench's output in one format: begin, a row a result as soon as it is there, end.
class BenchWriter {
 public:
  /// `read_rate`: the table for people has columns of it.
  explicit BenchWriter(RecordFormat format, bool read_rate = false);
  [[nodiscard]] std::string begin() const;
  [[nodiscard]] std::string row(const BenchResult& result);
  [[nodiscard]] std::string end() const { return records_.end(); }

 private:
  RecordFormat format_;
  std::size_t columns_;
  RecordWriter records_;
};

}  // namespace forge::tools

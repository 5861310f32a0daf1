#pragma once
// forge-bench: measures tokens per second; mean, standard deviation and median over repetitions.

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "session/sequences.h"
#include "session/session.h"
#include "tools/cli/records.h"

namespace forge::tools {

struct BenchRequest {
  std::string path, model, device = "auto";
  std::vector<std::int64_t> prompt{512}, predict{128}, depth{0}, batch{1}, threads{0};
  std::int64_t repetitions = 5;
  std::optional<std::string> kv_type, attention, tune;  ///< as ModelChoice's
  bool no_tuned = false;                                ///< the same
  bool deterministic = false;                           ///< the same
  std::string shown_path;                               ///< path in the results; empty: `path`
  bool read_rate = false;               ///< also measure the memory's read rate between repetitions; CPU only
  session::TraceFile* trace = nullptr;  ///< receives the traces of all sessions
  bool repack_cache = false;            ///< Session::Options::repack_cache
  bool profile = false;                 ///< print a profile table per session to stderr
  bool roofline = false;                ///< also measure each row's steps (BenchResult::kernels)
};

/// One row of the benchmark: either the prefill of `prompt` tokens or the generation of `predict` tokens, in each of
/// `batch` sequences that already have `depth` tokens in the KV cache. Sequences are decoded together, but prefilled
/// one after the other.
struct BenchCase {
  std::int64_t prompt = 0, predict = 0, depth = 0, batch = 1, threads = 0;
};

/// Steps of one label in a measured row. Times, bytes and FLOPs are of all calls.
struct MeasuredKernel {
  std::string kernel;
  double calls = 0, seconds = 0, bytes = 0, flops = 0;
};

struct BenchResult {
  BenchCase what;
  std::string model_path, model_name, target, device;
  std::uint64_t model_bytes = 0;
  std::int64_t parameters = 0;
  std::vector<double> seconds;  ///< one per repetition
  std::vector<double> rates;    ///< tokens/s over all sequences, one per repetition
  std::string api;              ///< back-end, as llama-bench names it: "CPU", "HIP", "CUDA"
  bool on_host = false;         ///< run by the CPU
  double rate = 0, rate_deviation = 0, rate_median = 0;
  std::int64_t weight_bytes = 0;            ///< weights that one decode step reads
  std::vector<runtime::StepProfile> steps;  ///< of the timed runs, with `roofline`; views of the executor
  std::vector<MeasuredKernel> kernels;      ///< with `roofline`: of `steps`, longest first, and their sum as the last
  double memory_rate = 0;                   ///< with `roofline`: bytes/s that the memory gives, measured; 0: not known
  double matrix_rate = 0;          ///< with `roofline`: FLOP/s of a GPU's matrix instructions, measured; 0: it has none
  double memory_bandwidth = 0;     ///< with `roofline`: bytes/s that a GPU's driver claims; 0: not known
  std::vector<double> read_rates;  ///< bytes/s, one after each repetition of a generation; empty: not measured

  /// Median of the read rates in bytes/s; 0: not measured.
  [[nodiscard]] double read_rate() const;
  /// Bytes of weights that decode reads per second, divided by the read rate; 0: not measured.
  [[nodiscard]] double read_share() const;
};

/// All rows in the order of measurement: by threads, batch and depth; prompts before generations.
[[nodiscard]] std::vector<BenchCase> bench_cases(const BenchRequest& request);

/// Computes rates from `seconds`, and their mean, sample standard deviation and median.
void summarise(BenchResult& result);

/// Measures every row, with one untimed run before the timed ones. Calls `done` after each row; measuring ends when it
/// returns false. Errors: those of Session; Interrupted; kUsage for a read rate on a GPU; with `roofline` those of
/// session::measure_card_rates.
void run_bench(const BenchRequest& request, const std::function<bool(const BenchResult&)>& done);

/// The context for so many tokens: a multiple of 512, so that lengths that differ little share a compilation.
[[nodiscard]] std::int64_t context_for(std::int64_t tokens);

/// A fixed sequence of varied token ids. Their values do not affect the speed, but different ids make the embedding
/// read different rows, as real text does.
[[nodiscard]] std::vector<std::int32_t> varied_tokens(std::int64_t count, std::size_t vocab);

/// Generates `steps` tokens in each of the first samplers.size() sequences. If the executor samples on the device, its
/// decode loop feeds the sampled tokens; otherwise the tokens fed come from `ids`, and no time is spent on sampling.
void generate_tokens(session::Sequences& sequences, std::int64_t steps, std::span<const std::int32_t> ids,
                     std::span<const runtime::Sampler> samplers);

/// Name of a row in llama-bench's form: "pp512", "tg128 @ d2048"; "pp512+tg128" if it has both.
[[nodiscard]] std::string test_name(std::int64_t prompt, std::int64_t predict, std::int64_t depth);

/// The result as a record with llama-bench's field names, plus forge's own: target, n_parallel, medians, weight_bytes,
/// read_rate and read_share (NaN if not measured).
[[nodiscard]] Record bench_record(const BenchResult& result);

/// Writes forge-bench's output in one format: begin(), row() for each result, end().
class BenchWriter {
 public:
  /// `read_rate`: adds its columns to the Markdown table.
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

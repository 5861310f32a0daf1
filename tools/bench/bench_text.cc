#include <fmt/format.h>

#include <array>
#include <cmath>
#include <ctime>
#include <limits>
#include <span>

#include "support/error.h"
#include "support/os/console.h"
#include "support/version.h"
#include "tools/bench/bench.h"
#include "tools/bench/statistics.h"

namespace forge::tools {
namespace {

constexpr std::size_t kNameMax = 30;

constexpr std::array kColumns{MarkdownColumn{"model", kNameMax, true},
                              MarkdownColumn{"size", 10},
                              MarkdownColumn{"target", 18, true},
                              MarkdownColumn{"threads", 7},
                              MarkdownColumn{"batch", 5},
                              MarkdownColumn{"test", 15},
                              MarkdownColumn{"t/s", 20},
                              MarkdownColumn{"median", 10},
                              MarkdownColumn{"GB/s", 7},
                              MarkdownColumn{"of read rate", 14}};
constexpr std::size_t kColumnsOfRates = 2;  ///< the last columns, shown only with --read-rate

std::string now_utc() {
  const std::time_t now = std::time(nullptr);
  std::tm fields{};
  ::gmtime_r(&now, &fields);
  char text[32];
  return std::strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%SZ", &fields) > 0 ? text : "";
}

}  // namespace

std::string test_name(std::int64_t prompt, std::int64_t predict, std::int64_t depth) {
  std::string name;
  if (prompt > 0) name = fmt::format("pp{}", prompt);
  if (predict > 0) name += fmt::format("{}tg{}", name.empty() ? "" : "+", predict);
  return depth > 0 ? name + fmt::format(" @ d{}", depth) : name;
}

Record bench_record(const BenchResult& result) {
  constexpr double kNone = std::numeric_limits<double>::quiet_NaN();
  const auto& what = result.what;
  std::vector<double> nanoseconds;
  std::vector<std::int64_t> samples_ns;
  for (const double seconds : result.seconds) {
    nanoseconds.push_back(seconds * 1e9);
    samples_ns.push_back(std::llround(seconds * 1e9));
  }
  const auto time = summary_of(nanoseconds);
  return {{"model_filename", result.model_path},
          {"model_type", result.model_name},
          {"model_size", static_cast<std::int64_t>(result.model_bytes)},
          {"model_n_params", result.parameters},
          {"build_commit", std::string(kBuildId)},
          {"backends", result.api},
          {"cpu_info", result.on_host ? result.target : std::string()},
          {"gpu_info", result.on_host ? std::string() : result.device},
          {"target", result.target},
          {"n_threads", what.threads},
          {"n_parallel", what.batch},
          {"n_prompt", what.prompt},
          {"n_gen", what.predict},
          {"n_depth", what.depth},
          {"test_time", now_utc()},
          {"avg_ns", std::llround(time.mean)},
          {"stddev_ns", std::llround(time.deviation)},
          {"median_ns", std::llround(time.median)},
          {"avg_ts", result.rate},
          {"stddev_ts", result.rate_deviation},
          {"median_ts", result.rate_median},
          {"weight_bytes", result.weight_bytes},
          {"read_rate", result.read_rates.empty() ? kNone : result.read_rate()},
          {"read_share", result.read_rates.empty() ? kNone : result.read_share()},
          {"samples_ns", samples_ns},
          {"samples_ts", result.rates}};
}

std::string BenchWriter::begin() const {
  if (format_ != RecordFormat::kMarkdown) return records_.begin(bench_record({}));
  return markdown_head(std::span(kColumns).first(columns_));
}

std::string BenchWriter::row(const BenchResult& result) {
  if (format_ != RecordFormat::kMarkdown) return records_.row(bench_record(result));
  const auto& what = result.what;
  const double read = result.read_rate(), share = result.read_share();
  const std::array<std::string, kColumns.size()> texts{
      printable(result.model_name, kNameMax),
      human_bytes(result.model_bytes),
      result.target,
      fmt::format("{}", what.threads),
      fmt::format("{}", what.batch),
      test_name(what.prompt, what.predict, what.depth),
      fmt::format("{:.2f} ± {:.2f}", result.rate, result.rate_deviation),
      fmt::format("{:.2f}", result.rate_median),
      read > 0 ? fmt::format("{:.2f}", share * read * 1e-9) : "",
      read > 0 ? fmt::format("{:.0f}% of {:.1f}", 100 * share, read * 1e-9) : ""};
  return markdown_row(std::span(kColumns).first(columns_), std::span(texts).first(columns_));
}

BenchWriter::BenchWriter(RecordFormat format, bool read_rate)
    : format_(format),
      columns_(read_rate ? kColumns.size() : kColumns.size() - kColumnsOfRates),
      records_(format, "forge_bench") {}

}  // namespace forge::tools

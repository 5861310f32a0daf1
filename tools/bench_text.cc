#include <fmt/format.h>

#include <cmath>
#include <ctime>

#include "support/error.h"
#include "support/version.h"
#include "tools/bench.h"
#include "tools/console.h"
#include "tools/json_text.h"

namespace forge::tools {
namespace {

/// "pp512", "tg128 @ d2048", as llama-bench names its rows.
std::string test_name(const BenchCase& what) {
  auto name = what.prompt > 0 ? fmt::format("pp{}", what.prompt) : fmt::format("tg{}", what.predict);
  if (what.depth > 0) name += fmt::format(" @ d{}", what.depth);
  return name;
}

std::vector<std::int64_t> nanoseconds(const BenchResult& result) {
  std::vector<std::int64_t> out;
  for (const double seconds : result.seconds) out.push_back(std::llround(seconds * 1e9));
  return out;
}

std::string now_utc() {
  const std::time_t now = std::time(nullptr);
  std::tm fields{};
  ::gmtime_r(&now, &fields);
  char text[32];
  return std::strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%SZ", &fields) > 0 ? text : "";
}

/// Mean of the repetitions, and their sample deviation, in nanoseconds.
std::pair<std::int64_t, std::int64_t> time_statistics(const BenchResult& result) {
  const auto count = static_cast<double>(result.seconds.size());
  double mean = 0, squares = 0;
  for (const double seconds : result.seconds) mean += seconds / count;
  for (const double seconds : result.seconds) squares += (seconds - mean) * (seconds - mean);
  const double deviation = result.seconds.size() > 1 ? std::sqrt(squares / (count - 1)) : 0;
  return {std::llround(mean * 1e9), std::llround(deviation * 1e9)};
}

/// As llama-bench names them.
std::string_view backend_name(std::string_view target) {
  return target.starts_with("gfx") ? "HIP" : target.starts_with("sm_") ? "CUDA" : "CPU";
}

std::string row_json(const BenchResult& result) {
  const auto& what = result.what;
  const auto [mean_ns, deviation_ns] = time_statistics(result);
  std::vector<double> rates;
  const auto tokens = static_cast<double>((what.prompt + what.predict) * what.batch);
  for (const double seconds : result.seconds) rates.push_back(tokens / seconds);
  JsonWriter json;
  const auto backend = backend_name(result.target);
  json.open('{').field("build_commit", kBuildId).field("backends", backend);
  json.field(backend == "CPU" ? "cpu_info" : "gpu_info", backend == "CPU" ? result.target : result.device);
  json.field("target", result.target);
  json.field("model_filename", result.model_path).field("model_type", result.model_name);
  json.field("model_size", result.model_bytes).field("model_n_params", result.parameters);
  json.field("n_threads", what.threads).field("n_parallel", what.batch);
  json.field("n_prompt", what.prompt).field("n_gen", what.predict).field("n_depth", what.depth);
  json.field("test_time", now_utc()).field("avg_ns", mean_ns).field("stddev_ns", deviation_ns);
  json.field("avg_ts", result.rate).field("stddev_ts", result.rate_deviation);
  json.field("samples_ns", std::span<const std::int64_t>(nanoseconds(result)));
  json.field("samples_ts", std::span<const double>(rates)).close();
  auto text = json.take();
  text.pop_back();  // its newline
  return text;
}

/// One field of a comma-separated line, in quotes (RFC 4180).
std::string csv_field(std::string_view text) {
  std::string out = "\"";
  for (const char c : text) out += c == '"' ? std::string("\"\"") : std::string(1, c);
  return out + '"';
}

}  // namespace

BenchFormat bench_format(const std::string& name) {
  if (name == "md") return BenchFormat::kMarkdown;
  if (name == "json") return BenchFormat::kJson;
  if (name == "csv") return BenchFormat::kCsv;
  throw Error(ErrorCode::kUsage, fmt::format("output format '{}' is unknown", printable(name)), {},
              "formats are md, json and csv");
}

std::string bench_begin(BenchFormat format) {
  switch (format) {
    case BenchFormat::kJson:
      return "[\n";
    case BenchFormat::kCsv:
      return "model_filename,model_type,model_size,n_threads,n_parallel,n_prompt,n_gen,n_depth,avg_ns,stddev_ns,"
             "avg_ts,stddev_ts\n";
    default:
      return fmt::format(
          "| {:30} | {:>10} | {:18} | {:>7} | {:>5} | {:>15} | {:>20} |\n|{:-<32}|{:->11}:|{:-<20}|{:->8}:"
          "|{:->6}:|{:->16}:|{:->21}:|\n",
          "model", "size", "target", "threads", "batch", "test", "t/s", "", "", "", "", "", "", "");
  }
}

std::string bench_row(BenchFormat format, const BenchResult& result, bool first) {
  const auto& what = result.what;
  switch (format) {
    case BenchFormat::kJson:
      return (first ? "" : ",\n") + row_json(result);
    case BenchFormat::kCsv: {
      const auto [mean_ns, deviation_ns] = time_statistics(result);
      return fmt::format("{},{},{},{},{},{},{},{},{},{},{:.6f},{:.6f}\n", csv_field(result.model_path),
                         csv_field(result.model_name), result.model_bytes, what.threads, what.batch, what.prompt,
                         what.predict, what.depth, mean_ns, deviation_ns, result.rate, result.rate_deviation);
    }
    default:
      return fmt::format("| {:30} | {:>10} | {:18} | {:7} | {:5} | {:>15} | {:>20} |\n",
                         result.model_name.substr(0, 30), human_bytes(result.model_bytes), result.target, what.threads,
                         what.batch, test_name(what),
                         fmt::format("{:.2f} ± {:.2f}", result.rate, result.rate_deviation));
  }
}

std::string bench_end(BenchFormat format) {
  return format == BenchFormat::kJson ? "\n]\n" : "";
}

}  // namespace forge::tools

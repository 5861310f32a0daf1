// The measured side of forge-bench --roofline.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

#include "support/error.h"
#include "tools/bench/roofline.h"
#include "tools/bench/step_bytes.h"

namespace forge::tools {
namespace {

constexpr double kNone = std::numeric_limits<double>::quiet_NaN();

constexpr std::array kMeasuredColumns{
    MarkdownColumn{"test", 14, true},     MarkdownColumn{"time", 6},         MarkdownColumn{"calls", 7},
    MarkdownColumn{"us/call", 9},         MarkdownColumn{"MB/call", 9},      MarkdownColumn{"GB/s", 9},
    MarkdownColumn{"of read rate", 12},   MarkdownColumn{"MFLOP/call", 10},  MarkdownColumn{"TFLOP/s", 8},
    MarkdownColumn{"of matrix rate", 14}, MarkdownColumn{"kernel", 40, true}};

/// The plan's steps in the order of Executor::profile on a GPU: of each variant, those of the forward pass, then those
/// that sample.
struct PlannedStep {
  const plan::VariantT* variant;
  const plan::StepT* step;
};
std::vector<PlannedStep> planned_steps(const plan::ProgramT& program) {
  std::vector<PlannedStep> steps;
  for (const auto& variant : program.variants) {
    for (const auto& step : variant->steps) steps.push_back({variant.get(), step.get()});
    for (const auto& step : variant->sample_steps) steps.push_back({variant.get(), step.get()});
  }
  return steps;
}

/// The average step of a row. Prompts may take several, so tokens are those of a sequence's prompt over its steps.
StepShape average_shape(const BenchResult& result, std::int64_t tokens_max) {
  const auto& what = result.what;
  if (what.predict > 0)
    return {
        .tokens = what.batch, .rows = what.batch, .sequences = what.batch, .context = what.depth + what.predict / 2};
  const auto steps = (what.prompt + tokens_max - 1) / tokens_max;
  const auto tokens = std::max<std::int64_t>(what.prompt / steps, 1);
  return {.tokens = tokens, .rows = 1, .sequences = 1, .context = what.depth + (what.prompt - tokens) / 2};
}

/// A kernel's rates and the limits beside them; NaN where there is none.
struct Rates {
  double bytes, flops, read_share, matrix_share;
};
Rates rates_of(const BenchResult& result, const MeasuredKernel& kernel) {
  Rates rates{.bytes = 0, .flops = 0, .read_share = kNone, .matrix_share = kNone};
  if (kernel.seconds <= 0) return rates;
  rates.bytes = kernel.bytes / kernel.seconds;
  rates.flops = kernel.flops / kernel.seconds;
  if (result.memory_rate > 0) rates.read_share = rates.bytes / result.memory_rate;
  if (result.matrix_rate > 0 && kernel.flops > 0) rates.matrix_share = rates.flops / result.matrix_rate;
  return rates;
}

double known(double rate) {
  return rate > 0 ? rate : kNone;
}
std::string percent_or_blank(double share) {
  return std::isnan(share) ? std::string() : fmt::format("{:.1f}%", 100 * share);
}

std::string measured_row(const BenchResult& result, const std::string& test, const MeasuredKernel& kernel,
                         double all_seconds) {
  const double seconds = std::max(kernel.seconds, 1e-9), calls = std::max(kernel.calls, 1.0);
  const auto rates = rates_of(result, kernel);
  const std::array texts{test,
                         fmt::format("{:.1f}%", 100 * seconds / std::max(all_seconds, 1e-9)),
                         fmt::format("{:.0f}", kernel.calls),
                         fmt::format("{:.1f}", seconds * 1e6 / calls),
                         fmt::format("{:.3f}", kernel.bytes * 1e-6 / calls),
                         fmt::format("{:.2f}", rates.bytes * 1e-9),
                         percent_or_blank(rates.read_share),
                         fmt::format("{:.2f}", kernel.flops * 1e-6 / calls),
                         fmt::format("{:.3f}", rates.flops * 1e-12),
                         percent_or_blank(rates.matrix_share),
                         printable(kernel.kernel, 100)};
  return markdown_row(kMeasuredColumns, texts);
}

}  // namespace

std::vector<MeasuredKernel> measured_kernels(const BenchResult& result, const plan::ProgramT& program) {
  std::vector<MeasuredKernel> kernels;
  const auto planned = planned_steps(program);
  std::int64_t tokens_max = 1;
  for (const auto& variant : program.variants) tokens_max = std::max(tokens_max, variant->bounds.tokens());
  const auto shape = average_shape(result, tokens_max);
  for (std::size_t i = 0; i < result.steps.size(); ++i) {
    const auto& step = result.steps[i];
    if (step.calls == 0) continue;
    auto row = std::ranges::find(kernels, step.label, &MeasuredKernel::kernel);
    if (row == kernels.end()) row = kernels.insert(kernels.end(), MeasuredKernel{.kernel = std::string(step.label)});
    const auto calls = static_cast<double>(step.calls);
    row->calls += calls;
    row->seconds += static_cast<double>(step.nanoseconds) * 1e-9;
    if (result.on_host) {  // it counts rows and positions itself
      row->bytes += calls * static_cast<double>(step.weight_bytes) +
                    step.filled * static_cast<double>(step.activation_bytes) + step.kv_bytes;
      row->flops += step.filled * static_cast<double>(step.flops) + step.kv_flops;
    } else {
      row->bytes += calls * step_bytes(program, *planned[i].variant, *planned[i].step, shape);
      row->flops += calls * step_flops(*planned[i].variant, *planned[i].step, shape);
    }
  }
  std::ranges::stable_sort(kernels, std::greater<>(), &MeasuredKernel::seconds);
  MeasuredKernel all{.kernel = "all"};
  for (const auto& one : kernels) {
    all.calls += one.calls;
    all.seconds += one.seconds;
    all.bytes += one.bytes;
    all.flops += one.flops;
  }
  kernels.push_back(all);
  return kernels;
}

Record measured_record(const BenchResult& result, const std::string& test, const MeasuredKernel& kernel) {
  const auto rates = rates_of(result, kernel);
  return {{"test", test},
          {"model_filename", result.model_path},
          {"target", result.target},
          {"device", result.device},
          {"n_threads", result.what.threads},
          {"n_parallel", result.what.batch},
          {"n_prompt", result.what.prompt},
          {"n_gen", result.what.predict},
          {"n_depth", result.what.depth},
          {"kernel", kernel.kernel},
          {"calls", static_cast<std::int64_t>(kernel.calls)},
          {"seconds", kernel.seconds},
          {"bytes", kernel.bytes},
          {"flops", kernel.flops},
          {"bytes_per_second", rates.bytes},
          {"flops_per_second", rates.flops},
          {"read_rate", known(result.memory_rate)},
          {"read_share", rates.read_share},
          {"matrix_rate", known(result.matrix_rate)},
          {"matrix_share", rates.matrix_share},
          {"memory_bandwidth", known(result.memory_bandwidth)}};
}

std::string limits_line(const BenchResult& result) {
  auto line =
      fmt::format("limits measured on {}: {:.1f} GB/s read", printable(result.device), result.memory_rate * 1e-9);
  if (result.memory_bandwidth > 0) line += fmt::format(" (its driver says {:.1f})", result.memory_bandwidth * 1e-9);
  if (result.matrix_rate > 0)
    line += fmt::format(", {:.1f} TFLOP/s of matrix instructions", result.matrix_rate * 1e-12);
  return line;
}

void measure_roofline(const BenchRequest& request, RecordFormat format, Output& output) {
  RecordWriter writer(format, "forge_roofline");
  const bool table = format == RecordFormat::kMarkdown;
  bool begun = false;
  const auto begin = [&] {
    if (!begun) output.write(table ? markdown_head(kMeasuredColumns) : writer.begin(measured_record({}, {}, {})));
    begun = true;
  };
  try {
    run_bench(request, [&](const BenchResult& result) {
      if (!begun && result.memory_rate > 0) note(limits_line(result));
      begin();
      const auto& what = result.what;
      const auto test = test_name(what.prompt, what.predict, what.depth);
      const double all = result.kernels.back().seconds;
      for (const auto& kernel : result.kernels)
        output.write(table ? measured_row(result, test, kernel, all)
                           : writer.row(measured_record(result, test, kernel)));
      return !output.closed();
    });
  } catch (...) {  // end the output properly, so that the rows measured so far can be read
    if (begun && !table) output.write(writer.end());
    throw;
  }
  if (!table) output.write(writer.end());
}

}  // namespace forge::tools

// forge-bench --tune: from the command to the stored choice.

#include <fmt/format.h>

#include <array>
#include <utility>

#include "codegen/gpu/targets.h"
#include "runtime/plan/plan_file.h"
#include "session/device.h"
#include "session/tuned/tuned_choices.h"
#include "support/error.h"
#include "tools/bench/tune.h"

namespace forge::tools {
namespace {

constexpr std::array kTunedColumns{MarkdownColumn{"test", 14, true}, MarkdownColumn{"before t/s", 10},
                                   MarkdownColumn{"after t/s", 10}, MarkdownColumn{"ratio", 7}};

/// The GPU to tune. Errors: kUsage if the request's device is none; those of choose_device.
session::DeviceChoice gpu_of(const BenchRequest& request) {
  auto device = session::choose_device(request.device);
  if (!device.gpu)
    throw Error(ErrorCode::kUsage, "--tune measures a GPU", device.cpu_reason, "name it: --device hip:0 or cuda:0");
  return device;
}

OpenForTuning opener(const BenchRequest& request, const session::DeviceChoice& device,
                     std::span<const BenchCase> workloads) {
  session::Session::Options options{
      .model = {.path = request.path,
                .context = tune_context(workloads),
                .sequences = most_sequences(workloads),
                .kv_type = request.kv_type,
                .attention = request.attention,
                .no_tuned = true,
                .keeps_plan = false},
      // By its name, so that a kernel that does not run is not an excuse for the CPU.
      .device = fmt::format("{}:{}", driver::device_prefix(device.driver->vendor()), device.gpu->info().ordinal)};
  return [options = std::move(options)](const std::string& tune, bool profile) mutable {
    options.model.tune = tune;
    options.profile = profile;
    session::Stages stages;
    const auto session = std::make_shared<session::Session>(options, stages);
    return std::shared_ptr<runtime::Executor>(session, &session->executor());
  };
}

/// An opener whose workloads fit into the card's memory: without the largest batches if need be.
OpenForTuning fitting_opener(const BenchRequest& request, const session::DeviceChoice& device,
                             std::vector<BenchCase>& workloads) {
  for (;;) {
    auto open = opener(request, device, workloads);
    try {
      (void)open({}, true);  // compiles the kernels, too
      return open;
    } catch (const Error& error) {
      const auto batch = most_sequences(workloads);
      if (error.code() != ErrorCode::kMemory || batch == 1) throw;
      end_progress();
      note(fmt::format("note: {} sequences are not measured: {}", batch, strip_error_code(error.line())));
      std::erase_if(workloads, [&](const BenchCase& what) { return what.batch == batch; });
      if (workloads.empty()) throw;
    }
  }
}

std::string workload_name(const BenchCase& what) {
  const auto name = test_name(what.prompt, what.predict, 0);
  return what.batch == 1 ? name : fmt::format("{} x {}", name, what.batch);
}

Record tuned_record(const BenchRequest& request, const session::TunedSubject& subject, const session::TunedRate& rate,
                    const std::string& dropped, const std::string& tune) {
  return {
      {"test", rate.test},          {"model_filename", request.shown_path.empty() ? request.path : request.shown_path},
      {"target", subject.target},   {"device", subject.card},
      {"rate_before", rate.before}, {"rate_after", rate.after},
      {"dropped", dropped},         {"tune", tune}};
}

std::string tuned_row(const session::TunedRate& rate) {
  return markdown_row(kTunedColumns,
                      std::array{rate.test, fmt::format("{:.2f}", rate.before), fmt::format("{:.2f}", rate.after),
                                 fmt::format("{:.3f}", rate.after / rate.before)});
}

}  // namespace

void tune_card(const BenchRequest& request, double seconds, RecordFormat format, Output& output) {
  if (plan::looks_like_plan(request.path))
    throw Error(ErrorCode::kUsage, "--tune needs a GGUF file",
                fmt::format("{} is a plan", printable(request.path, 200)), "give the model that it was made of");
  const auto device = gpu_of(request);
  const auto& row = *codegen::find_target(device.target);
  session::TunedSubject subject{.card = device.gpu->info().name, .target = device.target, .model = {}};
  session::TunedChoices choices;
  {
    const auto file = loader::Gguf::open(request.path);
    subject.model = file.identity().hex();
    choices.model_name = file.get<std::string>("general.name", {});
  }
  const auto cache = plan::CacheOptions::from_environment();
  session::check_tuned_cache(cache);
  auto workloads = tune_workloads(request);
  const auto begin = std::chrono::steady_clock::now();
  const auto open = fitting_opener(request, device, workloads);
  ExecutorMeasurer measurer(open, workloads, begin);
  const auto found =
      search_tuning(measurer, {.wave = row.wave, .mma = row.matrix == codegen::MatrixKind::kMma, .copies = row.copies},
                    {.seconds = seconds}, [](const std::string& text) { progress(text); });
  end_progress();
  choices.tune = found.tune;
  for (std::size_t w = 0; w < workloads.size(); ++w) {
    const auto tokens = static_cast<double>((workloads[w].prompt + workloads[w].predict) * workloads[w].batch);
    const auto& times = found.workloads[w];
    choices.measured.push_back({workload_name(workloads[w]), tokens / times.before, tokens / times.after});
    if (!times.dropped.empty())
      note(fmt::format("note: {} keeps the default choices: {}", choices.measured.back().test, times.dropped));
  }
  const auto path = session::store_tuned(cache, subject, choices);
  RecordWriter writer(format, "forge_tune");
  const bool table = format == RecordFormat::kMarkdown;
  output.write(table ? markdown_head(kTunedColumns)
                     : writer.begin(tuned_record(request, subject, choices.measured.front(), {}, {})));
  for (std::size_t w = 0; w < choices.measured.size(); ++w)
    output.write(table ? tuned_row(choices.measured[w])
                       : writer.row(tuned_record(request, subject, choices.measured[w], found.workloads[w].dropped,
                                                 found.tune)));
  if (!table) output.write(writer.end());
  note(fmt::format("note: {} choices of {} measured in {:.0f} s ({} openings), {} unusable, {} left out for time",
                   found.tried, printable(subject.card), measurer.seconds(), found.measurements, found.invalid,
                   found.untried));
  note(
      found.tune.empty()
          ? fmt::format("note: the default choices are the best; {} says so", printable(path.native(), 200))
          : fmt::format("note: later compilations for this GPU use {}: {}", printable(path.native(), 200), found.tune));
}

}  // namespace forge::tools

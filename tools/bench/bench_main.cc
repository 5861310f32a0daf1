// forge-bench: tokens a second, and two measurements side by side.

#include <fmt/format.h>

#include <optional>
#include <string>
#include <vector>

#include "session/synthetic/synthetic_model.h"
#include "support/error.h"
#include "support/os/atomic_file.h"
#include "support/os/console.h"
#include "tools/bench/bench.h"
#include "tools/bench/bench_compare.h"
#include "tools/cli/entry.h"
#include "tools/cli/options.h"

namespace {

using namespace forge;
using namespace forge::tools;

constexpr const char* kBenchFooter =
    "Lists (1,2,4) measure every combination. A prompt row (pp) reads N tokens in one go, a generation row (tg) makes "
    "N\n"
    "tokens one by one; 0 leaves the row out. With -b several sequences are decoded together; rates count all of "
    "them.\n"
    "--compare sets two files of -o json or jsonl side by side, ours or llama-bench's; ratios are A's rate over B's.\n"
    "--synthetic knows the shapes smollm2, 1b, 8b and tiny, and the types that forge runs: 1b:q4_0.\n";

/// What there is to do besides measuring.
struct Others {
  std::vector<std::string> compared;
  std::optional<std::string> synthetic, save, trace;
};

void check(const BenchRequest& request, const Others& others) {
  const auto refuse = [](const char* what, const char* fix) { throw Error(ErrorCode::kUsage, what, {}, fix); };
  const auto sources = int{!request.path.empty()} + int{others.synthetic.has_value()} + int{!others.compared.empty()};
  if (sources == 0) refuse("MODEL is required", "forge-bench --help lists the options");
  if (sources > 1) refuse("a model, --synthetic and --compare exclude each other", "give one of them");
  if (others.save && !others.synthetic)
    refuse("--save goes with --synthetic", "say what to write: --synthetic 1b:q4_0");
  if (others.synthetic && request.repack_cache)
    refuse("--repack-cache goes with a model file", "--synthetic makes a new one each time: leave it out");
  if (others.synthetic && !request.model.empty()) refuse("--model goes with a plan", "leave it out");
  if (others.compared.empty() && !others.save && bench_cases(request).empty())
    refuse("there is nothing to measure", "give -p or -n above 0");
  if (others.trace) check_output_path(*others.trace, {request.path, request.model, others.save.value_or("")});
}

void measure(BenchRequest& request, const Others& others, RecordFormat format, Output& output) {
  std::optional<forge::session::TraceFile> trace;
  if (others.trace) request.trace = &trace.emplace(*others.trace);
  BenchWriter writer(format, request.read_rate);
  bool begun = false;
  const auto begin = [&] {
    if (!begun) output.write(writer.begin());
    begun = true;
  };
  try {
    run_bench(request, [&](const BenchResult& result) {
      begin();
      output.write(writer.row(result));
      return !output.closed();
    });
  } catch (...) {  // what was measured stays, and whole
    if (begun) output.write(writer.end());
    throw;
  }
  output.write(writer.end());
  if (trace) trace->finish();
}

/// Writes the random model, or measures it.
void use_synthetic(BenchRequest& request, const Others& others, RecordFormat format, Output& output) {
  const auto model = forge::session::SyntheticModel::parse(*others.synthetic);
  if (others.save) check_output_path(*others.save);
  progress("making " + model.name());
  if (others.save) {
    save_synthetic(model, *others.save);
    note(fmt::format("{} with random weights, {}, written to {}", model.name(), human_bytes(model.weight_bytes()),
                     printable(*others.save, 200)));
    return;
  }
  const forge::session::SyntheticFile file(model);
  end_progress();
  request.path = file.path();
  request.shown_path = "synthetic/" + model.name();
  measure(request, others, format, output);
}

int bench(int argc, char** argv) {
  BenchRequest request;
  std::string format_name = "md";
  Others others;
  Options options("forge-bench", "Measures tokens a second: mean, standard deviation and median.", kBenchFooter);
  options.positional("MODEL", request.path, "MODEL.gguf, or a plan", false)
      .integers("-p,--n-prompt", request.prompt, 0, forge::session::kContextMax, "prompt tokens; default 512")
      .integers("-n,--n-gen", request.predict, 0, forge::session::kContextMax, "generated tokens; default 128")
      .integers("-d,--n-depth", request.depth, 0, forge::session::kContextMax,
                "positions before the measured ones; default 0")
      .integers("-b,--batch", request.batch, 1, forge::session::kSequencesMax, "sequences decoded together; default 1")
      .integers("-t,--threads", request.threads, 1, 1024, "default: what this process may use")
      .integer("-r,--repetitions", request.repetitions, 1, 10000, "default 5")
      .choice("-o,--output", format_name, kRecordFormats, "default md")
      .text("--synthetic", others.synthetic, "SHAPE:TYPE", "random weights of a known shape instead of a MODEL")
      .text("--save", others.save, "FILE", "measure nothing: write the --synthetic model, for other programs")
      .flag("--read-rate", request.read_rate, "read plain memory in turn with decoding; what of its rate is reached")
      .texts("--compare", others.compared, 2, "A.json B.json", "measure nothing: show two results beside each other")
      .text("--device", request.device, "NAME", "auto, cpu, hip:N, cuda:N; default auto")
      .choice("--kv-type", request.kv_type, forge::session::kKvTypes, forge::session::kKvTypeHelp)
      .text("--attention", request.attention, "LIST", forge::session::kAttentionHelp)
      .flag("--repack-cache", request.repack_cache, forge::session::kRepackCacheHelp)
      .flag("--profile", request.profile, "time each kind of step; tables on stderr, and slower results")
      .text("--profile-trace", others.trace, "FILE", forge::session::kTraceHelp)
      .text("--model", request.model, "FILE", "where the plan's model is, if not where it was");
  if (!options.parse(argc, argv)) return 0;
  const auto format = record_format(format_name);
  check(request, others);
  Output output;
  if (!others.compared.empty())
    output.write(compare_files(others.compared[0], others.compared[1], format));
  else if (others.synthetic)
    use_synthetic(request, others, format, output);
  else
    measure(request, others, format, output);
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  return run_tool([&] { return bench(argc, argv); });
}

// Entry point of forge-bench: measures tokens per second, or compares two files of results.

#include <fmt/format.h>

#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "session/synthetic/synthetic_model.h"
#include "support/error.h"
#include "support/os/atomic_file.h"
#include "support/os/console.h"
#include "tools/bench/bench.h"
#include "tools/bench/bench_compare.h"
#include "tools/bench/roofline.h"
#include "tools/bench/tune.h"
#include "tools/cli/entry.h"
#include "tools/cli/options.h"

namespace {

using namespace forge;
using namespace forge::tools;

constexpr const char* kBenchFooter =
    "Lists (1,2,4) measure every combination. A pp row is the prefill of N tokens, a tg row the generation of N "
    "tokens one by one; 0 leaves the row out. With -b several sequences are decoded together; rates count the tokens "
    "of all of them.\n"
    "--compare reads files of -o json or jsonl, from forge-bench or llama-bench; ratios are A's rate divided by B's.\n"
    "--tune without a list measures kernel choices on the GPU: decode of -b sequences (default 1,8,32) and prefill of "
    "-p tokens. It stores the best ones for this GPU and model in the cache, and later compilations use them "
    "(--no-tuned: without). With a list (--tune rows=4,2048x8192:units=2) it sets them by hand for this run.\n"
    "--synthetic takes the shapes smollm2, 1b, 8b and tiny, and each type that forge runs: 1b:q4_0.\n";

/// Options that select something other than a plain measurement.
struct Others {
  std::vector<std::string> compared;
  std::optional<std::string> synthetic, save, trace, target;
  bool tunes = false;             ///< --tune without a list
  std::int64_t tune_seconds = 0;  ///< 0: not given
};

void check(const BenchRequest& request, const Others& others) {
  const auto refuse = [](const char* what, const char* fix) { throw Error(ErrorCode::kUsage, what, {}, fix); };
  const auto sources = int{!request.path.empty()} + int{others.synthetic.has_value()} + int{!others.compared.empty()};
  if (sources == 0) refuse("MODEL is required", "forge-bench --help lists the options");
  if (sources > 1) refuse("a model, --synthetic and --compare exclude each other", "give one of them");
  if (others.save && !others.synthetic)
    refuse("--save needs --synthetic", "give the model to write: --synthetic 1b:q4_0");
  if (others.synthetic && request.repack_cache)
    refuse("--repack-cache needs a model file", "--synthetic makes a new file each time: leave --repack-cache out");
  if (others.synthetic && !request.model.empty()) refuse("--model needs a plan", "leave it out with --synthetic");
  if (others.compared.empty() && !others.save && bench_cases(request).empty())
    refuse("there is nothing to measure", "give -p or -n above 0");
  if (others.tunes &&
      (!others.compared.empty() || others.save || request.roofline || others.trace || request.deterministic))
    refuse("--tune without a list excludes --compare, --save, --roofline, --profile-trace and --deterministic",
           "leave them out");
  if (others.tune_seconds != 0 && !others.tunes) refuse("--tune-seconds needs --tune without a list", "leave it out");
  if (request.tune && request.roofline && others.target)
    refuse("--roofline --target takes no --tune", "compile a plan with it (forge-compile --tune) and give that");
  if (others.target && !request.roofline)
    refuse("--target needs --roofline", "leave it out: a measurement is made on --device");
  if (others.target && request.device != "auto")
    refuse("--target and --device exclude each other", "--target estimates for a GPU that is not here");
  if (others.target && others.trace) refuse("--profile-trace needs a measurement", "leave --target out");
  if (request.roofline && !others.compared.empty()) refuse("--roofline needs a model", "leave --compare out");
  if (others.trace) check_output_path(*others.trace, {request.path, request.model, others.save.value_or("")});
}

void measure(BenchRequest& request, const Others& others, RecordFormat format, Output& output) {
  if (others.tunes)
    return tune_card(request,
                     others.tune_seconds == 0 ? TuneLimits().seconds : static_cast<double>(others.tune_seconds), format,
                     output);
  if (others.target) return estimate_roofline(request, *others.target, format, output);
  std::optional<forge::session::TraceFile> trace;
  if (others.trace) request.trace = &trace.emplace(*others.trace);
  if (request.roofline) {
    measure_roofline(request, format, output);
    if (trace) trace->finish();
    return;
  }
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
  } catch (...) {  // end the output properly, so that the rows measured so far can be read
    if (begun) output.write(writer.end());
    throw;
  }
  output.write(writer.end());
  if (trace) trace->finish();
}

/// Writes the --synthetic model to the --save file, or measures it from a temporary file.
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

constexpr const char* kMeasure = "measure";  ///< the value of --tune without a list

/// The command line with the value `measure` for each --tune that has no list: nothing with "=" follows it.
std::vector<const char*> with_tune_values(int argc, char** argv) {
  std::vector<const char*> out;
  for (int i = 0; i < argc; ++i) {
    out.push_back(argv[i]);
    const std::string_view next = i + 1 < argc ? argv[i + 1] : "-";
    const bool has_list = next.empty() || (next.contains('=') && next[0] != '-');
    if (std::string_view(argv[i]) == "--tune" && !has_list) out.push_back(kMeasure);
  }
  return out;
}

int bench(int argc, char** argv) {
  BenchRequest request;
  std::vector<std::int64_t> batch;
  std::string format_name = "md";
  Others others;
  Options options("forge-bench", "Measures tokens per second: mean, standard deviation and median.", kBenchFooter);
  options.positional("MODEL", request.path, "a GGUF file, or a plan made by forge-compile", false)
      .integers("-p,--n-prompt", request.prompt, 0, forge::session::kContextMax,
                "number of prompt tokens (pp rows); default 512")
      .integers("-n,--n-gen", request.predict, 0, forge::session::kContextMax,
                "number of tokens to generate (tg rows); default 128")
      .integers("-d,--n-depth", request.depth, 0, forge::session::kContextMax,
                "number of tokens in the KV cache before the measured ones; default 0")
      .integers("-b,--batch", batch, 1, forge::session::kSequencesMax,
                "number of sequences decoded together; default 1, with --tune 1,8,32")
      .integers("-t,--threads", request.threads, 1, 1024, forge::session::kThreadsHelp)
      .integer("-r,--repetitions", request.repetitions, 1, 10000, "number of timed runs of each row; default 5")
      .choice("-o,--output", format_name, kRecordFormats, "output format; default md")
      .text("--synthetic", others.synthetic, "SHAPE:TYPE", "measure a model with random weights instead of MODEL")
      .text("--save", others.save, "FILE", "write the --synthetic model to FILE instead of measuring it")
      .flag("--read-rate", request.read_rate,
            "measure the memory's read rate between decode runs, and show which share of it decode reaches; CPU only")
      .flag("--roofline", request.roofline,
            "show for each kernel of a step its time, bytes and FLOPs, and its shares of the measured rates of memory "
            "and matrix instructions; with --target, the instructions that it executes there")
      .text("--target", others.target, "NAME",
            "with --roofline: estimate from the compiled code for an AMD GPU that need not be here: gfx1100")
      .texts("--compare", others.compared, 2, "A.json B.json",
             "compare two files of results row by row instead of measuring")
      .text("--device", request.device, "NAME", forge::session::kDeviceHelp)
      .choice("--kv-type", request.kv_type, forge::session::kKvTypes, forge::session::kKvTypeHelp)
      .text("--attention", request.attention, "LIST", forge::session::kAttentionHelp)
      .text("--tune", request.tune, "[LIST]",
            "measure kernel choices on the GPU and store the best; or set them: rows=4")
      .integer("--tune-seconds", others.tune_seconds, 1, 3600, "how long --tune may measure; default 110")
      .flag("--no-tuned", request.no_tuned, forge::session::kNoTunedHelp)
      .flag("--deterministic", request.deterministic, forge::session::kDeterministicHelp)
      .flag("--repack-cache", request.repack_cache, forge::session::kRepackCacheHelp)
      .flag("--profile", request.profile,
            "time each kind of step and print tables to stderr; lowers the measured rates")
      .text("--profile-trace", others.trace, "FILE", forge::session::kTraceHelp)
      .text("--model", request.model, "FILE", forge::session::kModelHelp);
  const auto arguments = with_tune_values(argc, argv);
  if (!options.parse(static_cast<int>(arguments.size()), arguments.data())) return 0;
  others.tunes = request.tune == kMeasure;
  if (others.tunes) request.tune.reset();
  if (!batch.empty())
    request.batch = std::move(batch);
  else if (others.tunes)
    request.batch = {1, 8, 32};
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

// forge-bench: tokens a second.

#include "tools/bench.h"
#include "tools/console.h"
#include "tools/entry.h"
#include "tools/options.h"

namespace {

using namespace forge::tools;

constexpr const char* kFooter =
    "Lists (1,2,4) measure every combination. A prompt row (pp) reads N tokens in one go, a generation row (tg) makes "
    "N\n"
    "tokens one by one; 0 leaves the row out. With -b several sequences are decoded together; rates count all of "
    "them.\n";

int bench(int argc, char** argv) {
  BenchRequest request;
  std::string format_name = "md";
  Options options("forge-bench", "Measures tokens a second: mean and standard deviation.", kFooter);
  options.positional("MODEL", request.path, "MODEL.gguf, or a plan")
      .integers("-p,--n-prompt", request.prompt, 0, kContextMax, "prompt tokens; default 512")
      .integers("-n,--n-gen", request.predict, 0, kContextMax, "generated tokens; default 128")
      .integers("-d,--n-depth", request.depth, 0, kContextMax, "positions before the measured ones; default 0")
      .integers("-b,--batch", request.batch, 1, kSequencesMax, "sequences decoded together; default 1")
      .integers("-t,--threads", request.threads, 1, 1024, "default: what this process may use")
      .integer("-r,--repetitions", request.repetitions, 1, 10000, "default 5")
      .text("-o,--output", format_name, "md|json|csv", "default md")
      .text("--device", request.device, "NAME", "auto, cpu, hip:N, cuda:N; default auto")
      .flag("--profile", request.profile, "time each kind of step; tables on stderr, and slower results")
      .text("--model", request.model, "FILE", "where the plan's model is, if not where it was");
  if (!options.parse(argc, argv)) return 0;
  const auto format = bench_format(format_name);
  Output output;
  bool first = true;
  run_bench(request, [&](const BenchResult& result) {
    if (first) output.write(bench_begin(format));
    output.write(bench_row(format, result, first));
    first = false;
  });
  if (first) output.write(bench_begin(format));
  output.write(bench_end(format));
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  return run_tool([&] { return bench(argc, argv); });
}

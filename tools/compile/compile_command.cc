#include "tools/compile/compile_command.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <optional>
#include <string>

#include "codegen/back_end.h"
#include "passes/pass.h"
#include "runtime/plan/cache.h"
#include "session/device.h"
#include "session/model_file.h"
#include "session/open_model.h"
#include "session/tuned/tuned_choices.h"
#include "support/error.h"
#include "support/os/atomic_file.h"
#include "support/os/console.h"
#include "support/os/interrupt.h"
#include "tools/cli/options.h"
#include "tools/compile/compile_report.h"

namespace forge::tools {
namespace {

struct Request {
  std::string model, output, target = "auto", kv_type = "f16", tuned_for;
  std::optional<std::int64_t> context;
  codegen::CompileOptions options;
  bool no_tuned = false, force = false, list_passes = false, verbose = false;
};

std::string footer() {
  return fmt::format(
      "Without -o the plan is written to the cache ($FORGE_CACHE_DIR, else $XDG_CACHE_HOME/forge), where forge-run "
      "finds it.\n"
      "Targets: auto (the best GPU of this machine, else its CPU){}{}.\n"
      "A plan for several targets (a comma-separated list) has one program per target.\n",
      codegen::device_back_end() == nullptr
          ? ""
          : ", gfx1100, sm_90 and other GPUs (forge-inspect devices lists those of this machine)",
      codegen::host_back_end() == nullptr ? "" : ", " + codegen::cpu_target_names());
}

void list_passes() {
  std::string text;
  for (const auto& pass : passes::pipeline_passes())
    text += fmt::format("{:34} {:9} {}\n", pass.name, pass.optional ? "optional" : "required", pass.purpose);
  Output().write(text);
}

/// True if --list-passes is given: it needs no MODEL, which the option parser would require.
bool lists_passes(int argc, char** argv) {
  return std::any_of(argv + 1, argv + argc, [](const char* arg) { return std::string_view(arg) == "--list-passes"; });
}

bool parse(int argc, char** argv, Request& request) {
  Options options("forge-compile", "Compiles a GGUF model into a plan: the program that the other tools run.",
                  footer());
  options.positional("MODEL", request.model, "a GGUF file")
      .text("-o,--output", request.output, "PLAN", "write the plan to this file; default: the cache")
      .text("--target", request.target, "LIST", "CPUs or GPUs to compile for, listed below; default auto")
      .text("--tune", request.options.tune, "LIST",
            "override kernel parameters, for all matmuls or for one shape: rows=4,2048x8192:units=2")
      .text("--tuned-for", request.tuned_for, "CARD",
            "use the kernel choices that forge-bench --tune stored for this GPU, by its name in forge-inspect devices; "
            "default: the GPU of --target auto")
      .flag("--no-tuned", request.no_tuned, session::kNoTunedHelp)
      .integer("-c,--context", request.context, 1, session::kContextMax,
               "context size in tokens; default: the model's, at most 4096")
      .integer("--max-batch", request.options.batch_max, 1, session::kSequencesMax,
               "maximum number of sequences in one step; default 1")
      .flag("--embeddings", request.options.hidden,
            "also output hidden states, which forge-serve needs for /v1/embeddings")
      .choice("--kv-type", request.kv_type, session::kKvTypes, session::kKvTypeHelp)
      .text("--attention", request.options.attention, "LIST", session::kAttentionHelp)
      .flag("--deterministic", request.options.deterministic, session::kDeterministicHelp)
      .flag("--force", request.force, "compile even if the plan is in the cache")
      .group("Diagnostics")
      .text("--dump-ir", request.options.dump_ir_dir, "DIR", "write the graph after each pass as text to DIR")
      .text("--dump-dot", request.options.dump_dot_dir, "DIR", "write the graph after each pass for Graphviz to DIR")
      .texts("--skip-pass", request.options.skip, "NAME", "skip an optional pass; may be repeated")
      .flag("--list-passes", request.list_passes, "list the passes in the order they run and exit")
      .flag("-v,--verbose", request.verbose, "print what each pass changed and how long it took");
  return options.parse(argc, argv);
}

/// True if a cached plan must not be used: with --force, and for dumps, which only a compilation writes.
bool must_compile(const Request& request) {
  return request.force || !request.options.dump_ir_dir.empty() || !request.options.dump_dot_dir.empty();
}

/// The GPU whose stored choices are used, by its name; empty: none. `chosen`: what --target auto chose.
std::string tuned_card(const Request& request, std::span<const std::string> targets,
                       const std::optional<session::DeviceChoice>& chosen) {
  if (request.no_tuned) {
    if (!request.tuned_for.empty()) throw Error(ErrorCode::kUsage, "--tuned-for and --no-tuned exclude each other");
    return {};
  }
  if (request.tuned_for.empty()) return chosen && chosen->gpu ? chosen->gpu->info().name : std::string();
  if (targets.size() != 1 || !codegen::needs_device(targets.front()))
    throw Error(ErrorCode::kUsage, "--tuned-for needs one GPU as --target", {}, "name its target: --target sm_90");
  return request.tuned_for;
}

int compile(Request& request) {
  request.options.kv_type = dtype_of_name(request.kv_type).value();
  if (!request.output.empty()) check_output_path(request.output, {request.model});
  std::optional<session::DeviceChoice> chosen;
  if (request.target == "auto") chosen = session::choose_device("auto");
  const auto targets = chosen ? std::vector{chosen->target} : codegen::resolve_targets(request.target);
  const auto card = tuned_card(request, targets, chosen);
  Stopwatch watch;
  const auto file = loader::Gguf::open(request.model);
  if (!request.output.empty()) session::check_output_path(request.output, file);
  auto& options = request.options;
  const auto trained = session::trained_context(file, session::kContextDefault);
  options.context = request.context.value_or(std::min(trained, session::kContextDefault));
  if (options.context > trained)
    note(fmt::format("note: the context of {} tokens exceeds the {} tokens the model was trained for", options.context,
                     trained));
  const session::TunedSubject subject{.card = card, .target = targets.front(), .model = file.identity().hex()};
  if (!request.tuned_for.empty()) session::require_tuned(subject);
  options.tune = session::tune_with_stored(subject, options.tune);
  std::vector<codegen::CompileReport> reports;
  const auto build = [&] {
    progress("compiling " + request.model);
    auto plan = session::compile_model(file, targets, options, &reports);
    check_interrupt();
    return plan;
  };
  const auto report = [&](const plan::PlanT& plan, const std::string& where, bool built) {
    end_progress();
    for (const auto& one : reports) note_compile_report(one, request.verbose);
    note_plan(plan, where, built, watch.seconds());
  };
  if (!request.output.empty()) {
    const auto plan = build();
    plan::write_plan(request.output, plan);
    report(plan, request.output, true);
    return 0;
  }
  const auto cache_options = plan::CacheOptions::from_environment();
  const plan::PlanCache cache(cache_options);
  const auto key = codegen::cache_key({.identity = file.identity().hex()}, targets, options);
  if (std::error_code ignored; must_compile(request)) std::filesystem::remove(cache.entry_path(key), ignored);
  const auto result =
      cache.get_or_build(key, build, [] { progress("waiting for another process that compiles this model"); });
  end_progress();
  if (result.path.empty())
    throw Error(ErrorCode::kCache, "the plan was compiled but could not be stored",
                result.warnings.empty() ? "there is no cache" : strip_error_code(result.warnings.back()),
                "give a file with -o, or another cache with FORGE_CACHE_DIR");
  for (const auto& warning : result.warnings) warn(warning);
  report(result.plan, result.path.native(), result.built);
  return 0;
}

}  // namespace

int compile_command(int argc, char** argv) {
  if (lists_passes(argc, argv)) {
    list_passes();
    return 0;
  }
  Request request;
  return parse(argc, argv, request) ? compile(request) : 0;
}

}  // namespace forge::tools

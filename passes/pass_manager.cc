// The pass manager: runs passes and does everything that is the same for all of them, so that a pass contains its
// rewrite only.

#include <fmt/format.h>

#include <algorithm>
#include <chrono>

#include "ir/text/dot.h"
#include "ir/text/text.h"
#include "passes/dump.h"
#include "passes/passes.h"
#include "support/error.h"

namespace forge::passes {
namespace {

/// Throws Error(kUsage) for a name that is unknown or belongs to a required pass.
void check_skip_names(std::span<const Pass> passes, const std::vector<std::string>& skip) {
  for (const std::string& name : skip) {
    const auto found = std::ranges::find(passes, name, &Pass::name);
    if (found != passes.end() && found->optional) continue;
    std::string known;
    for (const Pass& pass : passes)
      if (pass.optional) known += (known.empty() ? "" : ", ") + std::string(pass.name);
    throw Error(ErrorCode::kUsage, fmt::format("pass '{}' cannot be skipped", printable(name)),
                found == passes.end() ? "there is no pass of that name" : "the pass is required",
                "name one of " + known);
  }
}

/// Runs one pass and checks the result. Rules: PM-001 the pass reports truthfully whether it changed the graph, PM-002
/// the text form reads back as the same graph. The time measured is that of the pass alone.
void run_checked(ir::Graph& graph, const Pass& pass, PassContext& context, const PipelineOptions& options,
                 PassReport& report) {
  const std::uint64_t before = options.check_hashes ? graph.hash() : 0;
  const auto start = std::chrono::steady_clock::now();
  report.changed = pass.run(graph, context);
  report.milliseconds = std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start).count();
  ir::verify(graph);
  check_phase(graph, context.target, pass.phase);
  if (options.check_hashes)
    invariant((graph.hash() != before) == report.changed, "PM-001",
              report.changed ? "the pass says that it changed the graph, but it did not"
                             : "the pass changed the graph and says that it did not");
  graph.compact();
  if (options.check_round_trip) {
    ir::Graph again = ir::parse(ir::print(graph));
    invariant(again.hash() == graph.hash(), "PM-002", "the graph's text does not read back as the same graph");
    graph = std::move(again);
  }
}

}  // namespace

std::vector<PassReport> run_passes(ir::Graph& graph, std::span<const Pass> passes, PassContext& context,
                                   const PipelineOptions& options) {
  check_skip_names(passes, options.skip);
  std::vector<PassReport> reports;
  for (const Pass& pass : passes) {
    PassReport report{.name = pass.name};
    report.skipped = std::ranges::find(options.skip, pass.name) != options.skip.end();
    report.nodes_before = graph.size();
    try {
      if (!report.skipped) run_checked(graph, pass, context, options, report);
    } catch (const Error& error) {
      throw error.within(fmt::format("pass {}", pass.name));
    }
    report.nodes_after = graph.size();
    reports.push_back(report);
    if (!options.dump_ir_dir.empty())
      write_dump(options.dump_ir_dir, reports.size(), pass.name, "ir", ir::print(graph));
    if (!options.dump_dot_dir.empty())
      write_dump(options.dump_dot_dir, reports.size(), pass.name, "dot", ir::dot(graph));
  }
  return reports;
}

}  // namespace forge::passes

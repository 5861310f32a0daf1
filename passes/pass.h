#pragma once
// Graph passes and the pipeline that runs them. A pass is a function on the graph that returns whether it changed
// anything; verifying, dumping, timing and skipping are done by the pass manager (run_passes). The drivers of
// compilation call run_pipeline.

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "ir/graph.h"
#include "passes/program.h"
#include "passes/target.h"

namespace forge::passes {

/// What passes share in one run of the pipeline.
struct PassContext {
  const Target& target;
  /// Reasons why a rewrite was not applied, one line each: "merge_qkv: layer 3: matmul: the matmuls read different
  /// values".
  std::vector<std::string> notes;
  std::int64_t context = 0;  ///< maximum positions of a sequence in the compiled program
};

/// The phases of the pipeline. Each allows more ops than the one before; phases.cc has the rules.
enum class Phase : std::uint8_t {
  kPortable,      ///< the graph that model families build: independent of the target; plans store it
  kRestructured,  ///< norms may be split
  kLowered,       ///< every matmul takes the activation type that the target multiplies
  kGrouped,       ///< nodes may be in fused groups
};

/// Throws Error(kInternal) with the number of the rule (PH-nnn) that the graph breaks.
void check_phase(const ir::Graph& graph, const Target& target, Phase phase);

/// One row of the pipeline.
struct Pass {
  std::string_view name;  ///< also the name of its file, of its function, and in PipelineOptions::skip
  bool optional = true;   ///< may be skipped by name
  Phase phase{};          ///< phase of the graph after the pass, which is checked
  bool (*run)(ir::Graph&, PassContext&) = nullptr;  ///< returns whether the graph changed
  std::string_view purpose;                         ///< one line for --help and docs
};

/// What one pass did, for reports of compilation.
struct PassReport {
  std::string_view name;
  bool skipped = false, changed = false;
  std::size_t nodes_before = 0, nodes_after = 0;
  double milliseconds = 0;
};

struct PipelineOptions {
  std::int64_t context = 0;    ///< maximum KV positions of a sequence
  std::int64_t batch_max = 1;  ///< maximum sequences in one step
  bool hidden = false;  ///< compile an embedding model: output hidden rows instead of logits (output_hidden_rows.h)
  std::vector<std::string> skip;  ///< names of passes to skip; unknown or required ones are Error(kUsage)
  /// Folder for dumps, created when missing; "": no dumps. NN-name.ir after every pass, then one file for each variant
  /// with its schedule in comments.
  std::string dump_ir_dir;
  std::string dump_dot_dir;       ///< the same as Graphviz .dot; "": no dumps
  bool check_round_trip = false;  ///< print and parse the graph after every pass and compare the hashes
  bool check_hashes = true;       ///< compare hashes before and after: a wrong `changed` is an internal error
};

/// What compilation of the graph gives.
struct PipelineResult {
  Program program;
  std::vector<PassReport> reports;
  std::vector<std::string> notes;
};

/// All graph passes in order; pipeline.cc explains the order.
std::span<const Pass> pipeline_passes();

/// Runs `passes` in order. After each pass it verifies the graph, checks the phase, compares hashes, compacts the graph
/// and writes dumps, as `options` say; skipped passes are reported too. Throws Error(kUsage) for a name in `skip` that
/// is unknown or required, and Error(kInternal) naming the pass that breaks the graph or misreports a change.
std::vector<PassReport> run_passes(ir::Graph& graph, std::span<const Pass> passes, PassContext& context,
                                   const PipelineOptions& options);

/// Compiles a portable graph to a scheduled program: runs all passes, then binds the target's variants. The last report
/// is that of "bind_variants". Throws Error.
PipelineResult run_pipeline(ir::Graph graph, const Target& target, const PipelineOptions& options);

}  // namespace forge::passes

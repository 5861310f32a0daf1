#pragma once
// A pass is a function on the graph that says whether it changed anything. Verifying, dumping, timing and skipping
// belong to the manager.

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

struct PassContext {
  const Target& target;
  /// Guards that refused, one line each ("fuse_qkv: layer 3: k has no RoPE"); shown in dumps.
  std::vector<std::string> notes;
  std::int64_t context = 0;  ///< positions that a sequence of the program can have
};

/// What a graph may contain from one border of the pipeline to the next (phases.cc has the rules).
enum class Phase : std::uint8_t {
  kPortable,      ///< what model families build: fits every target, and plans store it
  kRestructured,  ///< weights are concatenated, norms are split
  kLowered,       ///< every matmul takes the activations that the target wants
  kGrouped,       ///< fused groups
};

/// Throws Error(kInternal) citing the rule (PH-nnn) that the graph breaks.
void check_phase(const ir::Graph& graph, const Target& target, Phase phase);

struct Pass {
  std::string_view name;  ///< file, flag and test have the same name
  bool optional = true;   ///< may be skipped by name
  Phase phase{};          ///< of the graph after the pass
  bool (*run)(ir::Graph&, PassContext&) = nullptr;
  std::string_view purpose;  ///< one line for --help and docs
};

struct PassReport {
  std::string_view name;
  bool skipped = false, changed = false;
  std::size_t nodes_before = 0, nodes_after = 0;
  double milliseconds = 0;
};

struct PipelineOptions {
  std::int64_t context = 0;       ///< KV positions a sequence can have
  std::int64_t batch_max = 1;     ///< sequences in one step
  bool hidden = false;            ///< the model gives hidden rows, not logits, in the target's variants for that
  std::vector<std::string> skip;  ///< names; unknown or required ones are Error(kUsage)
  /// "": none; one NN-name.ir after every pass, then one a variant with its schedule in comments. Made when missing.
  std::string dump_ir_dir;
  std::string dump_dot_dir;       ///< "": none; the same as .dot
  bool check_round_trip = false;  ///< print and parse after every pass and compare hashes
  bool check_hashes = true;       ///< a pass that lies about `changed` is an internal error
};

struct PipelineResult {
  Program program;
  std::vector<PassReport> reports;
  std::vector<std::string> notes;
};

/// All graph passes in order (pipeline.cc explains the order).
std::span<const Pass> pipeline_passes();

/// Runs `passes` in order, with everything that options ask for: skipping, verifying and checking the phase after each,
/// comparing hashes, dumping, timing. Throws Error(kUsage) for a name in `skip` that is unknown or required, and
/// Error(kInternal) naming the pass when it breaks the graph or misreports a change.
std::vector<PassReport> run_passes(ir::Graph& graph, std::span<const Pass> passes, PassContext& context,
                                   const PipelineOptions& options);

/// Portable graph in, scheduled program out: the passes, then variants. The reports end with one for "bind_variants".
/// Throws Error.
PipelineResult run_pipeline(ir::Graph graph, const Target& target, const PipelineOptions& options);

}  // namespace forge::passes

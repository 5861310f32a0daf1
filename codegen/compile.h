#pragma once
// The compiler's entry points: from the portable graph of a model to a plan. For each target they run the passes,
// choose and lower the steps, and compile kernels. Used by session/ and the tools.

#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "codegen/kernel_compiler.h"
#include "codegen/model_file.h"
#include "ir/graph.h"
#include "passes/pass.h"
#include "passes/target.h"
#include "runtime/plan/plan_generated.h"

namespace forge::codegen {

struct CompileOptions {
  std::int64_t context = 0;               ///< most positions of a sequence; at least 1
  std::int64_t batch_max = 1;             ///< most sequences in a step
  std::vector<std::string> skip;          ///< optional passes to skip
  std::string dump_ir_dir, dump_dot_dir;  ///< folders for dumps after each pass; empty: no dumps
  bool check_round_trip = false;          ///< print and parse the graph after each pass (a check of the text form)
  /// Compiles kernels for GPU targets; if null, GPU targets are refused. Not owned. Not part of the cache key, because
  /// each code object names its compiler.
  KernelCompiler* kernels = nullptr;
  DType kv_type = DType::kF16;  ///< element type of the KV cache; the target must support it
  /// Also make variants that output hidden rows (after the final norm), for embeddings, if the target supports them.
  bool hidden = false;
  /// Manual kernel choices, for measurements: "rows=4,2048x8192:units=2" (codegen/gpu/tuning.h).
  std::string tune;
  std::string attention;  ///< see codegen/attention_choice.h
  /// The bits of a token's logits depend on its sequence's tokens alone: not on other sequences in its steps, on how
  /// the prompt was cut into steps, nor on what of it was reused.
  bool deterministic = false;
  std::int32_t rank = 0,
               world = 1;  ///< number of this program among those that share a model; only 0 of 1 is supported
};

/// What happened while a target's program was made: reports of passes, and notes for the user.
struct CompileReport {
  std::string target;
  std::vector<passes::PassReport> passes;
  std::vector<std::string> notes;
};

/// The targets of the host's processor, for messages: "cpu, cpu-generic, cpu-x86-64-v3, ...".
[[nodiscard]] std::string cpu_target_names();
/// The target of this machine's processor: "cpu-x86-64-v4-vnni". Errors: kUsage if this build has no CPU back-end.
std::string host_target();

/// Full target names, in order and without duplicates, for a comma list from the command line ("auto", "cpu",
/// "cpu-x86-64-v3", "gfx1100", "gfx942:sramecc+:xnack-", "sm_90"). "auto" is the processor of this machine:
/// no GPU is looked for (session/device.h does that). Errors: kUsage for an unknown name; it lists the known ones.
std::vector<std::string> resolve_targets(std::string_view list);

/// True if `target` is the full name of a target that runs on a device.
bool needs_device(std::string_view target);
/// True if programs for `target` (a full name) can keep the KV cache in this type. Errors: kUsage for an unknown
/// target.
bool supports_kv_type(std::string_view target, DType type);
/// True if programs for `target` can output hidden rows, for embeddings. Errors: kUsage for an unknown target.
bool gives_hidden(std::string_view target);

/// The options that change the generated program, for messages and the cache key: "context=128 batch=1 kv=q8_0".
std::string options_text(const CompileOptions& options);
/// The options that a program was compiled with, except the folders of dumps. Errors: kPlan for an unknown KV type or
/// choice of attention.
CompileOptions options_of(const plan::ProgramT& program);

/// The cache key of a plan: 32 hex digits, a hash of model identity, targets, options, forge's version and build, and
/// the plan format's version.
std::string cache_key(const ModelFile& model, std::span<const std::string> targets, const CompileOptions& options);

/// Compiles the program of one target (a full name). `report` is filled if not null. Errors: kUsage for options that
/// the target does not support; those of the passes and of the kernel compiler.
std::unique_ptr<plan::ProgramT> compile_program(const ir::Graph& portable, const ModelFile& model,
                                                const std::string& target, const CompileOptions& options,
                                                CompileReport* report = nullptr);

/// Compiles a plan: the portable graph's text and one program per target.
plan::PlanT compile_plan(const ir::Graph& portable, const ModelFile& model, std::span<const std::string> targets,
                         const CompileOptions& options, std::vector<CompileReport>* reports = nullptr);

}  // namespace forge::codegen

#pragma once
// Portable graph -> plan: runs the pipeline for each target and lowers the result.

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
  std::int64_t context = 0;    ///< positions a sequence can have; at least 1
  std::int64_t batch_max = 1;  ///< sequences in one step
  std::vector<std::string> skip;
  std::string dump_ir_dir, dump_dot_dir;
  bool check_round_trip = false;
  /// Compiles kernels for GPU targets; none: programs for GPUs are refused. Not part of the cache key: code objects
  /// name their compiler.
  KernelCompiler* kernels = nullptr;
  DType kv_type = DType::kF16;  ///< of the KV cache; what the target can have
  /// A variant whose steps give rows of the final norm, too, for embeddings, where the target has such.
  bool hidden = false;
  /// Kernel choices made by hand, for measuring: "rows=4,2048x8192:units=2" (codegen/gpu/tuning.h).
  std::string tune;
  std::string attention;             ///< codegen/attention_choice.h
  std::int32_t rank = 0, world = 1;  ///< which of how many programs that run the model together; 0 of 1 alone is made
};

/// What happened while one target's program was made, for people.
struct CompileReport {
  std::string target;
  std::vector<passes::PassReport> passes;
  std::vector<std::string> notes;
};

/// Targets of the host's processor, for people: "cpu, cpu-generic, cpu-x86-64-v3, ...".
[[nodiscard]] std::string cpu_target_names();
/// The target that fits this machine's processor: "cpu-x86-64-v4-vnni". Errors: kUsage where this build has none.
std::string host_target();

/// Target names as the command line gives them ("auto", "cpu", "cpu-x86-64-v3", "gfx1100", "gfx942:sramecc+:xnack-",
/// "sm_90", comma list) -> full names, in order. "auto" is the CPU's: devices are the tools' to find.
/// Errors: kUsage naming the unknown one and what there is.
std::vector<std::string> resolve_targets(std::string_view list);

/// Is it a target by its full name, and one that needs a device?
bool needs_device(std::string_view target);
/// Can programs for a target, by its full name, keep KV in this type? Can they give rows of the final norm?
/// Errors: kUsage for an unknown target.
bool keeps_kv_in(std::string_view target, DType type);
bool gives_hidden(std::string_view target);

/// What of the options changes the code, for people and for the cache key: "context=128 batch=1 kv=q8_0".
std::string options_text(const CompileOptions& options);
/// The options that a program was compiled with, but for where dumps went. Errors: kPlan for a type, or a
/// choice of attention, that does not exist.
CompileOptions options_of(const plan::ProgramT& program);

/// The cache key of a plan: model identity, targets, options, forge's version and plan version; letters and digits.
std::string cache_key(const ModelFile& model, std::span<const std::string> targets, const CompileOptions& options);

std::unique_ptr<plan::ProgramT> compile_program(const ir::Graph& portable, const ModelFile& model,
                                                const std::string& target, const CompileOptions& options,
                                                CompileReport* report = nullptr);

/// A whole plan: the portable graph's text and one program a target.
plan::PlanT compile_plan(const ir::Graph& portable, const ModelFile& model, std::span<const std::string> targets,
                         const CompileOptions& options, std::vector<CompileReport>* reports = nullptr);

}  // namespace forge::codegen

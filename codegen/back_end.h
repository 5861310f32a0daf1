#pragma once
// Back-ends. A back-end is a family of targets (the CPU's classes, the GPUs) that chooses the steps of a program and
// lowers them into a plan. Each has a folder here and a word in the Meson option `back_ends`, from which back_ends.def
// is generated; that registry (back_ends.cc) is the only place that names back-ends. Users: compile.cc and the tools.

#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "codegen/attention_choice.h"
#include "codegen/kernel_compiler.h"
#include "codegen/model_file.h"
#include "passes/program.h"
#include "passes/target.h"
#include "runtime/plan/plan_generated.h"

namespace forge::codegen {

/// The compile options that influence a target's choices.
struct TargetOptions {
  DType kv_type = DType::kF16;  ///< element type of the KV cache
  std::string tune;             ///< see codegen/gpu/tuning.h
  AttentionChoice attention;
  bool deterministic = false;  ///< CompileOptions::deterministic
};

/// A target of a back-end, as the passes and the compiler see it.
class BackEndTarget : public passes::Target {
 public:
  /// Fills in the runtime that runs its programs (api) and the prompt sizes that suit it (prompt_tokens, long_prompt).
  virtual void add_facts(plan::TargetFactsT& facts) const = 0;

  /// Lowers a scheduled program: writes the addresses of the steps that `choose` gave, and fills all of the plan's
  /// program except target, facts, options and context. hidden: the variants of the same model that output hidden rows
  /// (for embeddings); they use the same weights. compiler: not null for back-ends that compile kernels, unused by
  /// others.
  [[nodiscard]] virtual std::unique_ptr<plan::ProgramT> lower(passes::Program program,
                                                              std::optional<passes::Program> hidden,
                                                              const ModelFile& model,
                                                              KernelCompiler* compiler) const = 0;
};

/// A row of the registry. Function pointers may be null where the comment says so.
struct BackEnd {
  std::string_view name;  ///< "cpu"
  bool on_host = false;   ///< programs run on the host's processor: no device, no kernels to compile
  /// The element types that the KV cache can have on a target, which has its full name.
  std::vector<DType> (*kv_types)(std::string_view target) = nullptr;
  bool gives_hidden = false;  ///< programs can output hidden rows (after the final norm), for embeddings
  /// The full name of the target that the user calls `name` ("cpu", "gfx942:sramecc+"); nothing if this back-end has no
  /// such target.
  std::optional<std::string> (*find)(std::string_view name) = nullptr;
  /// How well a program for `target` suits a machine whose own target is `machine` (both full names): higher is better,
  /// nothing means that it does not run there.
  std::optional<int> (*rank)(std::string_view target, std::string_view machine) = nullptr;
  /// Its targets, for messages: "cpu, cpu-generic, ...".
  std::string (*target_names)() = nullptr;
  /// Opens the compiler of its kernels; null if it has no kernels to compile. `note` gets messages for the user, one
  /// line each.
  std::unique_ptr<KernelCompiler> (*open_compiler)(std::function<void(const std::string&)> note) = nullptr;
  /// The features of this machine that the back-end uses, for messages: "avx2 fma f16c"; may be null.
  std::string (*features)() = nullptr;
  /// Makes a target by its full name. Errors: kUsage for options that the target does not support.
  std::unique_ptr<const BackEndTarget> (*make)(std::string_view target, const TargetOptions& options) = nullptr;
};

/// The back-end for the host's processor, and the one for devices; null if this build does not have it.
[[nodiscard]] const BackEnd* host_back_end();
[[nodiscard]] const BackEnd* device_back_end();

/// The back-ends of this build. The first one whose `find` accepts a name gets it.
[[nodiscard]] std::span<const BackEnd> back_ends();

/// The back-end of a target, by the target's full name; null if there is none.
[[nodiscard]] const BackEnd* back_end_of(std::string_view target);
/// The same, but an unknown target is an error. Errors: kUsage.
[[nodiscard]] const BackEnd& require_back_end(std::string_view target);

}  // namespace forge::codegen

#pragma once
// A back-end: a family of targets, the steps that it chooses for them, and how those become a plan's program. Each has
// a folder here and a word of the Meson option `back_ends`, of which the rows follow (back_ends.def, back_ends.cc);
// nothing else names one.

#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "codegen/attention_choice.h"
#include "codegen/kernel_compiler.h"
#include "codegen/model_file.h"
#include "passes/program.h"
#include "passes/target.h"
#include "runtime/plan/plan_generated.h"

namespace forge::codegen {

/// What of the compile options a target needs to know.
struct TargetOptions {
  DType kv_type = DType::kF16;  ///< of the KV cache
  std::string tune;             ///< codegen/gpu/tuning.h
  AttentionChoice attention;
};

class BackEndTarget : public passes::Target {
 public:
  /// Who runs its programs, and what suits them: api, prompt_tokens, long_prompt.
  virtual void add_facts(plan::TargetFactsT& facts) const = 0;

  /// Everything of the plan's program but target, facts, options and context: addresses for the steps that `choose`
  /// gave. `hidden`: the same model as it gives hidden rows, on the same weights. `compiler`: for back-ends that
  /// compile kernels; not null there.
  [[nodiscard]] virtual std::unique_ptr<plan::ProgramT> lower(passes::Program program,
                                                              std::optional<passes::Program> hidden,
                                                              const ModelFile& model,
                                                              KernelCompiler* compiler) const = 0;
};

struct BackEnd {
  std::string_view name;            ///< "cpu"
  bool on_host = false;             ///< its programs run on the host's processor: no device, and no kernels to compile
  std::span<const DType> kv_types;  ///< what they can keep KV in
  bool gives_hidden = false;        ///< they can give rows of the final norm, for embeddings
  /// The full name of the target that a user's name means ("cpu", "gfx942:sramecc+"); none: no target of this back-end.
  std::optional<std::string> (*find)(std::string_view name) = nullptr;
  /// How well a program for `target` runs where `machine` is what one would compile for, both full names: the highest
  /// number is the best; none: not at all.
  std::optional<int> (*rank)(std::string_view target, std::string_view machine) = nullptr;
  /// Its targets, for messages: "cpu, cpu-generic, ...".
  std::string (*target_names)() = nullptr;
  /// What compiles its kernels; null: it has none. `note` gets what is to be said, one line each.
  std::unique_ptr<KernelCompiler> (*open_compiler)(std::function<void(const std::string&)> note) = nullptr;
  /// What this machine has of what matters to it, for people: "avx2 fma f16c"; null: nothing is known.
  std::string (*features)() = nullptr;
  /// `target` is a full name. Errors: kUsage for options that it cannot have.
  std::unique_ptr<const BackEndTarget> (*make)(std::string_view target, const TargetOptions& options) = nullptr;
};

/// That of the host's processor, and that of devices, where this build has it; null: none.
[[nodiscard]] const BackEnd* host_back_end();
[[nodiscard]] const BackEnd* device_back_end();

/// The back-ends that this build has. A target is found by the first that knows it.
[[nodiscard]] std::span<const BackEnd> back_ends();

/// The back-end of a target by its full name; null: none.
[[nodiscard]] const BackEnd* back_end_of(std::string_view target);
/// The same for one that must have one. Errors: kUsage.
[[nodiscard]] const BackEnd& require_back_end(std::string_view target);

}  // namespace forge::codegen

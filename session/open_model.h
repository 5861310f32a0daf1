#pragma once
// Opens a MODEL argument (a GGUF file or a plan) and returns the model file and a program for the chosen target. The
// program comes from the plan, from the plan cache, or is compiled now:
//
//   MODEL.gguf  ->  plan cache hit: that program;  miss: compile, store in the cache
//   PLAN        ->  has a suitable program: that one;  else: recompile its portable graph as above, with a note
//
// A compilation for a card uses the kernel choices that were measured on it for the model (session/tuned). A plan's
// program has its own.

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "loader/gguf/gguf.h"
#include "runtime/plan/plan_generated.h"

namespace forge::session {

inline constexpr std::int64_t kContextDefault = 4096;  ///< tokens; less if the model was trained with less
inline constexpr std::int64_t kContextMax = std::int64_t{1} << 24;
inline constexpr std::int64_t kSequencesMax = 256;
inline constexpr const char* kKvTypes = "f16|q8_0|q4_0|fp8";
// Help texts of options that several tools have.
inline constexpr const char* kModelHelp = "path of the plan's model file; default: the path stored in the plan";
inline constexpr const char* kDeviceHelp =
    "where to run: auto, cpu, hip:N (AMD GPU) or cuda:N (NVIDIA GPU), N from 0; default auto";
inline constexpr const char* kThreadsHelp = "number of CPU threads; default: one per CPU that this process may use";
inline constexpr const char* kAttentionHelp =
    "how to run attention: auto; tiles or rows for prefill on GPUs; split or whole for decode; or both: rows,split; "
    "default auto";
inline constexpr const char* kNoTunedHelp = "do not use the kernel choices that forge-bench --tune stored for this GPU";
inline constexpr const char* kDeterministicHelp =
    "the same logits, bit for bit, alone and in any batch, however a prompt is cut or reused; slower on GPUs";
inline constexpr const char* kKvTypeHelp = "data type of the KV cache; default f16";

/// What to open, from the command line.
struct ModelChoice {
  std::string path;                      ///< MODEL.gguf or PLAN
  std::string model;                     ///< path of the plan's model file; empty: the path stored in the plan
  std::string target;                    ///< compile target; empty: this machine's CPU
  std::optional<std::int64_t> context;   ///< tokens per sequence; empty: the plan's, or kContextDefault
  std::int64_t sequences = 1;            ///< maximum number of sequences in one step
  std::vector<std::string> skip;         ///< names of optional passes to skip
  bool hidden = false;                   ///< also output hidden states, for embeddings; ignored where not supported
  std::optional<std::string> kv_type;    ///< one of kKvTypes; empty: the plan's, or f16
  std::optional<std::string> attention;  ///< see codegen/attention_choice.h; empty: the plan's, or auto
  std::string card;                      ///< the GPU's name; empty: the choices stored for a card are not used
  std::optional<std::string> tune;       ///< --tune, see codegen/gpu/tuning.h; empty: the plan's, or none
  bool no_tuned = false;                 ///< do not use the choices stored for the card (session/tuned)
  bool keeps_plan = true;                ///< store a compiled plan in the cache
  bool deterministic = false;            ///< CompileOptions::deterministic; a plan must have been compiled so
};

struct OpenedModel {
  std::filesystem::path path;          ///< path of the model's first file
  std::unique_ptr<loader::Gguf> file;  ///< on the heap, because executor and tokenizer hold views into it
  std::shared_ptr<const plan::ProgramT> program;
  std::int64_t context = 0;  ///< tokens per sequence; at most the program's
  std::string origin;        ///< where the program came from, for messages: "plan x.plan", "cache", "compiled"
};

/// Opens the model. Prints to stderr the cache's warnings and a note when a plan is recompiled.
/// Errors: those of Gguf::open, build_model, read_plan and compilation; kPlan when the plan was made for another model
/// or its model is not found; kUsage when it is not deterministic, but should be.
[[nodiscard]] OpenedModel open_model(const ModelChoice& choice);

/// Index of the plan's best program for a machine with target `target`: the program for that very target, or the best
/// CPU level that the machine also supports; -1 if there is none. Empty `target`: this machine's CPU.
[[nodiscard]] int choose_program(const plan::PlanT& plan, std::string_view target = {});

/// Opens the plan's model and checks that it is the model the plan was made for. `model` overrides the path that is
/// stored in the plan; it may name any part of a split model. Errors: kPlan when the file is not found or is another
/// model; those of Gguf::open.
[[nodiscard]] std::unique_ptr<loader::Gguf> open_model_of(const plan::PlanT& plan, const std::string& plan_path,
                                                          const std::string& model);

}  // namespace forge::session

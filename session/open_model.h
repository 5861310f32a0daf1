#pragma once
// MODEL.gguf or PLAN -> the model file and a program for this machine, from the plan, the cache, or compiled now.

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

inline constexpr std::int64_t kContextDefault = 4096;  ///< unless the model was trained for less
inline constexpr std::int64_t kContextMax = std::int64_t{1} << 24;
inline constexpr std::int64_t kSequencesMax = 256;
inline constexpr const char* kKvTypes = "f16|q8_0";
inline constexpr const char* kAttentionHelp =
    "how attention is run: auto, or tiles|rows for prompts (GPUs), split|whole for decoding; default auto";
inline constexpr const char* kKvTypeHelp = "type of the KV cache; default f16; q8_0 on CPUs only";

struct ModelChoice {
  std::string path;                     ///< MODEL.gguf or PLAN
  std::string model;                    ///< where the plan's model lies; empty: where the plan says
  std::string target;                   ///< what it runs on; empty: this machine's CPU
  std::optional<std::int64_t> context;  ///< empty: the plan's, or kContextDefault
  std::int64_t sequences = 1;           ///< in one step
  std::vector<std::string> skip;        ///< passes
  bool hidden = false;                  ///< on CPUs: it gives hidden rows too, for embeddings
  std::optional<std::string> kv_type;   ///< one of kKvTypes; empty: the plan's, or f16
  /// codegen/attention_choice.h; empty: the plan's, or auto.
  std::optional<std::string> attention;
};

struct OpenedModel {
  std::filesystem::path path;          ///< of the model file
  std::unique_ptr<loader::Gguf> file;  ///< never moves: others hold views into it
  std::shared_ptr<const plan::ProgramT> program;
  std::int64_t context = 0;  ///< positions of a sequence; at most the program's
  std::string origin;        ///< "plan x.plan", "cache", "compiled", for people
};

/// Notes go to stderr, one line each: what the cache had to say, and that a plan was compiled again for this machine.
/// Errors: those of Gguf::open, build_model, read_plan and compilation; kPlan when the plan was made for another model
/// or its model is not found.
[[nodiscard]] OpenedModel open_model(const ModelChoice& choice);

/// Which of a plan's programs runs best where one would compile for `target`: its own, or on a CPU the best that it
/// runs; -1 when none does. No target: this machine's CPU.
[[nodiscard]] int choose_program(const plan::PlanT& plan, std::string_view target = {});

/// The plan's model file, opened and compared with the plan. `model` overrides the recorded path.
/// Errors: kPlan when it is not found or another one; those of Gguf::open.
[[nodiscard]] std::unique_ptr<loader::Gguf> open_model_of(const plan::PlanT& plan, const std::string& plan_path,
                                                          const std::string& model, std::filesystem::path& found);

}  // namespace forge::session

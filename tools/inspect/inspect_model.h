#pragma once
// forge-inspect MODEL|PLAN and forge-inspect devices: the reports, as text or JSON.

#include <cstdint>
#include <optional>
#include <string>

namespace forge::tools {

struct InspectOptions {
  std::string path;  ///< MODEL.gguf or PLAN
  std::optional<std::int64_t> context;
  bool json = false;
  bool all = false;  ///< list every tensor of a model, or every step and weight of a plan
};

/// Report about a GGUF file: metadata, tensor types, tokenizer, chat template, sampling defaults, and the memory that a
/// run needs. A model that forge cannot run is shown as well, with the reason. Errors: those of Gguf::open.
[[nodiscard]] std::string inspect_model(const InspectOptions& options);

/// Report about a plan: programs, variants, steps with their bytes, arena, weights. Errors: those of read_plan.
[[nodiscard]] std::string inspect_plan(const InspectOptions& options);

/// Report about this machine: CPU target, features, cores, memory; for each GPU vendor the driver, compiler, GPUs, and
/// what is missing with the package to install. Errors: none; problems are part of the report.
[[nodiscard]] std::string inspect_devices(bool json);

}  // namespace forge::tools

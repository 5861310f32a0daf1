#pragma once
// forge-inspect MODEL|PLAN: what is in the file, as text or JSON.

#include <cstdint>
#include <optional>
#include <string>

namespace forge::tools {

struct InspectOptions {
  std::string path;  ///< MODEL.gguf or PLAN
  std::optional<std::int64_t> context;
  bool json = false;
  bool all = false;  ///< every tensor of a model, every step of a plan
};

/// Metadata, tensors by type, tokenizer, template, and the memory a run takes. A model that forge cannot run is shown
/// all the same, with the reason. Errors: those of Gguf::open.
[[nodiscard]] std::string inspect_model(const InspectOptions& options);

/// Programs, variants, steps with their bytes, arena, weights. Errors: those of read_plan.
[[nodiscard]] std::string inspect_plan(const InspectOptions& options);

/// This machine: CPU class, features, cores, memory; of each GPU vendor the driver, the compiler, the cards, and what
/// is missing with the package that brings it. Errors: none; what does not work is part of the text.
[[nodiscard]] std::string inspect_devices(bool json);

}  // namespace forge::tools

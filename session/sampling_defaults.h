#pragma once
// How a model's maker wants tokens to be chosen: the keys general.sampling.* of its file. Source of the names:
// gguf-py's constants and llama.cpp's llama-arch.cpp (general.sampling.temp and its like), where the converter writes
// them from Hugging Face's generation_config.json.

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace forge::loader {
class Gguf;
}

namespace forge::session {

/// Empty: the file does not say. Numbers are in the ranges that forge-run's options have.
struct SamplingDefaults {
  std::optional<float> temperature;   ///< temp; 0: greedy
  std::optional<std::int32_t> top_k;  ///< 0: off, which the file may also call -1
  std::optional<float> top_p, min_p;
  std::optional<float> repeat_penalty;         ///< penalty_repeat
  std::optional<std::int32_t> penalty_window;  ///< penalty_last_n
  /// "general.sampling.temp is f32 -1, and 0 to 100 is possible": one for each key that is not used.
  std::vector<std::string> ignored;
};

/// What cannot be (NaN, a text, out of range) and what forge's sampler does not have is not used, and is said in
/// `ignored`. Errors: none.
[[nodiscard]] SamplingDefaults read_sampling_defaults(const loader::Gguf& file);

}  // namespace forge::session

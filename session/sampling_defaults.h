#pragma once
// Sampling defaults that a model file recommends: its keys general.sampling.*, which llama.cpp's converter writes from
// Hugging Face's generation_config.json. Used by forge-run and forge-serve where the user or the request sets nothing.
// Source of the names: gguf-py's constants and llama.cpp's llama-arch.cpp.

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace forge::loader {
class Gguf;
}

namespace forge::session {

/// An empty value: the file does not set it. Values are within the ranges of forge-run's options.
struct SamplingDefaults {
  std::optional<float> temperature;   ///< temp; 0: greedy
  std::optional<std::int32_t> top_k;  ///< 0: off; -1 in the file becomes 0
  std::optional<float> top_p, min_p;
  std::optional<float> repeat_penalty;         ///< penalty_repeat
  std::optional<std::int32_t> penalty_window;  ///< penalty_last_n
  /// One message for each key that is not used: "general.sampling.temp is f32 -1; it must be a number from 0 to 100".
  std::vector<std::string> ignored;
};

/// Reads the keys. An invalid value (NaN, not a number, out of range) or a setting that forge's sampler lacks is not
/// used and reported in `ignored`. Errors: none.
[[nodiscard]] SamplingDefaults read_sampling_defaults(const loader::Gguf& file);

}  // namespace forge::session

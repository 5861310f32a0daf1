#pragma once
// What a chat template prints for answers in history, around known texts.

#include <optional>
#include <string>
#include <string_view>

#include "text/answer/history_form.h"

namespace forge::text {

/// Pieces of renderings. Empty where the template does not print the text.
struct FormatProbe {
  std::string prompt_end;  ///< what a generation prompt adds
  struct Call {
    std::string before;   ///< from the header of the turn (without it) to the tool's name
    std::string middle;   ///< from there to the name of the argument
    std::string between;  ///< from there to its value, a string
    std::string after;
  };
  std::optional<Call> call;
  std::string two_calls;  ///< what follows the same header where there are two calls, of the values in order
  std::string two_keys;   ///< the same for one call with two arguments
  struct Reasoning {
    std::string before, between;  ///< what is printed before reasoning, and between it and content or a tool's name
    std::size_t common = 0;       ///< bytes of `before` that are printed without reasoning, too
  };
  std::optional<Reasoning> reasoning;
  HistoryForm history;
  std::string thought_end;  ///< a marker in an answer's content that the template takes for the end of reasoning
  bool reasoning_beside_call = false;                        ///< it is printed next to calls only
  std::optional<std::string> before_content, after_content;  ///< without the header of the turn
  std::string asked_with_tools, asked;                       ///< whole prompts of the same question
};

/// The texts in the conversations of the probe. The first value is kValue.
inline constexpr std::string_view kProbeName = "forge_probe_tool", kProbeKey = "forge_probe_key",
                                  kProbeValue = "forge-probe-value", kProbeKey2 = "forge_probe_next",
                                  kProbeValue2 = "forge-other-value", kProbeId = "probe0id1", kProbeId2 = "probe0id2";

/// The size of what both texts begin with, without a marker that they share in part.
[[nodiscard]] std::size_t common_size(std::string_view a, std::string_view b);

/// Renders short conversations. Never throws for what a template does: what it refuses stays empty.
[[nodiscard]] FormatProbe probe_format(std::string_view source, std::string_view bos_token, std::string_view eos_token);

}  // namespace forge::text

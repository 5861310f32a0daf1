#pragma once
// What a chat template prints for answers in history, around known texts.

#include <optional>
#include <string>
#include <string_view>

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
  struct Reasoning {
    std::string before, between;  ///< what is printed before reasoning, and between it and content or a tool's name
  };
  std::optional<Reasoning> reasoning;
  bool reasoning_beside_call = false;                        ///< it is printed next to calls only
  std::optional<std::string> before_content, after_content;  ///< without the header of the turn
};

/// Renders short conversations. Never throws for what a template does: what it refuses stays empty.
[[nodiscard]] FormatProbe probe_format(std::string_view source, std::string_view bos_token, std::string_view eos_token);

}  // namespace forge::text

#pragma once
// A conversation rendered as the prompt a model was trained on.

#include <optional>
#include <string>
#include <string_view>

#include "text/jinja/template.h"
#include "text/jinja/value.h"

namespace forge::text {

using jinja::ChatTemplate, jinja::Clock, jinja::Dict, jinja::EvalError, jinja::RenderLimits, jinja::Value;

/// What templates are given. Names that are not here are undefined in the template, as with Hugging Face.
struct ChatRequest {
  Value messages;  ///< list of dicts with "role", "content" and what else the template reads
  Value tools;     ///< list of dicts, or None
  bool add_generation_prompt = true;
  std::string bos_token, eos_token;
  Clock now = Clock::local_now();
  Dict extra;  ///< further variables, such as enable_thinking; these override nothing above
};

/// A message with a role and a text, e.g. {"role": "user", "content": ...}. Throws EvalError for invalid UTF-8.
[[nodiscard]] Value make_message(std::string role, std::string content);

/// The prompt. Throws forge::Error(kTemplate) as ChatTemplate::render does, and forge::Error(kPrompt) for text that is
/// not valid UTF-8.
[[nodiscard]] std::string render_chat(const ChatTemplate& chat_template, const ChatRequest& request,
                                      const RenderLimits& limits = {});

/// Reads {"messages", "tools", "add_generation_prompt", "bos_token", "eos_token", "now"} and further variables; all but
/// messages may be missing. Throws forge::Error(kUsage) for what is not such JSON, with the place.
[[nodiscard]] ChatRequest parse_chat_request(std::string_view json);

}  // namespace forge::text

#pragma once
// Renders a conversation as the prompt that a model was trained on, with the model's own chat template. Used by the
// server and the command-line tools; the template engine is in text/jinja.

#include <optional>
#include <string>
#include <string_view>

#include "text/jinja/template.h"
#include "text/jinja/value.h"

namespace forge::text {

using jinja::ChatTemplate, jinja::Clock, jinja::Dict, jinja::EvalError, jinja::RenderLimits, jinja::Value;

/// The variables that a template gets. Names that are not listed here are undefined in the template, as with Hugging
/// Face.
struct ChatRequest {
  Value messages;                     ///< list of dicts with "role", "content" and whatever else the template reads
  Value tools;                        ///< list of dicts that describe functions, or None
  bool add_generation_prompt = true;  ///< end with the header of the assistant's answer
  std::string bos_token, eos_token;
  Clock now = Clock::local_now();  ///< the time that strftime_now() shows
  Dict extra;                      ///< further variables, such as enable_thinking; cannot override the ones above
};

/// The message {"role": role, "content": content}. Throws EvalError for invalid UTF-8.
[[nodiscard]] Value make_message(std::string role, std::string content);

/// The prompt. Errors: kTemplate as in ChatTemplate::render; kPrompt for text that is not valid UTF-8.
[[nodiscard]] std::string render_chat(const ChatTemplate& chat_template, const ChatRequest& request,
                                      const RenderLimits& limits = {});

/// Reads a request from JSON: an object with "messages" and, optionally, "tools", "add_generation_prompt" (default
/// false), "bos_token", "eos_token" and "now" (ISO 8601). All other members become `extra` variables. Error: kUsage
/// with the reason, for malformed JSON with the byte offset.
[[nodiscard]] ChatRequest parse_chat_request(std::string_view json);

}  // namespace forge::text

#pragma once
// forge-run without a prompt, on a terminal: a chat.

#include <optional>
#include <string>
#include <string_view>

#include "session/session.h"
#include "tools/run/run_options.h"

namespace forge::tools {

/// What a typed line asks for. Lines that begin with '/' are commands; a space in front makes such a line text.
struct ChatLine {
  std::string_view command;             ///< without the '/'; empty: the line is text
  std::string_view key;                 ///< the command's first word
  std::optional<std::string> argument;  ///< what follows it, without white space around it
};
[[nodiscard]] ChatLine parse_chat_line(std::string_view line);

/// Is there nothing to run but what a person will type?
[[nodiscard]] bool wants_chat(const RunRequest& request);

/// Answers line after line until Ctrl-D. Answers go to stdout, all else to stderr. Returns the exit status.
/// Errors: as forge-run with a prompt; those of one turn are shown, and the chat goes on.
int chat_command(RunRequest& request, session::Stages& stages);

}  // namespace forge::tools

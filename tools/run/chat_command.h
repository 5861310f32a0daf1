#pragma once
// The interactive chat: forge-run without a prompt on a terminal.

#include <optional>
#include <string>
#include <string_view>

#include "session/session.h"
#include "tools/run/run_options.h"

namespace forge::tools {

/// A typed line: "/COMMAND KEY ARGUMENT", or a message to the model. A message that begins with '/' needs a space
/// before it.
struct ChatLine {
  std::string_view command;             ///< without the '/'; empty: a message
  std::string_view key;                 ///< the first word after the command
  std::optional<std::string> argument;  ///< the rest of the line, without surrounding white space
};
[[nodiscard]] ChatLine parse_chat_line(std::string_view line);

/// True if forge-run should start a chat: no prompt, tokens or --json are given, and stdin is a terminal.
[[nodiscard]] bool wants_chat(const RunRequest& request);

/// Runs the chat until Ctrl-D. Answers go to stdout, everything else to stderr. Returns the exit status.
/// Errors: those of opening the model; errors of a single turn are printed, and the chat continues.
int chat_command(RunRequest& request, session::Stages& stages);

}  // namespace forge::tools

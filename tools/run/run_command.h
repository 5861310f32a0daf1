#pragma once
// forge-run: generates text or tokens with a model, or dumps logits.

#include "tools/run/run_options.h"

namespace forge::tools {

/// Runs the request: one answer, a chat, or a dump of logits. Returns the exit status. Errors: those of opening and
/// running a model.
int run_command(RunRequest& request, session::Stages& stages);

}  // namespace forge::tools

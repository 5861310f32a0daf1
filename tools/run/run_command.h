#pragma once
// forge-run: text, tokens or logits from a model.

#include "tools/run/run_options.h"

namespace forge::tools {

/// Does what the request says; returns the exit status. Errors: all that opening and running a model can meet.
int run_command(RunRequest& request, session::Stages& stages);

}  // namespace forge::tools

#pragma once
// forge-run --embed and --dump-embedding FILE: the embedding of a prompt.

#include "session/session.h"
#include "tools/run/run_options.h"

namespace forge::tools {

/// Prints the embedding of the prompt, normalised to length 1, as a JSON list of numbers; or writes the pooled vector,
/// not normalised, as float32 to request.dump_embedding. Returns the exit code. Errors: those of opening the model and
/// of session::embed; kIo; kModelFormat for a vector without a length.
int embed_command(RunRequest& request, session::Stages& stages);

}  // namespace forge::tools

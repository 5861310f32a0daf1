#pragma once
// What forge-run says about a run: the closing line, JSON, the profile.

#include <string>

#include "tools/generate.h"
#include "tools/run_options.h"
#include "tools/session.h"

namespace forge::tools {

/// "prompt 12 tokens, 345.6 tokens/s; decode 64 tokens, 90.1 tokens/s; memory 201.3 MiB (weights ...)"
[[nodiscard]] std::string closing_line(const Generated& generated, Session& session);

/// Says on stderr why a GPU is not used, when nobody asked for the CPU.
void note_device(const Session& session);

/// One JSON object: model, text, tokens, prompt_tokens, finish_reason, timings, memory.
[[nodiscard]] std::string run_json(const Generated& generated, std::string_view text, Session& session,
                                   const Stages& stages);

/// What --profile and --verbose asked for, on stderr.
void report_run(const RunRequest& request, Session& session, const Stages& stages);

/// Time of each kind of step with its rates, one table a variant that ran.
[[nodiscard]] std::string profile_text(const runtime::Executor& executor);

}  // namespace forge::tools

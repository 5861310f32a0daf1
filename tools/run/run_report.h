#pragma once
// What forge-run says about a run: the closing line, JSON, the profile.

#include <string>

#include "session/generate.h"
#include "session/session.h"
#include "tools/run/run_options.h"

namespace forge::tools {

/// "prompt 12 tokens, 345.6 tokens/s; decode 64 tokens, 90.1 tokens/s; memory 201.3 MiB (weights ...)"
[[nodiscard]] std::string closing_line(const session::Generated& generated, session::Session& session);

/// Says on stderr why the answer is not whole: the limit that holds without -n, or a full context. Of other ends
/// nothing.
void note_end(const RunRequest& request, const session::Generated& generated, const session::Session& session);

/// Says on stderr why a GPU is not used, when nobody asked for the CPU.
void note_device(const session::Session& session);

/// One JSON object: model, text, tokens, prompt_tokens, finish_reason, timings, memory.
[[nodiscard]] std::string run_json(const session::Generated& generated, std::string_view text,
                                   session::Session& session, const session::Stages& stages);

/// What --profile and --verbose asked for, on stderr; ends the session's trace.
void report_run(const RunRequest& request, session::Session& session, const session::Stages& stages);

/// What shares of the memory's rate are of: a device's own figure, or what plain reading reached here.
struct MemoryRate {
  double bytes_a_second = 0;  ///< 0: not known, and no shares
  std::string what;           ///< "58.1 GB/s, read plainly by 2 threads"
};
/// Of a CPU it is measured, which takes some tenths of a second. Errors: none; without memory for it it is not known.
[[nodiscard]] MemoryRate memory_rate(const runtime::Executor& executor);

/// A row a kind of step, one table a variant that ran: time, bytes moved, GB/s, share of `memory`, GFLOP/s. Bytes and
/// FLOPs count the rows that were real.
[[nodiscard]] std::string profile_text(const runtime::Executor& executor, const MemoryRate& memory);

}  // namespace forge::tools

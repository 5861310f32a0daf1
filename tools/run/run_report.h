#pragma once
// Reports about a run for forge-run (and forge-bench --profile): closing line, notes, JSON, profile tables.

#include <string>

#include "session/generate.h"
#include "session/session.h"
#include "tools/run/run_options.h"

namespace forge::tools {

/// "prompt 12 tokens, 345.6 tokens/s; decode 64 tokens, 90.1 tokens/s; memory 201.3 MiB (weights ...)"
[[nodiscard]] std::string closing_line(const session::Generated& generated, session::Session& session);

/// Prints a note if the answer was cut by the default limit of tokens or by a full context.
void note_end(const RunRequest& request, const session::Generated& generated, const session::Session& session);

/// Prints a note why no GPU is used, unless the user chose the CPU.
void note_device(const session::Session& session);

/// One JSON object: model, text, tokens, prompt_tokens, finish_reason, timings, memory.
[[nodiscard]] std::string run_json(const session::Generated& generated, std::string_view text,
                                   session::Session& session, const session::Stages& stages);

/// Prints the tables of --profile and the times of --verbose to stderr, and ends the session's trace.
void report_run(const RunRequest& request, session::Session& session, const session::Stages& stages);

/// The memory bandwidth that profile tables compare with: a GPU's specification, or a measured read rate on the CPU.
struct MemoryRate {
  double bytes_a_second = 0;  ///< 0: unknown, and the tables have no shares
  std::string what;           ///< "58.1 GB/s, read plainly by 2 threads"
};
/// The bandwidth of the executor's memory. On the CPU it is measured now, which takes some tenths of a second. Errors:
/// none; without memory for the measurement it is unknown.
[[nodiscard]] MemoryRate memory_rate(const runtime::Executor& executor);

/// One table per variant that ran, with one row per kind of step: time, bytes moved, GB/s, share of `memory`, GFLOP/s.
/// Bytes and FLOPs count the tokens of the step, not the size of the variant.
[[nodiscard]] std::string profile_text(const runtime::Executor& executor, const MemoryRate& memory);

}  // namespace forge::tools

#pragma once
// --profile-trace FILE: a JSON trace of the work of each CPU thread, for Perfetto, Chrome and forge-inspect trace
// (format: "Trace Event Format", Google). One process of the trace is one Session; one track is one thread.
//
//   thread 0   |  forward: prefill512, 40 tokens                       |   nested: forward > step > chunk
//              |  step: qkv            |  step: attention      | ...   |
//              | chunk | chunk | wait  | chunk | chunk | chunk |       |
//   thread 1   | chunk | chunk | chunk | chunk |    wait       |       |   other threads: chunks and waits only
//
// A wait is the time within a step in which a thread runs no chunk.

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "runtime/executor.h"
#include "runtime/step_trace.h"
#include "support/os/atomic_file.h"

namespace forge::session {

inline constexpr const char* kTraceHelp =
    "write a trace of the steps on each CPU thread, for Perfetto or forge-inspect trace";

/// One complete event ("ph": "X" of the format).
struct TraceEvent {
  std::string name, category;  ///< category: forward, step, chunk, wait
  std::int64_t process = 0, thread = 0;
  double begin_us = 0, us = 0;  ///< start and duration, microseconds
  std::int64_t layer = -1;      ///< layer of a step; -1: none
};

/// Label of a step, for the names of events.
struct StepName {
  std::string label;
  std::int64_t layer = -1;
};
struct VariantNames {
  std::string name;
  std::vector<StepName> steps;
};
/// Converts recorded steps to events, ordered by thread, then start time, outer events before inner ones. `variants`:
/// names of the program's variants and steps. Times start at 0. Waits shorter than `wait_us_min` are left out.
[[nodiscard]] std::vector<TraceEvent> trace_events(const runtime::StepTrace& trace,
                                                   const std::vector<VariantNames>& variants, double wait_us_min = 0.5);
/// The names of the executor's variants and steps.
[[nodiscard]] std::vector<VariantNames> variant_names(const runtime::Executor& executor);

/// A trace file being written. It is opened before any work is done, so that an unwritable path is an error at once; it
/// appears under its name when finish() is called.
class TraceFile {
 public:
  /// Errors: those of AtomicFile.
  explicit TraceFile(const std::filesystem::path& path);
  [[nodiscard]] const std::filesystem::path& path() const { return path_; }
  /// Appends `trace` as a new process with the name `title`. Errors: kIo.
  void add(const std::string& title, const runtime::StepTrace& trace, const runtime::Executor& executor);
  /// Completes the file and prints a note with the number of events. Errors: kIo.
  void finish();

 private:
  void write(const std::string& text);

  std::filesystem::path path_;
  AtomicFile file_;
  std::int64_t processes_ = 0;
  std::size_t events_ = 0;
  bool lost_ = false;
};

}  // namespace forge::session

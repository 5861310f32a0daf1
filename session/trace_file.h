#pragma once
// --profile-trace FILE: what each thread did, as a trace that Perfetto and Chrome show (source: "Trace Event Format",
// Google, as JSON). A process of the trace is one set-up (a session), a track of it one thread: forwards, the steps in
// them and the chunks in those on the thread that calls; chunks on the others; and waits, which are where a thread of a
// step has no chunk.

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "runtime/executor.h"
#include "runtime/step_trace.h"
#include "support/os/atomic_file.h"

namespace forge::session {

inline constexpr const char* kTraceHelp = "write what each thread did, for Perfetto or forge-inspect trace";

/// A complete event ("ph": "X"); microseconds.
struct TraceEvent {
  std::string name, category;  ///< category: forward, step, chunk, wait
  std::int64_t process = 0, thread = 0;
  double begin_us = 0, us = 0;
  std::int64_t layer = -1;  ///< of steps
};

/// The events of a trace in the order of a track's time, outer ones before inner ones; `labels` are of each variant's
/// steps. Times begin at 0. Waits shorter than `wait_us_min` are left out.
struct StepName {
  std::string label;
  std::int64_t layer = -1;
};
struct VariantNames {
  std::string name;
  std::vector<StepName> steps;
};
[[nodiscard]] std::vector<TraceEvent> trace_events(const runtime::StepTrace& trace,
                                                   const std::vector<VariantNames>& variants, double wait_us_min = 0.5);
[[nodiscard]] std::vector<VariantNames> variant_names(const runtime::Executor& executor);

/// The file: it is opened before any work is done, so that one that cannot be written costs none, and gets its name
/// when `finish` is called.
class TraceFile {
 public:
  /// Errors: those of AtomicFile.
  explicit TraceFile(const std::filesystem::path& path);
  /// One more process of the trace. Errors: kIo.
  void add(const std::string& title, const runtime::StepTrace& trace, const runtime::Executor& executor);
  /// Ends the file and says on stderr what is in it. Errors: kIo.
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

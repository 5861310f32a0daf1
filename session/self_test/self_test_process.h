#pragma once
// Runs the self-test in a child process, because a driver may crash or hang.
//
//   this process                     child: forge-inspect self-test --device cuda:0
//   starts the child, reads lines <- stage NAME | ok MS NAME | fail MS NAME DETAIL | untested WHY | end (tab-separated)
//
// A child that writes nothing for too long is killed, and its current stage counts as failed. Only "compiling" does
// not: compilers can be slow on a busy machine, so the card then counts as untested.

#include <chrono>
#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "session/self_test/self_test.h"

namespace forge::session {

/// Result of a GPU's self-test.
struct SelfTestReport {
  std::vector<SelfTestResult> results;
  std::string untested;  ///< why the GPU could not be tested, one line; empty: it was tested
  double seconds = 0;

  [[nodiscard]] std::size_t failed() const;
  [[nodiscard]] bool passed() const { return untested.empty() && !results.empty() && failed() == 0; }
  /// The failures in one line: "shuffle_xor<16> (3 of 512 words ...), dot4 and 4 more"; empty if all passed.
  [[nodiscard]] std::string problem() const;
};

struct SelfTestLimits {
  std::chrono::milliseconds compiling{180'000}, running{20'000};  ///< longest silence in such a stage
  std::chrono::milliseconds whole{300'000};                       ///< longest duration of the whole test
};

/// Path of forge-inspect in this program's folder; empty if it is not there.
[[nodiscard]] std::filesystem::path find_self_test_program();

/// Runs `program` self-test --device `device`. `stage` is called with the name of each stage. `quiet`: discard the
/// child's stderr. Whatever happens to the child becomes part of the report. Throws what `stage` throws, and
/// Interrupted; the child is then killed.
[[nodiscard]] SelfTestReport run_self_test_process(const std::filesystem::path& program, const std::string& device,
                                                   bool quiet, const std::function<void(const std::string&)>& stage,
                                                   const SelfTestLimits& limits = {});

/// The child's side: tests `device` in this process and writes the lines to stdout. Afterwards the caller must exit at
/// once without destructors, because the driver may be stuck.
void write_self_test(const std::string& device);

}  // namespace forge::session

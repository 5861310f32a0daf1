#pragma once
// The self-test in a process of its own: a driver that crashes or hangs takes that process, not the one that asks.
//
//   asker                         forge-inspect self-test --device cuda:0
//   starts it, reads lines   <-   stage NAME / ok MS NAME / fail MS NAME DETAIL / untested WHY / end, tab-separated
//
// Silence that lasts too long ends it. What it was at is then what failed, but while it compiles, which a busy machine
// may make slow.

#include <chrono>
#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "session/self_test/self_test.h"

namespace forge::session {

/// What came out of a card's self-test.
struct SelfTestReport {
  std::vector<SelfTestResult> results;
  std::string untested;  ///< why nothing can be said of the card, one line; empty: it was tested
  double seconds = 0;

  [[nodiscard]] std::size_t failed() const;
  [[nodiscard]] bool passed() const { return untested.empty() && !results.empty() && failed() == 0; }
  /// What is wrong, for one line: "shuffle_xor<16> (3 of 512 words ...), dot4 and 4 more"; empty when nothing is.
  [[nodiscard]] std::string problem() const;
};

struct SelfTestLimits {
  std::chrono::milliseconds compiling{180'000}, running{20'000};  ///< without a word
  std::chrono::milliseconds whole{300'000};
};

/// forge-inspect beside this program; empty when it is not there.
[[nodiscard]] std::filesystem::path find_self_test_program();

/// Runs `program` self-test --device `device`. `stage` is told what it is at. `quiet`: what it writes to stderr is
/// dropped. Whatever happens to the process is in the report. Throws what `stage` throws, and Interrupted; then the
/// process is ended.
[[nodiscard]] SelfTestReport run_self_test_process(const std::filesystem::path& program, const std::string& device,
                                                   bool quiet, const std::function<void(const std::string&)>& stage,
                                                   const SelfTestLimits& limits = {});

/// The other side: tests `device` in this process and writes the lines to stdout. When it ends the process need not be
/// able to end well: the caller leaves at once.
void write_self_test(const std::string& device);

}  // namespace forge::session

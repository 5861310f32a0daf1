#pragma once
// Shared code of the hardware checks: result lines and clocks.

#include <fmt/format.h>
#include <sys/resource.h>

#include <chrono>
#include <string>

#include "support/os/console.h"

namespace forge::tools {

class Verdicts {
 public:
  explicit Verdicts(Output& output) : output_(output) {}
  void add(bool good, const std::string& line) {
    ++(good ? passed_ : failed_);
    output_.write(fmt::format("{} {}\n", good ? "ok    " : "FAILED", line));
  }
  int end() {
    output_.write(fmt::format("{} passed, {} failed\n", passed_, failed_));
    return failed_ == 0 ? 0 : 1;
  }

 private:
  Output& output_;
  int passed_ = 0, failed_ = 0;
};

inline double seconds_since(std::chrono::steady_clock::time_point begin) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

/// CPU time of all threads of the process, in seconds.
inline double cpu_seconds() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  const auto seconds = [](const timeval& t) {
    return static_cast<double>(t.tv_sec) + 1e-6 * static_cast<double>(t.tv_usec);
  };
  return seconds(usage.ru_utime) + seconds(usage.ru_stime);
}

}  // namespace forge::tools

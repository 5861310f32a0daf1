#include "codegen/gpu/compile/compute_limit.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <fstream>
#include <sstream>

namespace forge::codegen {
namespace {

using std::chrono::milliseconds;

/// Shortest time between two checks.
constexpr milliseconds kCheckStep{10};

struct ProcessTimes {
  pid_t group = 0;
  long ticks = 0;
};

/// Reads /proc/PID/stat (proc(5)). The process name, in parentheses, may contain anything, so fields are counted from
/// the last parenthesis.
std::optional<ProcessTimes> process_times(const std::filesystem::path& stat) {
  std::ifstream in(stat);
  std::string line;
  if (!std::getline(in, line)) return std::nullopt;  // the process has ended meanwhile
  std::istringstream fields(line.substr(line.rfind(')') + 1));
  std::string state, skipped;
  pid_t parent = 0;
  ProcessTimes times;
  fields >> state >> parent >> times.group;
  for (int field = 6; field < 14; ++field) fields >> skipped;  // fields session to cmajflt
  for (int i = 0; i < 4; ++i) {                                // fields utime, stime, cutime, cstime
    long ticks = 0;
    fields >> ticks;
    times.ticks += ticks;
  }
  return fields ? std::optional(times) : std::nullopt;
}

}  // namespace

std::optional<milliseconds> group_cpu_time(pid_t group) {
  std::error_code failed;
  bool found = false;
  long ticks = 0;
  for (std::filesystem::directory_iterator it("/proc", failed), end; !failed && it != end; it.increment(failed)) {
    const std::string name = it->path().filename().native();
    if (name.find_first_not_of("0123456789") != std::string::npos) continue;
    const auto times = process_times(it->path() / "stat");
    if (!times || times->group != group) continue;
    found = true;
    ticks += times->ticks;
  }
  if (!found) return std::nullopt;
  return milliseconds(ticks * 1000 / std::max(sysconf(_SC_CLK_TCK), 1L));
}

void ComputeLimit::start(Clock::time_point now, milliseconds computed) {
  before_ = seen_ = computed;
  moved_ = now;
  deadline_ = now + limit_;
}

std::string ComputeLimit::check(Clock::time_point now, milliseconds computed) {
  const auto used = computed - before_;
  const double seconds = std::chrono::duration<double>(limit_).count();
  if (used >= limit_) return fmt::format("it computed for more than {} s and was ended", seconds);
  if (computed > seen_) {
    seen_ = computed;
    moved_ = now;
  }
  if (now - moved_ >= limit_) return fmt::format("it did nothing for {} s and was ended", seconds);
  // The next deadline: if the process is idle since moved_, when it has been idle for the limit; else the earliest time
  // at which it can have used up its CPU time.
  deadline_ = now + std::max<Clock::duration>(moved_ == now ? limit_ - used : moved_ + limit_ - now, kCheckStep);
  return {};
}

}  // namespace forge::codegen

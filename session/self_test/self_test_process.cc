#include "session/self_test/self_test_process.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <csignal>
#include <cstring>
#include <system_error>
#include <utility>

#include "codegen/gpu/compile/compile_service.h"
#include "session/device.h"
#include "support/error.h"
#include "support/os/console.h"
#include "support/os/interrupt.h"
#include "support/os/program_folder.h"
#include "support/os/unique_fd.h"

extern char** environ;

namespace forge::session {
namespace {

namespace fs = std::filesystem;
using Clock = std::chrono::steady_clock;

constexpr const char* kProgram = "forge-inspect";
constexpr std::size_t kLineMax = 4096;
constexpr int kPollStepMs = 200;  ///< interval at which interrupts are checked
/// Free device memory required for the test; the tiny model and the largest kernel need less.
constexpr std::uint64_t kFreeBytesMin = std::uint64_t{96} << 20;

/// Field `index` of a tab-separated line; empty if it has fewer.
std::string field(std::string_view line, std::size_t index) {
  for (; index > 0 && !line.empty(); --index) line.remove_prefix(std::min(line.find('\t'), line.size() - 1) + 1);
  return std::string(line.substr(0, line.find('\t')));
}

/// The child process and the read end of the pipe to its stdout. The destructor kills it and waits two seconds at most:
/// a process that hangs in the driver cannot be reaped.
class TestProcess {
 public:
  TestProcess(const fs::path& program, const std::string& device, bool quiet) {
    std::array<int, 2> ends{-1, -1};
    if (pipe2(ends.data(), O_CLOEXEC) != 0) throw std::system_error(errno, std::generic_category());
    out_ = UniqueFd(ends[0]);
    const UniqueFd theirs(ends[1]);
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_addopen(&actions, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
    posix_spawn_file_actions_adddup2(&actions, theirs.get(), STDOUT_FILENO);
    if (quiet) posix_spawn_file_actions_addopen(&actions, STDERR_FILENO, "/dev/null", O_WRONLY, 0);
    std::array<std::string, 4> words{program.native(), "self-test", "--device", device};
    std::array<char*, 5> arguments{words[0].data(), words[1].data(), words[2].data(), words[3].data(), nullptr};
    const int failed = posix_spawn(&pid_, program.c_str(), &actions, nullptr, arguments.data(), environ);
    posix_spawn_file_actions_destroy(&actions);
    if (failed == 0) return;
    pid_ = -1;
    throw std::system_error(failed, std::generic_category());
  }
  TestProcess(const TestProcess&) = delete;
  TestProcess& operator=(const TestProcess&) = delete;
  ~TestProcess() {
    if (pid_ <= 0) return;
    static_cast<void>(kill(pid_, SIGKILL));
    static_cast<void>(status());
  }
  [[nodiscard]] int out() const { return out_.get(); }
  /// Waits up to two seconds for the child's end and returns its wait status; -1 if it has not ended.
  int status() {
    for (int tries = 0; pid_ > 0 && tries < 200; ++tries) {
      int status = 0;
      const pid_t ended = waitpid(pid_, &status, WNOHANG);
      if (ended == pid_ || (ended < 0 && errno != EINTR)) {
        pid_ = -1;
        return ended < 0 ? -1 : status;
      }
      usleep(10'000);
    }
    return -1;
  }

 private:
  pid_t pid_ = -1;
  UniqueFd out_;
};

/// Reads the child's lines until it is done or exceeds a time limit.
class Reader {
 public:
  Reader(TestProcess& process, const std::function<void(const std::string&)>& stage, const SelfTestLimits& limits)
      : process_(process), tell_(stage), limits_(limits) {}

  SelfTestReport run() {
    const auto begin = Clock::now();
    const auto whole = begin + limits_.whole;
    heard_ = begin;
    while (!done_) {
      check_interrupt();
      const auto now = Clock::now();
      if (now > heard_ + limit() || now > whole) {
        timed_out(now > whole);
        break;
      }
      pollfd row{.fd = process_.out(), .events = POLLIN, .revents = 0};
      if (poll(&row, 1, kPollStepMs) > 0 && !read_some()) {
        if (!done_) died();
        break;
      }
    }
    report_.seconds = std::chrono::duration<double>(Clock::now() - begin).count();
    return std::move(report_);
  }

 private:
  [[nodiscard]] bool compiles() const { return stage_.starts_with("compiling"); }
  [[nodiscard]] std::chrono::milliseconds limit() const { return compiles() ? limits_.compiling : limits_.running; }

  void fail(std::string detail) {
    report_.results.push_back({.name = stage_, .ok = false, .detail = std::move(detail), .ms = 0});
  }
  void timed_out(bool whole) {
    const auto seconds = std::chrono::duration<double>(whole ? limits_.whole : limit()).count();
    if (compiles() || whole)
      report_.untested = fmt::format("its self-test took more than {} s ({})", seconds, stage_);
    else
      fail(fmt::format("it did not end within {} s", seconds));
  }
  void died() {
    const int status = process_.status();
    if (status >= 0 && WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL) {
      report_.untested = fmt::format("its self-test was killed ({})", stage_);
    } else if (status >= 0 && WIFSIGNALED(status)) {
      const char* name = sigabbrev_np(WTERMSIG(status));
      fail(fmt::format("the process crashed with SIG{}", name == nullptr ? "?" : name));
    } else {
      fail(status < 0 ? "the process does not answer"
                      : fmt::format("the process ended with status {}", WEXITSTATUS(status)));
    }
  }

  /// Reads and handles what is in the pipe. False at its end.
  bool read_some() {
    std::array<char, 4096> buffer{};
    const ssize_t got = read(process_.out(), buffer.data(), buffer.size());
    if (got < 0 && (errno == EINTR || errno == EAGAIN)) return true;
    if (got <= 0) return false;
    heard_ = Clock::now();
    text_.append(buffer.data(), static_cast<std::size_t>(got));
    for (std::size_t end = 0; (end = text_.find('\n')) != std::string::npos; text_.erase(0, end + 1))
      take(std::string_view(text_).substr(0, end));
    return text_.size() <= kLineMax;
  }
  void take(std::string_view line) {
    const auto kind = field(line, 0);
    if (kind == "stage") {
      stage_ = field(line, 1);
      tell_(stage_);
    } else if (kind == "ok" || kind == "fail") {
      SelfTestResult result{.name = field(line, 2), .ok = kind == "ok", .detail = field(line, 3), .ms = 0};
      const auto ms = field(line, 1);
      std::from_chars(ms.data(), ms.data() + ms.size(), result.ms);
      report_.results.push_back(std::move(result));
    } else if (kind == "untested") {
      report_.untested = field(line, 1);
      done_ = true;
    } else if (kind == "end") {
      done_ = true;
    }
  }

  TestProcess& process_;
  const std::function<void(const std::string&)>& tell_;
  const SelfTestLimits& limits_;
  SelfTestReport report_;
  std::string text_, stage_ = "starting the driver";
  Clock::time_point heard_;
  bool done_ = false;
};

}  // namespace

std::size_t SelfTestReport::failed() const {
  return static_cast<std::size_t>(std::ranges::count(results, false, &SelfTestResult::ok));
}

std::string SelfTestReport::problem() const {
  constexpr std::size_t kNamed = 3;
  std::string text;
  std::size_t named = 0;
  for (const auto& result : results) {
    if (result.ok) continue;
    if (++named == 1)
      text = fmt::format("{} ({})", printable(result.name), printable(result.detail, 80));
    else if (named <= kNamed)
      text += ", " + printable(result.name);
  }
  if (named > kNamed) text += fmt::format(" and {} more", named - kNamed);
  return text;
}

fs::path find_self_test_program() {
  return find_beside_program(kProgram, {".", "../../tools"});  // the second: programs in build/tests/device
}

SelfTestReport run_self_test_process(const fs::path& program, const std::string& device, bool quiet,
                                     const std::function<void(const std::string&)>& stage,
                                     const SelfTestLimits& limits) {
  try {
    TestProcess process(program, device, quiet);
    return Reader(process, stage, limits).run();
  } catch (const std::system_error& error) {
    return {
        .results = {},
        .untested = fmt::format("{} cannot be started: {}", printable(program.native(), 200), error.code().message())};
  }
}

void write_self_test(const std::string& device) {
  Output out;
  const auto line = [&](const std::string& text) { out.write(text + '\n'); };
  const auto untested = [&](const Error& error) {
    line("untested\t" + printable(strip_error_code(error.line()), 300));
  };
  const SelfTestObserver sink{
      .stage = [&](std::string_view name) { line(fmt::format("stage\t{}", name)); },
      .result =
          [&](const SelfTestResult& one) {
            line(fmt::format("{}\t{:.3f}\t{}\t{}", one.ok ? "ok" : "fail", one.ms, one.name,
                             printable(one.detail, 300)));
          },
  };
  std::optional<DeviceChoice> choice;
  try {
    choice = choose_device(device);
    if (!choice->gpu) throw Error(ErrorCode::kUsage, "the self-test needs a GPU", {}, "give --device hip:N or cuda:N");
    if (const auto free = choice->gpu->free_bytes(); free < kFreeBytesMin)
      throw Error(ErrorCode::kMemory, "its memory is full",
                  fmt::format("{} are free, the self-test needs {}", human_bytes(free), human_bytes(kFreeBytesMin)));
  } catch (const Error& error) {
    if (error.code() == ErrorCode::kUsage) throw;
    return untested(error);
  }
  codegen::CompileServiceOptions kernels;
  kernels.cache = plan::CacheOptions::from_environment();
  kernels.note = [](const std::string& text) { note(text); };
  codegen::CompileService service(std::move(kernels));
  try {
    self_test(*choice->gpu, {.target = choice->target, .compiler = &service}, sink);
    line("end");
  } catch (const DeviceIsStuck&) {
    line("end");
  } catch (const Error& error) {
    if (error.code() != ErrorCode::kMemory) throw;
    untested(error);
  }
}

}  // namespace forge::session

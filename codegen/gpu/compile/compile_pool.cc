#include "codegen/gpu/compile/compile_pool.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <spawn.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <ctime>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include "codegen/gpu/compile/compute_limit.h"
#include "support/error.h"
#include "support/os/program_folder.h"
#include "support/os/unique_fd.h"

extern char** environ;

namespace forge::codegen {
namespace {

namespace fs = std::filesystem;
using Clock = ComputeLimit::Clock;

constexpr const char* kHelperName = "forge-kernel-compiler";
/// Most bytes that are kept of a dead helper's stderr: its end.
constexpr off_t kStderrBytesMax = 16 * 1024;
/// Descriptors for helpers are moved to this number or above, so that they do not collide with the numbers that they
/// get in the helper.
constexpr int kFirstFreeDescriptor = 10;
constexpr std::string_view kWorkPrefix = "forge-compile-";
/// A working directory of this age was left behind by a killed process: no compilation takes so long.
constexpr std::time_t kStaleSeconds = 3600;
/// After a process has closed its socket, it gets one second (kExitTries steps) to end by itself.
constexpr int kExitTries = 1000;
constexpr useconds_t kExitStep = 1000;

[[noreturn]] void throw_system(const std::string& what, int error_number) {
  throw Error(ErrorCode::kDevice, what, std::generic_category().message(error_number));
}

fs::path temporary_directory() {
  std::error_code failed;
  fs::path path = fs::temp_directory_path(failed);
  return failed ? fs::path("/tmp") : path;
}

/// Removes working directories that killed processes of this user left behind.
void remove_stale_directories() {
  std::error_code failed, ignored;
  const std::time_t now = std::time(nullptr);
  for (fs::directory_iterator it(temporary_directory(), failed), end; !failed && it != end; it.increment(failed)) {
    struct stat status{};
    if (!it->path().filename().native().starts_with(kWorkPrefix) || lstat(it->path().c_str(), &status) != 0) continue;
    if (S_ISDIR(status.st_mode) && status.st_uid == geteuid() && now - status.st_mtim.tv_sec > kStaleSeconds)
      fs::remove_all(it->path(), ignored);
  }
}

/// A new directory with mode 0700; the destructor removes it with its contents.
class WorkDirectory {
 public:
  WorkDirectory() {
    const fs::path parent = temporary_directory();
    std::string name = (parent / fmt::format("{}XXXXXX", kWorkPrefix)).native();
    if (mkdtemp(name.data()) == nullptr)
      throw_system(fmt::format("cannot make a working directory in {}", parent.native()), errno);
    path_ = name;
  }
  WorkDirectory(const WorkDirectory&) = delete;
  WorkDirectory& operator=(const WorkDirectory&) = delete;
  ~WorkDirectory() {
    std::error_code ignored;
    fs::remove_all(path_, ignored);
  }
  [[nodiscard]] const std::string& path() const { return path_; }

 private:
  std::string path_;
};

UniqueFd moved_up(UniqueFd fd) {
  UniqueFd moved(fcntl(fd.get(), F_DUPFD_CLOEXEC, kFirstFreeDescriptor));
  if (!moved) throw_system("cannot start a kernel compiler", errno);
  return moved;
}

/// A helper process and the request that it is compiling. The destructor kills it with its process group.
class Helper {
 public:
  explicit Helper(const PoolOptions& options) : limit_(options.timeout) {
    std::array<int, 2> ends{-1, -1};
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, ends.data()) != 0)
      throw_system("cannot start a kernel compiler", errno);
    socket_ = moved_up(UniqueFd(ends[0]));
    const UniqueFd theirs = moved_up(UniqueFd(ends[1]));
    fcntl(theirs.get(), F_SETFL, 0);  // blocking on their side
    stderr_ = moved_up(UniqueFd(memfd_create("forge-kernel-compiler", MFD_CLOEXEC)));
    spawn(options.helper, theirs.get());
  }
  Helper(const Helper&) = delete;
  Helper& operator=(const Helper&) = delete;
  ~Helper() { end(); }

  void start(std::size_t index, const CompileRequest& request) {
    index_ = index;
    out_ = encode(request);
    in_.clear();
    limit_.start(Clock::now(), computed());
  }
  [[nodiscard]] std::optional<std::size_t> request() const { return index_; }
  [[nodiscard]] Clock::time_point deadline() const { return limit_.deadline(); }
  [[nodiscard]] bool alive() const { return pid_ > 0; }
  [[nodiscard]] pollfd poll_row() const {
    return {.fd = socket_.get(), .events = static_cast<short>(out_.empty() ? POLLIN : POLLIN | POLLOUT), .revents = 0};
  }

  /// Sends and receives as much as possible without blocking. Returns the reply once it is complete, or a reply that
  /// says what happened to the helper.
  std::optional<CompileReply> advance() {
    while (!out_.empty()) {
      const ssize_t sent = send(socket_.get(), out_.data(), out_.size(), MSG_NOSIGNAL);
      if (sent <= 0) break;  // the buffer is full, or the helper is gone, which recv() below detects
      out_.erase(0, static_cast<std::size_t>(sent));
    }
    std::array<char, 65536> buffer{};
    while (true) {
      const ssize_t got = recv(socket_.get(), buffer.data(), buffer.size(), 0);
      if (got > 0) {
        in_.append(buffer.data(), static_cast<std::size_t>(got));
        if (in_.size() >= kFrameHead && frame_bytes(in_) > kFrameBytesMax) return nonsense();
        if (in_.size() >= kFrameHead && in_.size() - kFrameHead >= frame_bytes(in_)) return whole_reply();
      } else if (got < 0 && errno == EINTR) {
        continue;
      } else if (got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) {
        break;
      } else {
        return died();
      }
    }
    if (Clock::now() < limit_.deadline()) return std::nullopt;
    std::string over = limit_.check(Clock::now(), computed());
    return over.empty() ? std::nullopt : std::optional(gone(std::move(over)));
  }

 private:
  void spawn(const fs::path& program, int theirs) {
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_addopen(&actions, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
    posix_spawn_file_actions_adddup2(&actions, stderr_.get(), STDOUT_FILENO);
    posix_spawn_file_actions_adddup2(&actions, stderr_.get(), STDERR_FILENO);
    posix_spawn_file_actions_adddup2(&actions, theirs, kHelperSocket);
    posix_spawnattr_t attributes;
    posix_spawnattr_init(&attributes);
    sigset_t none, defaults;
    sigemptyset(&none);
    sigemptyset(&defaults);
    for (const int signal : {SIGINT, SIGTERM, SIGHUP, SIGPIPE, SIGABRT, SIGCHLD}) sigaddset(&defaults, signal);
    posix_spawnattr_setsigmask(&attributes, &none);
    posix_spawnattr_setsigdefault(&attributes, &defaults);
    posix_spawnattr_setpgroup(&attributes, 0);
    posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETPGROUP | POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF);
    std::array<std::string, 4> words{program.native(), "--serve", std::string(kWireVersion), work_.path()};
    std::array<char*, 5> arguments{words[0].data(), words[1].data(), words[2].data(), words[3].data(), nullptr};
    const int failed = posix_spawn(&pid_, program.c_str(), &actions, &attributes, arguments.data(), environ);
    posix_spawnattr_destroy(&attributes);
    posix_spawn_file_actions_destroy(&actions);
    if (failed == 0) return;
    pid_ = -1;
    throw Error(ErrorCode::kDevice, fmt::format("cannot start {}", printable(program.native(), 200)),
                std::generic_category().message(failed), "install forge again: kernels are compiled by that program");
  }

  /// CPU time of the process and its children. Without /proc it is 0, so that the limit applies to wall-clock time.
  [[nodiscard]] std::chrono::milliseconds computed() const {
    return group_cpu_time(pid_).value_or(std::chrono::milliseconds(0));
  }

  /// Kills the process and all its children; returns its wait status.
  int end() {
    int status = 0;
    if (pid_ > 0) {
      kill(-pid_, SIGKILL);
      while (waitpid(pid_, &status, 0) < 0 && errno == EINTR) {
      }
    }
    pid_ = -1;
    return status;
  }

  CompileReply whole_reply() {
    auto reply = decode_reply(std::string_view(in_).substr(kFrameHead));
    if (!reply) return nonsense();
    index_.reset();
    return std::move(*reply);
  }
  CompileReply nonsense() { return gone("its process answered nonsense"); }
  CompileReply died() {
    // A dying process closes its socket a moment before it can be waited for. If it only closed the socket, it is
    // killed.
    for (int tries = 0; tries < kExitTries && !has_ended(); ++tries) usleep(kExitStep);
    const int status = end();
    if (WIFSIGNALED(status)) {
      const char* name = sigabbrev_np(WTERMSIG(status));
      return gone(fmt::format("its process crashed with SIG{}", name == nullptr ? "?" : name));
    }
    return gone(fmt::format("its process ended with status {}", WEXITSTATUS(status)));
  }
  [[nodiscard]] bool has_ended() const {
    siginfo_t info{};
    return waitid(P_PID, static_cast<id_t>(pid_), &info, WEXITED | WNOWAIT | WNOHANG) == 0 && info.si_pid != 0;
  }
  CompileReply gone(std::string failure) {
    end();
    CompileReply reply{.failure = std::move(failure), .log = {}, .code = {}};
    struct stat status{};
    if (fstat(stderr_.get(), &status) == 0) {
      reply.log.resize(static_cast<std::size_t>(std::min(status.st_size, kStderrBytesMax)));
      const off_t from = status.st_size - static_cast<off_t>(reply.log.size());
      const ssize_t got = pread(stderr_.get(), reply.log.data(), reply.log.size(), from);
      reply.log.resize(static_cast<std::size_t>(std::max<ssize_t>(got, 0)));
    }
    return reply;
  }

  WorkDirectory work_;  ///< outlives the process, see the destructor
  ComputeLimit limit_;
  UniqueFd socket_, stderr_;
  pid_t pid_ = -1;
  std::optional<std::size_t> index_;
  std::string out_, in_;
};

/// Waits until a helper's socket is ready or a helper's deadline has come.
void wait_for(const std::vector<std::unique_ptr<Helper>>& helpers) {
  std::vector<pollfd> rows;
  Clock::time_point first = Clock::time_point::max();
  for (const auto& helper : helpers) {
    rows.push_back(helper->poll_row());
    first = std::min(first, helper->deadline());
  }
  const auto left = std::chrono::ceil<std::chrono::milliseconds>(first - Clock::now()).count();
  static_cast<void>(poll(rows.data(), rows.size(), static_cast<int>(std::clamp<std::int64_t>(left, 0, 1'000'000))));
}

}  // namespace

std::size_t run_requests(const PoolOptions& options, std::span<const CompileRequest> requests,
                         const OnReply& on_reply) {
  std::size_t jobs = std::min<std::size_t>(static_cast<std::size_t>(std::max(options.jobs, 1)), requests.size());
  remove_stale_directories();
  std::vector<std::unique_ptr<Helper>> helpers;
  std::size_t next = 0, started = 0;
  while (true) {
    while (helpers.size() < jobs && next < requests.size()) {
      try {
        helpers.push_back(std::make_unique<Helper>(options));
      } catch (const Error&) {
        if (helpers.empty()) throw;
        jobs = helpers.size();  // the system does not allow more processes
        break;
      }
      ++started;
      helpers.back()->start(next, requests[next]);
      ++next;
    }
    if (helpers.empty()) return started;
    wait_for(helpers);
    for (auto& helper : helpers) {
      const std::size_t request = helper->request().value_or(0);
      auto reply = helper->advance();
      if (!reply) continue;
      if (!on_reply(request, std::move(*reply))) return started;
      if (helper->alive() && next < requests.size()) {
        helper->start(next, requests[next]);
        ++next;
      } else {
        helper.reset();
      }
    }
    std::erase(helpers, nullptr);
  }
}

fs::path find_helper() {
  return find_beside_program(kHelperName, {".", "../libexec", "../tools", "../../tools"});
}

}  // namespace forge::codegen

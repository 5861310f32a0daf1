// The pool of compile helpers survives helper processes that crash, hang or send garbage: each request gets its own
// reply or error, and no process, descriptor or directory is left behind.
#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <chrono>
#include <fstream>
#include <map>
#include <optional>

#include "codegen/gpu/compile/compile_pool.h"
#include "codegen/gpu/compile/compilers.h"
#include "codegen/gpu/compile/compute_limit.h"
#include "support/error.h"
#include "tests/codegen/gpu/kernels.h"
#include "tests/support/error_of.h"
#include "tests/support/temp_dir.h"

namespace forge::codegen::tests {
namespace {

using forge::tests::TempDir;
using namespace std::chrono_literals;

/// Longer than any correct test here takes; ends tests that hang.
constexpr std::chrono::milliseconds kGuard = 300s;

PoolOptions faulty(int jobs, std::chrono::milliseconds timeout = kGuard) {
  return {.helper = FORGE_FAULTY_HELPER, .jobs = jobs, .timeout = timeout};
}

CompileRequest request_of(const std::string& text) {
  return {.kind = CompilerKind::kClang, .program = "", .name = "k", .text = text, .options = {}};
}

std::map<std::size_t, CompileReply> replies_of(const PoolOptions& options, const std::vector<CompileRequest>& requests,
                                               std::size_t* started = nullptr) {
  std::map<std::size_t, CompileReply> replies;
  const std::size_t count = run_requests(options, requests, [&](std::size_t index, CompileReply reply) {
    CHECK(replies.emplace(index, std::move(reply)).second);
    return true;
  });
  if (started != nullptr) *started = count;
  return replies;
}

CompileReply reply_to(const std::string& text, std::chrono::milliseconds timeout = kGuard) {
  auto replies = replies_of(faulty(1, timeout), {request_of(text)});
  REQUIRE(replies.size() == 1);
  return std::move(replies.begin()->second);
}

/// Sets $TMPDIR and restores it on destruction.
class TempFolderIs {
 public:
  explicit TempFolderIs(const std::filesystem::path& folder) {
    if (const char* before = getenv("TMPDIR")) before_ = before;
    setenv("TMPDIR", folder.c_str(), 1);
  }
  TempFolderIs(const TempFolderIs&) = delete;
  TempFolderIs& operator=(const TempFolderIs&) = delete;
  ~TempFolderIs() {
    if (before_)
      setenv("TMPDIR", before_->c_str(), 1);
    else
      unsetenv("TMPDIR");
  }

 private:
  std::optional<std::string> before_;
};

/// Number of open descriptors of this process.
std::size_t descriptors() {
  std::size_t count = 0;
  for ([[maybe_unused]] const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) ++count;
  return count;
}

/// True if the process exists and is not a zombie.
bool is_running(pid_t pid) {
  std::ifstream stat("/proc/" + std::to_string(pid) + "/stat");
  std::string number, name, state;
  return (stat >> number >> name >> state) && state != "Z" && state != "X";
}

}  // namespace

TEST_CASE("wire messages survive a round trip, and truncated ones are refused") {
  const CompileRequest request{CompilerKind::kNvrtc, "p", "name", std::string("te\0xt", 5), {"-a", "", "b"}};
  const std::string frame = encode(request), body = frame.substr(kFrameHead);
  CHECK(frame_bytes(frame) == body.size());
  const auto back = decode_request(body);
  REQUIRE(back);
  CHECK(back->kind == request.kind);
  CHECK(back->program == request.program);
  CHECK(back->name == request.name);
  CHECK(back->text == request.text);
  CHECK(back->options == request.options);
  const std::string texts = encode_texts({"one", "two"});
  for (std::size_t size = 0; size < texts.size(); ++size) {
    INFO(size);
    CHECK(decode_texts(texts.substr(0, size)).has_value() == (size == 0 || size == 11));
  }
  CHECK_FALSE(decode_texts(std::string(8, '\xff')));
  CHECK_FALSE(decode_reply(texts));
  CHECK_FALSE(decode_request(texts));
  CHECK_FALSE(decode_request(encode_texts({"3", "", "", ""})));
  CHECK(frame_bytes("short") > kFrameBytesMax);
}

TEST_CASE("each reply matches its request, for any helper and any length") {
  std::vector<CompileRequest> requests;
  for (int i = 0; i < 20; ++i) requests.push_back(request_of((i % 3 == 0 ? "slow " : "plain ") + std::to_string(i)));
  requests[7].text += std::string(3'000'000, '7');  // more than a socket buffer holds
  std::size_t started = 0;
  const auto replies = replies_of(faulty(3), requests, &started);
  CHECK(started == 3);
  REQUIRE(replies.size() == requests.size());
  for (const auto& [index, reply] : replies) {
    CHECK(reply.failure.empty());
    CHECK(reply.log == "a log");
    CHECK(reply.code == requests[index].text);
  }
  CHECK(replies_of(faulty(3), {}).empty());
}

TEST_CASE("a crash fails only its own request, with the last output of the process") {
  const auto before = descriptors();
  std::size_t started = 0;
  const auto replies =
      replies_of(faulty(2), {request_of("a"), request_of("abort"), request_of("b"), request_of("c")}, &started);
  REQUIRE(replies.size() == 4);
  CHECK(replies.at(1).failure == "its process crashed with SIGABRT");
  CHECK(replies.at(1).log == "LLVM ERROR: no such target\n");
  for (const std::size_t good : {0, 2, 3}) CHECK(replies.at(good).failure.empty());
  CHECK(started >= 2);
  CHECK(started <= 3);
  CHECK(descriptors() == before);

  CHECK(reply_to("exit").failure == "its process ended with status 3");
  const auto chatter = reply_to("chatter");
  CHECK(chatter.failure == "its process crashed with SIGABRT");
  CHECK(chatter.log.size() == 16 * 1024);
  CHECK(chatter.log.ends_with("line 99999\n"));
}

TEST_CASE("garbage from a helper is detected") {
  CHECK(reply_to("garbage").failure == "its process answered nonsense");
  CHECK(reply_to("huge").failure == "its process answered nonsense");
}

TEST_CASE("a helper that exceeds its time is killed with all its children, and other requests go on") {
  const TempDir dir;
  const auto pids = dir.file("pids");
  constexpr auto kLimit = 4000ms;  // enough for the other requests, with sanitizers on a busy machine too
  const auto begun = std::chrono::steady_clock::now();
  const auto replies = replies_of(
      faulty(2, kLimit), {request_of("child " + pids.native()), request_of("a"), request_of("hang"), request_of("b")});
  const auto took = std::chrono::steady_clock::now() - begun;
  REQUIRE(replies.size() == 4);
  CHECK(replies.at(0).failure == "it did nothing for 4 s and was ended");
  CHECK(replies.at(2).failure == "it did nothing for 4 s and was ended");
  CHECK(replies.at(1).failure.empty());
  CHECK(replies.at(3).failure.empty());
  CHECK(took < kGuard);
  std::ifstream in(pids);
  pid_t child = 0, helper = 0;
  REQUIRE(in >> child >> helper);
  CHECK(kill(helper, 0) != 0);
  // The init process must reap the child; in a container there may be no init.
  for (int i = 0; i < 200 && is_running(child); ++i) usleep(10'000);
  CHECK_FALSE(is_running(child));
}

// A limit of elapsed time would fail correct compilations on a busy machine.
TEST_CASE("the time limit counts CPU time: a compilation that waits for the processor goes on") {
  CHECK(reply_to("starved", 1s).failure.empty());
  CHECK(reply_to("spin", 300ms).failure == "it computed for more than 0.3 s and was ended");
}

TEST_CASE("the deadline rule of one compilation") {
  const ComputeLimit::Clock::time_point start{};
  ComputeLimit limit(1s);
  limit.start(start, 500ms);  // CPU time used by an earlier request does not count
  CHECK(limit.deadline() == start + 1s);
  SECTION("all of the time used") {
    CHECK(limit.check(start + 1s, 1500ms) == "it computed for more than 1 s and was ended");
  }
  SECTION("part of it used: the rest remains") {
    CHECK(limit.check(start + 1s, 900ms).empty());
    CHECK(limit.deadline() == start + 1600ms);
    CHECK(limit.check(start + 1600ms, 910ms).empty());
    CHECK(limit.check(limit.deadline(), 1500ms) == "it computed for more than 1 s and was ended");
  }
  SECTION("none used, neither from the start nor since then") {
    CHECK(limit.check(start + 1s, 500ms) == "it did nothing for 1 s and was ended");
    limit.start(start, 500ms);
    CHECK(limit.check(start + 1s, 1400ms).empty());
    CHECK(limit.deadline() == start + 1100ms);
    CHECK(limit.check(start + 1100ms, 1400ms).empty());
    CHECK(limit.deadline() == start + 2s);
    CHECK(limit.check(start + 2s, 1400ms) == "it did nothing for 1 s and was ended");
  }
}

TEST_CASE("group CPU time is that of one process group, and absent for a group that does not exist") {
  CHECK_FALSE(group_cpu_time(0x7fffffff));
  const pid_t child = fork();
  if (child == 0) {
    setpgid(0, 0);
    if (fork() == 0)
      while (true) {
      }
    while (true) pause();
  }
  REQUIRE(child > 0);
  setpgid(child, child);  // parent and child both call it; either may be first
  for (int i = 0; i < 6000 && group_cpu_time(child).value_or(0ms) < 50ms; ++i) usleep(10'000);
  CHECK(group_cpu_time(child).value_or(0ms) >= 50ms);  // the time of the child's own child
  kill(-child, SIGKILL);
  CHECK(waitpid(child, nullptr, 0) == child);
}

TEST_CASE("the caller can stop at any reply, by return value or by exception") {
  const std::vector<CompileRequest> requests{request_of("a"), request_of("hang"), request_of("hang")};
  const auto before = descriptors();
  int seen = 0;
  CHECK(run_requests(faulty(3), requests, [&](std::size_t, CompileReply) {
          ++seen;
          return false;
        }) == 3);
  CHECK(seen == 1);
  CHECK_THROWS_AS(run_requests(faulty(3), requests,
                               [](std::size_t, CompileReply) -> bool { throw Error(ErrorCode::kDevice, "x"); }),
                  Error);
  CHECK(descriptors() == before);
}

TEST_CASE("a helper that cannot be started gives one clear error") {
  const std::vector<CompileRequest> requests{request_of("a")};
  const PoolOptions absent{.helper = "/nonexistent/forge-kernel-compiler", .jobs = 1, .timeout = kGuard};
  const auto line = forge::tests::error_of(
      [&] { run_requests(absent, requests, [](std::size_t, CompileReply) { return true; }); }, ErrorCode::kDevice);
  CHECK(line.find("/nonexistent/forge-kernel-compiler") != std::string::npos);
  // A program that is not a helper exits at once.
  const PoolOptions foreign{.helper = "/bin/false", .jobs = 1, .timeout = kGuard};
  CHECK(replies_of(foreign, requests).at(0).failure == "its process ended with status 1");
}

TEST_CASE("when no more helpers can be started the running ones do the work") {
  std::vector<CompileRequest> requests;
  for (int i = 0; i < 6; ++i) requests.push_back(request_of("slow " + std::to_string(i)));
  rlimit before{};
  REQUIRE(getrlimit(RLIMIT_NOFILE, &before) == 0);
  bool with_fewer = false;
  for (rlim_t more = 1; more < 24; ++more) {  // at first no helper fits the limit, then one, two, ...
    rlimit low = before;
    low.rlim_cur = descriptors() + more;
    std::size_t started = 0;
    std::map<std::size_t, CompileReply> replies;
    std::optional<ErrorCode> refused;
    REQUIRE(setrlimit(RLIMIT_NOFILE, &low) == 0);
    try {
      replies = replies_of(faulty(6), requests, &started);
    } catch (const Error& error) {
      refused = error.code();
    }
    setrlimit(RLIMIT_NOFILE, &before);
    INFO(more << " more descriptors, " << started << " helpers");
    if (refused) {
      CHECK_FALSE(with_fewer);
      continue;
    }
    REQUIRE(replies.size() == requests.size());
    for (const auto& [index, reply] : replies) CHECK(reply.failure.empty());
    with_fewer = with_fewer || started < 6;
  }
  CHECK(with_fewer);
}

TEST_CASE("when forge is killed the clang process that it waits for ends too") {
  const TempDir dir;
  const auto pid_file = dir.file("pid");
  const auto clang = dir.write("clang", "#!/bin/sh\necho $$ >" + pid_file.native() + ".new && mv " + pid_file.native() +
                                            ".new " + pid_file.native() + "\nexec sleep 3600\n");
  std::filesystem::permissions(clang, std::filesystem::perms::owner_all);
  auto request = request_of("x");
  request.program = clang.native();
  const pid_t forge = fork();
  if (forge == 0) {
    static_cast<void>(run_requests({.helper = FORGE_HELPER, .jobs = 1, .timeout = kGuard}, {{request}},
                                   [](std::size_t, CompileReply) { return true; }));
    _exit(0);
  }
  for (int i = 0; i < 6000 && !std::filesystem::exists(pid_file); ++i) usleep(10'000);
  pid_t running = 0;
  std::ifstream(pid_file) >> running;
  REQUIRE(running > 0);
  CHECK(is_running(running));
  kill(forge, SIGKILL);
  REQUIRE(waitpid(forge, nullptr, 0) == forge);
  for (int i = 0; i < 6000 && is_running(running); ++i) usleep(10'000);
  CHECK_FALSE(is_running(running));
}

TEST_CASE("working directories are removed with their helpers") {
  const TempDir dir;
  std::optional<TempFolderIs> in_dir(dir.path());
  // Directories left by a process that was killed an hour ago are removed too; recent or foreign ones stay.
  const auto old = dir.file("forge-compile-old");
  std::filesystem::create_directories(old / "comgr-1");
  std::filesystem::last_write_time(old, std::filesystem::file_time_type::clock::now() - 2h);
  const auto fresh = dir.file("forge-compile-new"), other = dir.file("other");
  for (const auto& path : {fresh, other}) std::filesystem::create_directory(path);
  std::filesystem::last_write_time(other, std::filesystem::file_time_type::clock::now() - 2h);
  replies_of(faulty(2, 300ms), {request_of("a"), request_of("hang"), request_of("abort")});
  in_dir.reset();
  CHECK(std::filesystem::remove(fresh));
  CHECK(std::filesystem::remove(other));
  CHECK(std::filesystem::is_empty(dir.path()));
}

// This crash is one reason why compilers run in helper processes.
TEST_CASE("hipRTC crashes on an unknown target, and the calling process survives") {
  const auto installed = find_compilers(driver::Vendor::kAmd);
  if (installed.list.empty() || installed.list[0].kind != CompilerKind::kHiprtc || installed.list[0].version >= 505) {
    forge::tests::skip_case("hipRTC of version 5.2 is not here");
    return;
  }
  const GpuTarget& target = *find_target("gfx1100");
  CompileRequest request{CompilerKind::kHiprtc, "", "k", "extern \"C\" __attribute__((global)) void k() {}",
                         compile_options(CompilerKind::kHiprtc, target)};
  CompileRequest good = request;
  good.options = compile_options(CompilerKind::kHiprtc, *find_target("gfx1030"));
  const auto replies = replies_of({.helper = FORGE_HELPER, .jobs = 1, .timeout = kGuard}, {request, good});
  INFO(replies.at(0).failure << replies.at(0).log << replies.at(1).failure);
  // SIGABRT, or the exit that a sanitizer turns it into.
  CHECK(replies.at(0).failure.starts_with("its process "));
  CHECK(replies.at(1).failure.empty());
  CHECK(replies.at(1).code.starts_with("\177ELF"));
}

}  // namespace forge::codegen::tests

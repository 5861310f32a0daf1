// forge-kernel-compiler: compiles kernels for the compile service in a process of its own, because compilers may hang,
// and crash for targets that they do not support. It answers requests (compile_wire.h) on a socket until that is
// closed.
#include <fcntl.h>
#include <fmt/format.h>
#include <spawn.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <optional>
#include <string>
#include <system_error>

#include "codegen/gpu/compile/compile_wire.h"
#include "runtime/driver/driver.h"

extern char** environ;

namespace forge::codegen {
namespace {

/// The name of a source in compiler messages.
std::string source_name(const CompileRequest& request) {
  return request.name + (request.kind == CompilerKind::kNvrtc ? ".cu" : ".hip");
}

std::string read_file(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

/// Runs a program and waits for it; its output goes to the file `log`. Returns "" if it exited with 0, else a message.
std::string run(const std::vector<std::string>& command, const std::string& log) {
  std::vector<char*> arguments;
  for (const std::string& text : command) arguments.push_back(const_cast<char*>(text.c_str()));
  arguments.push_back(nullptr);
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_addopen(&actions, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
  posix_spawn_file_actions_addopen(&actions, STDOUT_FILENO, log.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0600);
  posix_spawn_file_actions_adddup2(&actions, STDOUT_FILENO, STDERR_FILENO);
  posix_spawn_file_actions_addclose(&actions, kHelperSocket);
  pid_t child = -1;
  const int failed = posix_spawn(&child, command.front().c_str(), &actions, nullptr, arguments.data(), environ);
  posix_spawn_file_actions_destroy(&actions);
  if (failed != 0) return fmt::format("{}: {}", command.front(), std::generic_category().message(failed));
  int status = 0;
  while (waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  if (WIFSIGNALED(status)) return fmt::format("{} was ended by signal {}", command.front(), WTERMSIG(status));
  return WEXITSTATUS(status) == 0 ? "" : fmt::format("{} ended with {}", command.front(), WEXITSTATUS(status));
}

/// clang reads and writes files in the working directory, which are removed afterwards.
CompileReply compile_with_clang(const CompileRequest& request) {
  const std::string source = source_name(request), object = request.name + ".co", log = request.name + ".log";
  {
    std::ofstream out(source, std::ios::binary);
    if (!(out << request.text).flush()) return {"cannot write the source into the working directory", "", ""};
  }
  std::vector<std::string> command{request.program};
  command.insert(command.end(), request.options.begin(), request.options.end());
  command.insert(command.end(), {source, "-o", object});
  CompileReply reply;
  reply.failure = run(command, log);
  reply.log = read_file(log);
  if (reply.failure.empty()) reply.code = read_file(object);
  for (const std::string& file : {source, object, log}) unlink(file.c_str());
  return reply;
}

/// hipRTC or NVRTC, in this process.
CompileReply compile_with_library(const CompileRequest& request) {
  static std::array<std::optional<driver::RuntimeCompiler>, 2> compilers;  // loading one takes longer than compiling
  const bool amd = request.kind == CompilerKind::kHiprtc;
  auto& compiler = compilers[amd ? 0 : 1];
  if (!compiler) compiler = driver::RuntimeCompiler::open(amd ? driver::Vendor::kAmd : driver::Vendor::kNvidia);
  const auto result = compiler->compile(request.text, source_name(request), request.options);
  return {result.failure, result.log, {reinterpret_cast<const char*>(result.code.data()), result.code.size()}};
}

CompileReply compile(const CompileRequest& request) {
  try {
    return request.kind == CompilerKind::kClang ? compile_with_clang(request) : compile_with_library(request);
  } catch (const std::exception& error) {
    return {error.what(), "", ""};
  }
}

/// Fills `bytes`; false at the end of the stream.
bool receive(std::string& bytes) {
  for (std::size_t got = 0; got < bytes.size();) {
    const ssize_t count = recv(kHelperSocket, bytes.data() + got, bytes.size() - got, 0);
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) return false;
    got += static_cast<std::size_t>(count);
  }
  return true;
}

bool answer(std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t count = send(kHelperSocket, bytes.data(), bytes.size(), MSG_NOSIGNAL);
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) return false;
    bytes.remove_prefix(static_cast<std::size_t>(count));
  }
  return true;
}

/// The main loop: reads requests and answers them until the socket is closed. directory: the working directory.
int serve(const char* directory) {
  // If the service dies, this process gets SIGTERM and kills its process group, including a running clang. Compiler
  // crashes are expected, so they leave no core files.
  struct sigaction end_all{};
  end_all.sa_handler = [](int) { kill(getpgrp() == getpid() ? 0 : getpid(), SIGKILL); };
  sigaction(SIGTERM, &end_all, nullptr);
  prctl(PR_SET_PDEATHSIG, SIGTERM);
  const rlimit no_core{0, 0};
  setrlimit(RLIMIT_CORE, &no_core);
  fcntl(kHelperSocket, F_SETFD, FD_CLOEXEC);
  if (chdir(directory) != 0) {
    std::fprintf(stderr, "forge-kernel-compiler: cannot enter %s\n", directory);
    return 1;
  }
  setenv("TMPDIR", directory, 1);  // NOLINT(concurrency-mt-unsafe): no threads yet
  for (std::string head(kFrameHead, '\0'), body; receive(head);) {
    const std::uint64_t bytes = frame_bytes(head);
    if (bytes > kFrameBytesMax) return 1;
    body.assign(bytes, '\0');
    if (!receive(body)) return 1;
    const auto request = decode_request(body);
    if (!request || !answer(encode(compile(*request)))) return 1;
  }
  return 0;
}

}  // namespace
}  // namespace forge::codegen

int main(int argc, char** argv) {
  using namespace forge::codegen;
  if (argc != 4 || std::string_view(argv[1]) != "--serve" || std::string_view(argv[2]) != kWireVersion) {
    std::fprintf(stderr,
                 "forge-kernel-compiler of wire version %s is started by forge itself, with the same version: it "
                 "compiles kernels in a process of its own. There is nothing to do with it by hand.\n",
                 std::string(kWireVersion).c_str());
    return 2;
  }
  return serve(argv[3]);
}

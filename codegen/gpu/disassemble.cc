// Disassembly by the vendors' tools, for people and tests.
#include <fcntl.h>
#include <fmt/format.h>
#include <spawn.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>

#include "codegen/gpu/code_object.h"
#include "runtime/plan/unique_fd.h"

extern char** environ;

namespace forge::codegen {
namespace {

using plan::UniqueFd;

/// Output of a program of $PATH, or nothing when there is no such program or it fails. Its errors are not shown.
std::optional<std::string> output_of(std::span<const std::string> command) {
  std::vector<char*> arguments;
  for (const std::string& text : command) arguments.push_back(const_cast<char*>(text.c_str()));
  arguments.push_back(nullptr);
  const UniqueFd out(memfd_create("forge-disassembly", MFD_CLOEXEC));
  if (!out) return std::nullopt;
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_addopen(&actions, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
  posix_spawn_file_actions_adddup2(&actions, out.get(), STDOUT_FILENO);
  posix_spawn_file_actions_addopen(&actions, STDERR_FILENO, "/dev/null", O_WRONLY, 0);
  pid_t child = -1;
  const int failed = posix_spawnp(&child, arguments[0], &actions, nullptr, arguments.data(), environ);
  posix_spawn_file_actions_destroy(&actions);
  int status = 0;
  if (failed != 0) return std::nullopt;
  while (waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  struct stat size{};
  if (!WIFEXITED(status) || WEXITSTATUS(status) != 0 || fstat(out.get(), &size) != 0) return std::nullopt;
  std::string text(static_cast<std::size_t>(size.st_size), '\0');
  const ssize_t got = pread(out.get(), text.data(), text.size(), 0);
  if (got != size.st_size) return std::nullopt;
  return text;
}

}  // namespace

std::optional<std::string> disassemble(std::span<const std::byte> code, const GpuTarget& target) {
  const UniqueFd file(memfd_create("forge-code", 0));  // the tool opens it by name, so it stays open there
  if (!file || write(file.get(), code.data(), code.size()) != static_cast<ssize_t>(code.size())) return std::nullopt;
  const std::string path = fmt::format("/proc/self/fd/{}", file.get());
  std::vector<std::vector<std::string>> commands;
  if (target.vendor == driver::Vendor::kNvidia) {
    for (const char* tool : {"cuobjdump", "/usr/local/cuda/bin/cuobjdump"})
      commands.push_back({tool, "--dump-sass", path});
    for (const char* tool : {"nvdisasm", "/usr/local/cuda/bin/nvdisasm"}) commands.push_back({tool, path});
  } else {
    for (const char* tool : {"llvm-objdump-19", "llvm-objdump", "/opt/rocm/llvm/bin/llvm-objdump"})
      commands.push_back({tool, "-d", path});
  }
  for (const auto& command : commands)
    if (auto text = output_of(command)) return text;
  return std::nullopt;
}

}  // namespace forge::codegen

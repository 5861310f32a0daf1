#include "codegen/program_output.h"

#include <fcntl.h>
#include <spawn.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <vector>

#include "support/os/unique_fd.h"

extern char** environ;

namespace forge::codegen {

ProgramOutput output_of(std::span<const std::string> command) {
  std::vector<char*> arguments;
  for (const std::string& text : command) arguments.push_back(const_cast<char*>(text.c_str()));
  arguments.push_back(nullptr);
  // The output goes to a file in memory, not a pipe, so that the program cannot block on a full pipe.
  const UniqueFd out(memfd_create("forge-output", MFD_CLOEXEC));
  if (!out) return {};
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_addopen(&actions, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
  posix_spawn_file_actions_adddup2(&actions, out.get(), STDOUT_FILENO);
  posix_spawn_file_actions_addopen(&actions, STDERR_FILENO, "/dev/null", O_WRONLY, 0);
  pid_t child = -1;
  const int failed = posix_spawnp(&child, arguments[0], &actions, nullptr, arguments.data(), environ);
  posix_spawn_file_actions_destroy(&actions);
  if (failed != 0) return {};
  int status = 0;
  while (waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  struct stat size{};
  if (!WIFEXITED(status) || WEXITSTATUS(status) != 0 || fstat(out.get(), &size) != 0)
    return {.found = true, .text = {}};
  std::string text(static_cast<std::size_t>(size.st_size), '\0');
  if (pread(out.get(), text.data(), text.size(), 0) != size.st_size) return {.found = true, .text = {}};
  return {.found = true, .text = std::move(text)};
}

}  // namespace forge::codegen

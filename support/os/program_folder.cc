#include "support/os/program_folder.h"

#include <unistd.h>

#include <system_error>

namespace forge {

std::filesystem::path find_beside_program(std::string_view name, std::initializer_list<const char*> places) {
  std::error_code failed;
  const auto folder = std::filesystem::read_symlink("/proc/self/exe", failed).parent_path();
  if (failed) return {};
  for (const char* place : places) {
    auto path = (folder / place / name).lexically_normal();
    if (::access(path.c_str(), X_OK) == 0) return path;
  }
  return {};
}

}  // namespace forge

#include "support/os/program_folder.h"

#include <catch2/catch.hpp>
#include <filesystem>

namespace forge {

TEST_CASE("a program is found beside the one that runs, in the first place that has it") {
  const auto self = std::filesystem::read_symlink("/proc/self/exe");
  const auto name = self.filename().native();
  const auto folder = self.parent_path().filename().native();
  CHECK(find_beside_program(name, {"nowhere", "."}) == self);
  CHECK(find_beside_program(name, {("../" + folder).c_str()}) == self);
  CHECK(find_beside_program(name, {"nowhere"}).empty());
  CHECK(find_beside_program("no-such-program", {".", ".."}).empty());
}

}  // namespace forge
